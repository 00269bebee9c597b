"""Who looks at the host, and what to do where that user may not?"""

import os
import shlex
import sys

from llmgw.host.accounts import name_of


def user() -> str:
    """Who runs this."""
    return name_of(os.geteuid())


def command(*words: str) -> str:
    """A command line of this program, to be typed by anybody: root's PATH need not have it."""
    program = os.path.abspath(sys.argv[0])
    start = [program] if os.path.basename(program) == "llmgw" else [sys.executable, "-m", "llmgw.cli.main"]
    return shlex.join([*start, *words])


def as_root() -> str:
    """How to run this again as root: the same program with the same arguments."""
    arguments = sys.argv[sys.argv.index("doctor") :] if "doctor" in sys.argv else ["doctor"]
    return f"run as root: sudo {command(*arguments)}"
