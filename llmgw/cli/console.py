"""`llmgw console`: which cluster the console is to watch, and whether it may act on it."""

import sys
from collections.abc import Sequence
from pathlib import Path

from llmgw.cli.parser import Parser
from llmgw.core.errors import Rejected
from llmgw.ctl.where import where
from llmgw.host.program import importing


def main(argv: Sequence[str]) -> int:
    """Open the console and return its exit status."""
    parser = Parser("llmgw console", "Watch and steer a cluster in the terminal.", example="llmgw console --dir demo")
    place = parser.add_argument_group("where the cluster is (default: the socket /run/llmgw/llmgwd.sock of this host)")
    place.add_argument("--dir", type=Path, metavar="D", help="a demo's directory")
    place.add_argument("--server", action="append", default=[], metavar="HOST[:PORT]", help="a control plane")
    place.add_argument(
        "--tls",
        type=Path,
        metavar="DIR",
        help="with --server: its NAME.crt, NAME.key and authority.crt (default ~/.config/llmgw)",
    )
    place.add_argument("--context", metavar="NAME", help="what ~/.config/llmgw/NAME.yaml says")
    parser.add_argument("--read-only", action="store_true", help="without the keys that change something")
    parser.add_argument("--note", default="", metavar="TEXT", help="shown in the header and in the help")
    asked = parser.parse_args(argv)
    found = where(directory=asked.dir, servers=tuple(asked.server), tls=asked.tls, context=asked.context)
    if not terminal():
        raise Rejected("the console needs a terminal at stdin, stdout and stderr; for scripts there is `llmgw ctl`")
    with importing():
        # Not above: a wrong option or place is answered before the toolkit of the console is loaded.
        from llmgw.tui.app import run
    return run(found, asked.read_only, asked.note)


def terminal() -> bool:
    """Whether a full screen can be shown here; the toolkit draws it on stderr and reads keys from stdin."""
    return all(stream.isatty() for stream in (sys.stdin, sys.stdout, sys.stderr))
