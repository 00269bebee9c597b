"""What is there to look at: which configuration files, for which program is each, and which way to a cluster?"""

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from llmgw.config.checked import mapping
from llmgw.config.client import ClientConfig
from llmgw.config.lenient import lenient
from llmgw.config.models import ClientFile
from llmgw.config.tls import TlsFiles
from llmgw.core.errors import BadConfig
from llmgw.ctl.where import own_certificate, where

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
    """A configuration file, or a way to a cluster that none says."""

    path: Path
    """The file, or the directory of the certificate."""
    kind: Kind
    given: ClientConfig | None = None
    """How the cluster is reached, where no file says so."""

    def __str__(self) -> str:
        servers = ", ".join(map(str, self.given.server)) if self.given else ""
        return f"{self.kind.value}: {servers} by {self.path}" if servers else f"{self.kind.value}: {self.path}"


def here(etc: Path = ETC, home: Path | None = None) -> list[Subject]:
    """The files that this host and this user have, and the user's certificate; what may not be looked into has none."""
    own = (home or Path(os.path.expanduser("~"))) / ".config" / "llmgw"
    daemons = [Subject(etc / f"{kind.value}.yaml", kind) for kind in (Kind.AGENT, Kind.SERVER, Kind.ROUTER)]
    contexts = [Subject(path, Kind.CLIENT) for path in _contexts(own)]
    return [*(one for one in daemons if os.path.lexists(one.path)), *contexts, *_certificate(own, contexts)]


def server(servers: Sequence[str], tls: Path | None) -> Subject:
    """A cluster that was named as ctl takes it; Rejected when it was not."""
    given = where(servers=tuple(servers), tls=tls)
    directory = given.tls.certificate.parent if given.tls else tls
    return Subject(directory or Path(), Kind.CLIENT, given)


def shut(etc: Path = ETC) -> bool:
    """Whether what the host has is not for this user to see."""
    return os.path.isdir(etc) and not os.access(etc, os.X_OK, effective_ids=True)


def _certificate(directory: Path, contexts: Sequence[Subject]) -> list[Subject]:
    """The certificate that ctl takes with --server alone, unless a context has it."""
    files = own_certificate(directory)
    if files is None or any(_names(one.path, files.certificate) for one in contexts):
        return []
    return [Subject(directory, Kind.CLIENT, ClientConfig(tls=files))]


def _names(context: Path, certificate: Path) -> bool:
    tls: TlsFiles | None = lenient(context, ClientFile).get("tls")
    return tls is not None and os.path.realpath(tls.certificate) == os.path.realpath(certificate)


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
