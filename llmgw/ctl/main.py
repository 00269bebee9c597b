"""`llmgw ctl`: from a command line to an exit status (see `grammar.EXITS`)."""

import gc
import sys
from collections.abc import Sequence

from llmgw.ctl.grammar import parse


def main(argv: Sequence[str]) -> int:
    """Run one command line and return its exit status; what is not foreseen is raised."""
    asked = parse(argv)
    # A tenth of what a look costs went to collections while modules are imported. Those make no garbage, and what they
    # make stays until the end, so it need not be looked through again.
    gc.disable()
    try:
        # Not above: `--help` and a typing mistake need no client.
        import asyncio

        from llmgw.ctl.run import carry_out
    finally:
        gc.freeze()
        gc.enable()
    return asyncio.run(carry_out(asked))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
