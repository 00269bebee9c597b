"""`llmgw doctor`: what is right and wrong with this host, a line each, with what to do.

Exit: 0 all is well, 1 there are warnings, 2 there are faults (or the command line is wrong).
"""

import argparse
import asyncio
import os
import socket
import sys
import time
from collections.abc import Sequence
from io import TextIOWrapper
from pathlib import Path

from llmgw.cli.parser import Parser
from llmgw.core.checks import Result, worst

_STATUS = {Result.OK: 0, Result.WARNING: 1, Result.FAULT: 2}
_LONGEST = 60.0

_EXITS = """\
exit status:
  0   all is well
  1   there are warnings, and no faults
  2   there are faults, or the command line is wrong
  70  a fault of llmgw"""


def main(argv: Sequence[str]) -> int:
    """Look at the host and tell; returns the exit status."""
    asked = _parser().parse_args(argv)
    # Not above: help and mistakes need none of it.
    from llmgw.cli.examine import report, subjects
    from llmgw.cli.examine.host import examine

    more = [subjects.server(asked.server, asked.tls)] if asked.server or asked.tls else []
    examined = asyncio.run(examine(asked.files, asked.timeout, more=more))
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # a C locale must not end it
    if asked.json:
        print(report.shape(examined, socket.gethostname(), time.time()))
    else:
        colour = sys.stdout.isatty() and not os.environ.get("NO_COLOR")
        for line in report.lines(examined, colour=colour, ascii_only=bool(os.environ.get("LLMGW_ASCII"))):
            print(line)
    return _STATUS[worst(check for one in examined for check in one.checks)]


def _parser() -> argparse.ArgumentParser:
    parser = Parser(
        "llmgw doctor",
        "Say what is right and wrong with this host: a node, a control host or an operator's own machine. It changes "
        "nothing, and needs no agent or control plane that runs; root sees most.",
        example="sudo llmgw doctor\n  llmgw doctor agent.yaml --json\n  llmgw doctor --server 10.0.0.1 --tls operator",
        exits=_EXITS,
    )
    parser.add_argument(
        "files",
        metavar="FILE",
        nargs="*",
        type=Path,
        help="agent.yaml, server.yaml, router.yaml or a client.yaml (default: those in /etc/llmgw, ~/.config/llmgw)",
    )
    parser.add_argument(
        "--server",
        metavar="HOST[:PORT]",
        action="append",
        default=[],
        help="a control plane to try from here, as ctl takes it; may be given several times",
    )
    parser.add_argument(
        "--tls",
        metavar="DIR",
        type=Path,
        help="with --server: the directory of the certificate (default ~/.config/llmgw)",
    )
    parser.add_argument("--json", action="store_true", help="answer as one JSON object")
    parser.add_argument(
        "--timeout",
        metavar="S",
        type=_seconds,
        default=5.0,
        help="how long a control plane or a name server has to answer, such as 500ms or 10s (default 5s)",
    )
    return parser


def _seconds(text: str) -> float:
    from llmgw.config.units import duration

    try:
        found = duration(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    if not 0 < found <= _LONGEST:
        raise argparse.ArgumentTypeError(f"must be more than nothing and at most {_LONGEST:g}s")
    return found
