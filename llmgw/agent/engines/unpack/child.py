"""`python -m llmgw.agent.engines.unpack.child`: the process in which an archive is unpacked.

It is given open files by their numbers and says on its standard output, a JSON line each, how far it is and how it
ended. All that it imports is imported before it gives up its place.
"""

import json
import os
import sys
import time

from llmgw.agent.engines.unpack.bad import BadArchive
from llmgw.agent.engines.unpack.confine import confine
from llmgw.agent.engines.unpack.extract import extract
from llmgw.agent.engines.unpack.limits import LIMITS

_EVERY = 0.1
"""Seconds between two lines of progress."""


def main(archive: str, into: str, user: str, parent: str, case_pairs: str) -> None:
    """Unpack and say how it ended; given the numbers of both files, of the user (`-` for ours) and of the parent."""
    confine(None if user == "-" else int(user), int(into), LIMITS, int(parent))
    try:
        extract(int(archive), int(into), tell=_Progress(), limits=LIMITS, case_pairs=case_pairs == "pairs")
    except BadArchive as bad:
        _say({"bad": [bad.rule, bad.entry, bad.index]})
    except OSError as error:
        _say({"errno": error.errno})
    else:
        _say({"whole": True})


class _Progress:
    """Tells it now and then."""

    def __init__(self) -> None:
        self._told = time.monotonic()

    def __call__(self, taken: int, made: int) -> None:
        now = time.monotonic()
        if now - self._told >= _EVERY:
            self._told = now
            _say({"at": [taken, made]})


def _say(said: object) -> None:
    line = json.dumps(said).encode() + b"\n"
    while line:
        line = line[os.write(1, line) :]


if __name__ == "__main__":
    main(*sys.argv[1:])
