"""What the cluster is told once, at its start: the file's settings, and what the store remembers."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from llmgw.core.catalog import Scaled
from llmgw.core.effects import Assignment
from llmgw.core.engines.orders import Release
from llmgw.core.facts import Exposure
from llmgw.core.names import ModelName, NodeName
from llmgw.core.units import Bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What server.yaml says of the whole cluster; durations in seconds."""

    cluster: str
    heartbeat: float = 2.0
    lost_after: float = 60.0
    settle: float = 15.0
    exposure: Exposure = Exposure.LOOPBACK
    drain: float = 30.0
    downloads: int = 16
    """Nodes that may download an engine at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """What the store remembers of earlier."""

    assignments: tuple[Assignment, ...] = ()
    ordinals: Mapping[ModelName, int] = field(default_factory=dict)
    overlays: tuple[Scaled, ...] = ()
    machines: Mapping[NodeName, str] = field(default_factory=dict)
    memories: Mapping[NodeName, Bytes] = field(default_factory=dict)
    """The most RAM that each node registered with."""
    releases: tuple[tuple[str, Release], ...] = ()
    """Each with the version that led to it, as server.yaml had it."""
    seq: int = 0
    """Of the last event."""
