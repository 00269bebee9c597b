"""How does a program of ours end? With its exit status, and with one line when something was in its way.

0 it did its work · the error's own status, after one line on stderr · 70 a fault of ours, whose trace is in the log ·
130 interrupted before it listened to signals
"""

import argparse
import gc
import logging
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from llmgw import __version__
from llmgw.core.errors import LlmgwError
from llmgw.core.safe import LINE, safe

_log = logging.getLogger(__name__)

INTERRUPTED = 130

_EXITS = {
    0: "stopped by a signal, or what was asked is done",
    2: "the configuration, a file that it names or the command line is wrong",
    LlmgwError.exit_status: "a fault of llmgw; the log has its trace",
}


def exits(own: Mapping[int, str]) -> str:
    """The last part of a program's `--help`: its exit statuses, those of every program and its `own`.

    Give it as `epilog`, with `argparse.RawDescriptionHelpFormatter`.
    """
    lines = [f"  {status:<3} {meaning}" for status, meaning in sorted({**_EXITS, **own}.items())]
    return "\n".join(["exit status:", *lines])


def command_line(name: str, does: str, file: Path, own: Mapping[int, str]) -> argparse.ArgumentParser:
    """The command line that all daemons share: which file (`file` by default), only check it, which version.

    `does` is a sentence for the help, `own` the exit statuses that only this program has.
    """
    parser = argparse.ArgumentParser(
        prog=name, description=does, epilog=exits(own), formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--config", type=Path, default=file, metavar="FILE", help=f"{file.name} (%(default)s)")
    parser.add_argument("--check", action="store_true", help="only say whether the configuration can be used")
    parser.add_argument("--version", action="version", version=f"{name} {__version__}")
    return parser


@contextmanager
def importing() -> Iterator[None]:
    """Import within this what a program needs for its whole life: nothing of it is looked through for garbage.

    Modules make none, and what they make stays until the end. To look took a tenth of what a `llmgw ctl` spends, and a
    sixth of what `llmgwd` spends until it is ready.
    """
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


def run_program(name: str, work: Callable[[], int | None]) -> int:
    """Do `work`, which returns an exit status or nothing, and return what the process ends with. Raises nothing.

    Set logging up before: a trace is a log record.
    """
    try:
        return work() or 0
    except KeyboardInterrupt:
        return INTERRUPTED
    except Exception as error:  # the supervisor of a whole program
        expected = _expected(error)
        if expected is None:
            _log.critical("%s: a fault of ours ends it", name, exc_info=error)
            return LlmgwError.exit_status
        print(f"{name}: {safe(str(expected), LINE)}", file=sys.stderr)
        return expected.exit_status


def _expected(error: BaseException) -> LlmgwError | None:
    """The error to say in one line, when nothing else went wrong beside it."""
    if isinstance(error, BaseExceptionGroup):
        found = [_expected(one) for one in error.exceptions]
        return found[0] if None not in found else None
    return error if isinstance(error, LlmgwError) else None
