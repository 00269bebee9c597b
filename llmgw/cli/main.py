"""`llmgw`: which sub-command was meant, and what becomes of an error that none of them answered."""

import errno
import importlib
import logging
import os
import sys
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from llmgw import __version__
from llmgw.core.safe import safe
from llmgw.ctl.grammar import EXITS
from llmgw.ctl.stdout import NotWritten, give_up_stdout
from llmgw.host.program import run_program


@dataclass(frozen=True, slots=True)
class Command:
    """A sub-command: its module has `main(argv) -> exit status` and is imported only when it is used."""

    name: str
    module: str
    help: str


COMMANDS = (
    Command("demo", "llmgw.cli.demo", "a whole cluster on this machine, with a real small model"),
    Command("console", "llmgw.cli.console", "watch and steer a cluster in the terminal"),
    Command("ctl", "llmgw.ctl.main", "every look and every act, for scripts and people"),
    Command("doctor", "llmgw.cli.doctor", "what is right and wrong with this host, and what to do"),
    Command("mirror", "llmgw.cli.mirror", "a directory with engines for nodes that reach no other place"),
    Command("pki", "llmgw.cli.pki", "make a cluster's authority and issue certificates"),
    Command("version", "llmgw.cli.version", "the version of this program"),
)

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)
"""Why stdout may take no more, when it is a file."""

_HELP = f"""\
usage: llmgw COMMAND …

An LLM gateway that runs its own private cluster. New here? Start with: llmgw demo

commands (llmgw COMMAND --help says more):
{{commands}}

options:
  -h, --help  this text
  --version   same as the command `version`
  --debug     before COMMAND: show the traceback of a fault of llmgw

{EXITS}
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command line and return its exit status."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    debug = "--debug" in arguments[:1]
    word, *rest = arguments[debug:] or ["--help"]
    if word in ("-h", "--help", "help"):
        return _run(None, [], debug=debug)
    command = next((one for one in COMMANDS if one.name == word.removeprefix("--")), None)
    if command is None or (word.startswith("--") and word != "--version"):
        print(f"llmgw: {word[:80]!r} is not a command; see: llmgw --help", file=sys.stderr)
        return 2
    return _run(command, rest, debug=debug)


def _help() -> str:
    return _HELP.format(commands="\n".join(f"  {one.name:<9} {one.help}" for one in COMMANDS))


def _run(command: Command | None, argv: list[str], *, debug: bool) -> int:
    """Run a command; None shows what there are."""

    def work() -> int:
        status = 0
        try:
            if command is None:
                print(_help(), end="")
            else:
                status = _status(command, argv)
            sys.stdout.flush()
        except BrokenPipeError:
            # Whoever read our output is gone; without this the interpreter complains about it while it ends.
            give_up_stdout()
            return 0
        except OSError as error:
            # Of a file that was opened by its name the error has the name.
            if error.errno not in _FULL or error.filename is not None:
                raise
            give_up_stdout()
            raise NotWritten(error) from None
        return status

    log, faults = logging.getLogger(run_program.__module__), _Faults(debug=debug)
    log.addHandler(faults)
    try:
        return run_program("llmgw", work)
    finally:
        log.removeHandler(faults)


def _status(command: Command, argv: list[str]) -> int:
    try:
        status: int = importlib.import_module(command.module).main(argv)
    except SystemExit as end:  # argparse's way to end; what it wrote is not flushed yet
        status = end.code if isinstance(end.code, int) else 0
    return status


class _Faults(logging.Handler):
    """Our own mistakes: a line for the person, the traceback for us."""

    def __init__(self, *, debug: bool) -> None:
        super().__init__()
        self._debug = debug

    def emit(self, record: logging.LogRecord) -> None:
        """Tell the record's exception."""
        error = record.exc_info[1] if record.exc_info else None
        if error is None:
            return
        if self._debug:
            traceback.print_exception(error)
            way_out = "please report it with the traceback above"
        else:
            way_out = f"the traceback is in {path}" if (path := _write_down(error)) else "--debug shows the traceback"
        words = safe(" ".join(f"{type(error).__name__}: {error}".split()), 300)
        print(f"llmgw: a fault of llmgw: {words}; {way_out}", file=sys.stderr)


def _write_down(error: BaseException) -> Path | None:
    """Keep the last fault's traceback in the user's state directory; None when that cannot be written."""
    path = state_home() / "fault.log"
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
            file.write(f"llmgw {__version__}\n")
            traceback.print_exception(error, file=file)
    except OSError:
        return None
    return path


def state_home() -> Path:
    """Where this user's programs keep what is neither configuration nor cache."""
    given = os.environ.get("XDG_STATE_HOME", "")
    return (Path(given) if given.startswith("/") else Path.home() / ".local" / "state") / "llmgw"


if __name__ == "__main__":
    sys.exit(main())
