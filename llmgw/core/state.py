"""What the control plane knows of nodes and replicas. Frozen records; the ledger holds them."""

from dataclasses import dataclass

from llmgw.core.engines.terms import Install
from llmgw.core.facts import Engines, Profile, ShardReport, Want
from llmgw.core.inventory import Gpu, Inventory, Usage
from llmgw.core.names import ModelName, NodeName, ReplicaId, ShardId
from llmgw.core.presence import NodeState
from llmgw.core.shard import ShardState, combined
from llmgw.core.skew import Beat
from llmgw.core.units import NONE, Bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A machine with an agent, there or away. What it said stays known while it is away."""

    name: NodeName
    machine: str
    """The machine-id; another machine with this name is refused."""
    state: NodeState
    since: float
    session: int | None = None
    """The stream it is on; None while it has none."""
    heard: float
    """When its last message came."""
    address: str = ""
    agent_version: str = ""
    boot: str = ""
    """The id of the machine's start that its agent last registered in."""
    epoch: int = 0
    """The highest epoch that its agent obeyed; above ours it will not obey us."""
    inventory: Inventory | None = None
    engines: Engines | None = None
    installs: tuple[Install, ...] = ()
    """As its agent said last, of this session."""
    files_port: int | None = None
    usage: Usage | None = None
    registered: Bytes = NONE
    """The most RAM that it registered with, or what was stated by hand since."""
    gpus: tuple[Gpu, ...] = ()
    """As it listed them last, while their probe fails, too."""
    gone_gpus: tuple[Gpu, ...] = ()
    """Cards that were there and are not any more."""
    beats: tuple[Beat, ...] = ()
    """Its last beats on this stream, by which its clock is judged."""
    skew: float = 0.0
    """Seconds that its clock is behind ours, as shown; 0 while it is as good as ours."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shard:
    """A replica's engine process on one node, as last reported."""

    id: ShardId
    node: NodeName
    rank: int
    since: float
    report: ShardReport | None = None
    """None until its node said something about it since this control plane started."""

    @property
    def state(self) -> ShardState:
        """`placed` until its node says otherwise."""
        return self.report.state if self.report else ShardState.PLACED


@dataclass(frozen=True, slots=True, kw_only=True)
class Replica:
    """One running copy of a model."""

    id: ReplicaId
    model: ModelName
    profile: Profile
    want: Want
    placed_at: float
    adopted: bool = False
    """Found on a node; never removed without an operator's word."""
    was_ready: bool = False
    """It was ready once, as far as this control plane knows."""
    shards: tuple[Shard, ...]

    @property
    def state(self) -> ShardState:
        """Combined from its shards."""
        return combined(shard.state for shard in self.shards)

    @property
    def nodes(self) -> tuple[NodeName, ...]:
        """Where its shards are, by rank."""
        return tuple(shard.node for shard in self.shards)
