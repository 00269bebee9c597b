"""`llmgw ctl`: from a command line to an exit status (see `grammar.EXITS`)."""

import sys
from collections.abc import Sequence

from llmgw.ctl.grammar import parse
from llmgw.host.program import importing


def main(argv: Sequence[str]) -> int:
    """Run one command line and return its exit status; what is not foreseen is raised."""
    asked = parse(argv)
    with importing():
        # Not above: `--help` and a typing mistake need no client.
        import asyncio

        from llmgw.ctl.run import carry_out
    return asyncio.run(carry_out(asked))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
