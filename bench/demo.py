"""How long a whole cluster takes from nothing to answered requests and back."""

import asyncio
import json
import sys
import tempfile
import time
from collections.abc import AsyncIterator

from bench.figure import Figure

GOAL = 60.0


async def figures() -> AsyncIterator[Figure]:
    with tempfile.TemporaryDirectory(prefix="llmgw-bench-") as scratch:
        started = time.monotonic()
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "llmgw.cli.main", "demo", "--check", "--dir", f"{scratch}/demo"),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        out, words = await process.communicate()
        took = time.monotonic() - started
    yield Figure(name="demo", value=took, unit="s", goal=GOAL, failed=_failed(process.returncode, out, words))


def _failed(status: int | None, out: bytes, words: bytes) -> str:
    if status != 0:
        last = words.decode(errors="replace").strip().splitlines() or ["no words"]
        return f"exit {status}: {last[-1]}"
    return "" if json.loads(out)["ok"] else out.decode().strip()
