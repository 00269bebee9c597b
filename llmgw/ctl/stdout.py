"""What becomes of stdout when it takes no more?"""

import os
import sys

from llmgw.core.errors import LlmgwError


class NotWritten(LlmgwError):
    """Stdout takes no more, as on a full disk; nothing of that is llmgw's fault."""

    code = "not_written"
    exit_status = 74

    def __init__(self, error: OSError) -> None:
        super().__init__(f"stdout: the answer could not be written: {(error.strerror or str(error)).lower()}")


def give_up_stdout() -> None:
    """Nobody reads stdout any more: what is still buffered goes nowhere, without a word at exit."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)
