"""How the sub-commands of `llmgw` are parsed: a mistake is one line and exit 2, help ends with the exit codes."""

import argparse
from typing import NoReturn

from llmgw.ctl.grammar import EXITS


class Parser(argparse.ArgumentParser):
    """An argument parser with our manners."""

    def __init__(self, prog: str, description: str = "", *, example: str = "", exits: str = EXITS) -> None:
        super().__init__(
            prog=prog,
            description=description,
            epilog=(f"example:\n  {example}\n\n" if example else "") + exits,
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
        )

    def error(self, message: str) -> NoReturn:
        """One line that names the way to the help."""
        self.exit(2, f"llmgw: {message}; see: {self.prog} --help\n")
