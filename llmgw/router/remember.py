"""What route table did the router have last? Kept on disk, so that it serves when it starts without a control plane.

The file holds the engines' keys: it is never readable by others, not even while it is written.
"""

from pathlib import Path

import msgspec

from llmgw.core.facts import Secret
from llmgw.core.routes import Routes
from llmgw.host import files

NAME = "routes.json"
LARGEST = 64 << 20
"""Bytes; 2,000 replicas take half a megabyte."""


class BadMemory(Exception):
    """The file cannot be used; one line with the reason."""


def load(state: Path) -> Routes | None:
    """Return the last table, None when there was none; raises BadMemory."""
    file = state / NAME
    try:
        with file.open("rb") as reader:
            data = reader.read(LARGEST + 1)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise BadMemory(f"{file}: {error.strerror}") from None
    if len(data) > LARGEST:
        raise BadMemory(f"{file}: is over {LARGEST} bytes")
    try:
        return msgspec.json.decode(data, type=Routes, dec_hook=lambda kind, value: kind(value))
    except (msgspec.MsgspecError, ValueError, TypeError, RecursionError) as error:
        raise BadMemory(f"{file}: does not hold a route table ({error})") from None


def save(state: Path, routes: Routes) -> None:
    """Replace the table on disk in one step; raises OSError."""
    data = msgspec.json.encode(routes, enc_hook=_plain)
    files.replace(state / NAME, data)


def _plain(value: object) -> str:
    if isinstance(value, Secret):
        return str.__str__(value)
    raise NotImplementedError(type(value).__name__)
