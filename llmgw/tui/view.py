"""What does the console know of the cluster, at one moment?

A `View` is immutable; what did not change from one to the next is the same object, so screens can tell cheaply.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from llmgw.core.engines.terms import InstallStep
from llmgw.core.events import Event
from llmgw.core.fold import by_ordinal
from llmgw.core.presence import NodeState
from llmgw.core.safe import Safe, safe
from llmgw.core.views import AboutView, EngineView, ModelView, NodeView, ReplicaView, Revision


class Link(Enum):
    """How the console stands with the control plane."""

    CONNECTING = "connecting"
    """Nothing was ever heard."""
    LIVE = "live"
    STALE = "stale"
    """The stream broke; what is shown is as old as that."""


Steps = tuple[tuple[InstallStep, float], ...]
"""When an install came to its steps, as far as that was seen, in order."""


class Replicas:
    """All replicas, by id and by the models and nodes that they belong to."""

    def __init__(self, replicas: Mapping[str, ReplicaView]) -> None:
        self.all = replicas
        self._of: dict[str, list[ReplicaView]] = {}
        self._on: dict[str, list[ReplicaView]] = {}
        for replica in sorted(replicas.values(), key=by_ordinal):
            self._of.setdefault(replica.model, []).append(replica)
            for node in {shard.node for shard in replica.shards}:
                self._on.setdefault(node, []).append(replica)

    def models(self) -> list[str]:
        """The models that have replicas, sorted."""
        return list(self._of)

    def of(self, model: str) -> tuple[ReplicaView, ...]:
        """The replicas of a model, by ordinal."""
        return tuple(self._of.get(model, ()))

    def on(self, node: str) -> tuple[ReplicaView, ...]:
        """The replicas with a shard on a node, by id."""
        return tuple(self._on.get(node, ()))


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """One moment of the cluster."""

    about: AboutView | None = None
    revision: Revision | None = None
    nodes: Mapping[str, NodeView] = field(default_factory=dict)
    models: Mapping[str, ModelView] = field(default_factory=dict)
    replicas: Replicas = field(default_factory=lambda: Replicas({}))
    engines: Mapping[str, EngineView] = field(default_factory=dict)
    """By `engine_id`."""
    steps: Mapping[str, Steps] = field(default_factory=dict)
    """Of installs that were seen to go on, by `engine_id`."""
    events: tuple[Event, ...] = ()
    """Oldest first; the console holds only the last few hundred."""
    whole: bool = False
    """A whole snapshot was seen: empty tables mean an empty cluster."""
    link: Link = Link.CONNECTING
    since: float = 0.0
    """When `link` became what it is, by the clock that ages are counted with."""
    problem: Safe = field(default_factory=lambda: safe(""))
    """Why there is no stream, while there is none."""

    def engines_of(self, node: str) -> tuple[EngineView, ...]:
        """A node's engines by name and version."""
        return tuple(view for _, view in sorted(self.engines.items()) if view.node == node)

    def is_away(self, replica: ReplicaView) -> bool:
        """Whether a node of it says nothing now: what is known of it is what was said last."""
        known = (self.nodes.get(shard.node) for shard in replica.shards)
        return any(node is not None and node.state is not NodeState.READY for node in known)
