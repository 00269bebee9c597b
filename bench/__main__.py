"""`python -m bench [NAME…]`: one JSON line per figure; exit 1 when one of them is not ok."""

import asyncio
import importlib
import json
import sys

from llmgw.core.errors import LlmgwError

NAMES = ("demo", "stop", "idle", "ctl", "console", "router", "discovery", "install")


async def main(asked: list[str]) -> int:
    unknown = [name for name in asked if name not in NAMES]
    if unknown:
        print(f"bench: {unknown[0]!r} is not one of {', '.join(NAMES)}", file=sys.stderr)
        return 2
    # All are tried: one that fails says so in its line.
    return 0 if all([await _measured(name) for name in asked or NAMES]) else 1


async def _measured(name: str) -> bool:
    all_ok = True
    try:
        async for figure in importlib.import_module(f"bench.{name}").figures():
            print(figure.line(), flush=True)
            all_ok = all_ok and figure.ok
    except LlmgwError as error:
        print(json.dumps({"name": name, "ok": False, "failed": str(error)}), flush=True)
        return False
    return all_ok


if __name__ == "__main__":
    sys.exit(asyncio.run(main(sys.argv[1:])))
