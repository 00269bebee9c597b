"""What operators, consoles and routers are shown; `proto/operator/v1` has the wire form.

A view is whole: a change of a node, model or replica is the whole new view of it.
"""

from dataclasses import dataclass
from enum import Enum

from llmgw.core.engines.terms import Install
from llmgw.core.events import Event
from llmgw.core.facts import Engines, Failure
from llmgw.core.inventory import Inventory, Usage
from llmgw.core.names import ModelName, NodeName, ReplicaId, ShardId
from llmgw.core.presence import NodeState
from llmgw.core.refusals import Refusal
from llmgw.core.shard import ShardState
from llmgw.core.units import NONE, Bytes
from llmgw.core.warnings import NodeWarning


class ModelState(Enum):
    """What a client can expect of a model."""

    READY = "ready"
    DEGRADED = "degraded"
    """Fewer ready than wanted."""
    STARTING = "starting"
    REFUSED = "refused"
    """No node takes it."""
    FAILED = "failed"
    STOPPED = "stopped"
    """None wanted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reach:
    """Whether one router reaches the node, as the router said last."""

    router: str
    host: str
    port: int
    error: str = ""
    """The router's own words; empty when it reaches it."""
    at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeView:
    """A node."""

    name: NodeName
    state: NodeState
    since: float
    """When it entered this state."""
    address: str = ""
    agent_version: str = ""
    inventory: Inventory | None = None
    """None for a node that the store knows and that has not come back yet."""
    engines: Engines | None = None
    usage: Usage | None = None
    promised: Bytes
    """RAM promised to replicas."""
    usable: Bytes = NONE
    """RAM that replicas may be promised in all; 0 while the node has not described itself."""
    reach: tuple[Reach, ...] = ()
    """By router; empty while none has tried."""
    installing: tuple[str, ...] = ()
    """Engines that it should have and has not, each with the step it is at: `llama.cpp b10991: download`."""
    warnings: tuple[NodeWarning, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineView:
    """An engine on a node, at one version; its name is `engine_id`."""

    node: NodeName
    by_hand: bool = False
    """Named in agent.yaml, not installed by us: its install is `ready`, with the problem that it has."""
    wanted: bool = False
    """Server.yaml wants this version on the node."""
    install: Install
    """As the node said last; what it said nothing about yet is at `resolve`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelView:
    """A model with the counts of its replicas."""

    name: ModelName
    aliases: tuple[str, ...] = ()
    state: ModelState
    wanted: int
    ready: int
    """On nodes that are there and say so."""
    away: int = 0
    """Ready when their node was last heard: they may well serve, and nobody can say."""
    declared: int
    """What server.yaml says; differs from `wanted` after a `scale`."""
    context: int
    slots: int
    memory: Bytes
    engine: str
    refusals: tuple[Refusal, ...] = ()
    """Why a replica that is wanted has no node; empty while all are placed."""
    roll: str = ""
    """How far its change to another version of its engine is, or why that stopped, in words; empty without one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardView:
    """A shard of a replica."""

    shard: ShardId
    node: NodeName
    rank: int
    state: ShardState
    since: float
    launch: int = 0
    pid: int | None = None
    host: str = ""
    port: int | None = None
    attempts: int = 0
    retry_at: float | None = None
    failure: Failure | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaView:
    """A replica with its shards."""

    id: ReplicaId
    model: ModelName
    state: ShardState
    leaving: bool = False
    """It is being drained or stopped on purpose."""
    adopted: bool = False
    """Found running on a node, not placed by this control plane; left for the operator to decide."""
    outdated: bool = False
    """It runs with a profile that is no longer its model's, and no rolling change replaces it."""
    engine: str = ""
    """With its version, where that is known."""
    since: float
    shards: tuple[ShardView, ...] = ()


# --- watching ---------------------------------------------------------------------------------------------------


class Noun(Enum):
    """What can be watched."""

    NODES = "nodes"
    MODELS = "models"
    REPLICAS = "replicas"
    EVENTS = "events"
    ENGINES = "engines"


@dataclass(frozen=True, slots=True, kw_only=True)
class Revision:
    """A point in the cluster's history. Of two with one epoch the higher seq is later; other epochs do not compare."""

    epoch: int
    seq: int

    def __str__(self) -> str:
        return f"{self.epoch}.{self.seq}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Gone:
    """An entity that is no more."""

    noun: Noun
    name: str


Item = NodeView | ModelView | ReplicaView | EngineView | Event | Gone


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """A part of a snapshot, or some changes after it.

    `snapshot` pages replace all that the reader had, from the first to the one with `complete`; pages after that are
    changes in order. `now` is the control plane's clock, for ages.
    """

    revision: Revision
    now: float
    snapshot: bool = False
    first: bool = False
    complete: bool = False
    items: tuple[Item, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class AboutView:
    """Who answers, and how the cluster is."""

    cluster: str
    version: str
    revision: Revision
    now: float
    started: float
    settled: bool
    exposure: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Why:
    """The answer to "why is MODEL not everywhere it should be"."""

    model: ModelName
    state: ModelState
    wanted: int
    placed: int
    """Replicas that have a node."""
    memory: Bytes
    engine: str
    refusals: tuple[Refusal, ...] = ()
    """One for each node that would not take one more replica now, nearest to fitting first."""
    fits: tuple[NodeName, ...] = ()
    """The nodes that would."""
    revision: Revision
    now: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """The answer to an act: the event that it became."""

    revision: Revision
    event: Event


# --- for routers ------------------------------------------------------------------------------------------------
