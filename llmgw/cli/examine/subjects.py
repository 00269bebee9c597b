"""What is there to look at: which configuration files, and for which program is each?"""

import os
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from llmgw.config.checked import mapping
from llmgw.core.errors import BadConfig

ETC = Path("/etc/llmgw")
_MOST_CONTEXTS = 32


class Kind(Enum):
    """Whose configuration a file is."""

    AGENT = "agent"
    SERVER = "server"
    ROUTER = "router"
    CLIENT = "client"


@dataclass(frozen=True, slots=True)
class Subject:
    """A configuration file."""

    path: Path
    kind: Kind


def here(etc: Path = ETC, home: Path | None = None) -> list[Subject]:
    """The files that this host and this user have; a directory that may not be looked into counts as having none."""
    daemons = [Subject(etc / f"{kind.value}.yaml", kind) for kind in (Kind.AGENT, Kind.SERVER, Kind.ROUTER)]
    return [one for one in daemons if os.path.lexists(one.path)] + [
        Subject(path, Kind.CLIENT) for path in _contexts((home or Path(os.path.expanduser("~"))) / ".config" / "llmgw")
    ]


def told(path: Path) -> Subject:
    """A file that was named; its kind by its name where that says it, else by its keys."""
    named = {kind.value: kind for kind in Kind}
    return Subject(path, named.get(path.stem) or _by_keys(path) or Kind.CLIENT)


def _contexts(directory: Path) -> list[Path]:
    try:
        return sorted(one for one in directory.iterdir() if one.suffix == ".yaml")[:_MOST_CONTEXTS]
    except OSError:
        return []


_KEYS: Iterable[tuple[Kind, frozenset[str]]] = (
    (Kind.SERVER, frozenset({"cluster", "store", "models"})),
    (Kind.AGENT, frozenset({"node", "engines", "engine_ports", "fabrics", "launcher"})),
    (Kind.ROUTER, frozenset({"listen", "max_body", "drain"})),
    (Kind.CLIENT, frozenset({"server", "socket"})),
    (Kind.AGENT, frozenset({"control"})),
)
"""Keys that tell a kind, the ones that tell most first."""


def _by_keys(path: Path) -> Kind | None:
    try:
        found = mapping(path).value
    except BadConfig:
        return None
    keys = set(found) if isinstance(found, dict) else set()
    return next((kind for kind, own in _KEYS if own & keys), None)
