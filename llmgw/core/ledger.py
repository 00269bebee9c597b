"""What the control plane knows, with its indices, and what one input touched. It decides nothing.

`cluster.py` opens a turn for each input; the modules that handle it write here, and what they wrote becomes effects.
"""

import copy
from collections.abc import Mapping
from dataclasses import dataclass, field

from llmgw.core.catalog import Model
from llmgw.core.changes import lasting
from llmgw.core.deadlines import Deadlines
from llmgw.core.due import Due, NodeDue, SettleDue, WarnDue
from llmgw.core.effects import AppendEvent, Assignment, DropAssignment, Effect, SaveAssignment, SaveOrdinal
from llmgw.core.engine_book import EngineBook
from llmgw.core.engines.orders import EngineWish
from llmgw.core.engines.terms import Install
from llmgw.core.engines.turns import Turns
from llmgw.core.events import Event, EventKind
from llmgw.core.facts import ShardReport
from llmgw.core.inventory import Inventory
from llmgw.core.liveness import beat, next_change
from llmgw.core.names import ModelName, NodeName, ReplicaId, ShardId, shard_id
from llmgw.core.presence import NodeState
from llmgw.core.reach import Reachability
from llmgw.core.refusals import Refusal
from llmgw.core.roll import Roll
from llmgw.core.settings import Settings, Stored
from llmgw.core.state import Node, Replica, Shard
from llmgw.core.subnets import Subnets
from llmgw.core.symptoms import certificate_due
from llmgw.core.telling import Telling
from llmgw.core.units import NONE, Bytes
from llmgw.core.views import Revision

_SAY_AGAIN, _MOST_NEWS = 600.0, 1_000


Reason = tuple[NodeName, str]
"""That a node takes no more of a model, and the code of its refusal."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodesWords:
    """A node would not start a model."""

    text: str
    until: float
    """It is not asked again before."""
    times: int
    """How often in a row."""


@dataclass(slots=True)
class Turn:
    """What one input touched."""

    now: float
    effects: list[Effect] = field(default_factory=list)
    nodes: set[NodeName] = field(default_factory=set)
    models: set[ModelName] = field(default_factory=set)
    replicas: set[ReplicaId] = field(default_factory=set)
    engines: set[NodeName] = field(default_factory=set)
    """Nodes of which engines may be others, or at another step."""
    progress: set[NodeName] = field(default_factory=set)
    """Nodes of which engines are further by some bytes, and nothing else."""
    orders: set[NodeName] = field(default_factory=set)
    """Nodes whose orders may be others, though nothing else of them is."""
    reworded: set[ModelName] = field(default_factory=set)
    """Models of which only the words of refusals are others."""
    asked: set[ModelName] = field(default_factory=set)
    """Models that an operator acted on: they are reconciled even while unsettled."""
    first_event: int = 0
    settled: bool = False
    """The settle time ended in it."""
    faults: list[Exception] = field(default_factory=list)
    """Of ours, met on the way."""
    coming: dict[tuple[NodeName, str], tuple[Node, Install | None]] = field(default_factory=dict)
    """Installs that were looked up in it, by node and engine, with the record of the node that they are of."""
    because: dict[str, int] = field(default_factory=dict)
    """The event of this turn that led to those about a model, where it is not the first."""


class Ledger:
    """All nodes, models and replicas."""

    def __init__(self, settings: Settings, stored: Stored, *, epoch: int, now: float) -> None:
        self.settings = settings
        self.epoch, self.change = epoch, 0
        self.started, self.settled = now, False
        self.declared: dict[ModelName, Model] = {}
        self.models: dict[ModelName, Model] = {}
        self.names: dict[str, ModelName] = {}
        """Models by name and by alias."""
        self.loaded = False
        """Whether server.yaml was taken once."""
        self.overlays = {overlay.model: overlay for overlay in stored.overlays}
        self.nodes: dict[NodeName, Node] = {}
        self.replicas: dict[ReplicaId, Replica] = {}
        self.strays: dict[NodeName, dict[ShardId, ShardReport]] = {}
        """Engines whose id belongs to a replica elsewhere: shown and kept running, never routed to."""
        self._news: dict[tuple[str, str], float] = {}
        self.words: dict[tuple[ModelName, NodeName], NodesWords] = {}
        self.refusals: dict[ModelName, tuple[Refusal, ...]] = {}
        """Of models that have fewer replicas placed than wanted."""
        self.reasons: dict[ModelName, frozenset[Reason]] = {}
        """What was told of these."""
        self.rolls: dict[ModelName, Roll] = {}
        """Rolling changes that are under way, or stopped."""
        self.behind: set[ModelName] = set()
        """Models of which replicas are to be replaced by such a change."""
        self.reach = Reachability()
        self.tellings: dict[NodeName, Telling] = {}
        """Of nodes that changed."""
        self.book = EngineBook(turns=Turns(most=settings.downloads))
        self.deadlines = Deadlines[Due]()
        self.deadlines.set(SettleDue(), now + settings.settle)
        self.turn = Turn(now)
        self._ordinals = dict(stored.ordinals)
        self._seq = stored.seq
        self._causes: dict[str, int] = {}
        self._on: dict[NodeName, set[ReplicaId]] = {}
        self._of: dict[ModelName, set[ReplicaId]] = {}
        self._promised: dict[NodeName, Bytes] = {}
        self.subnets = Subnets()
        for name, machine in stored.machines.items():
            memory = stored.memories.get(name, NONE)
            self.put_node(
                Node(name=name, machine=machine, state=NodeState.UNREACHABLE, since=now, heard=now, registered=memory)
            )
        for assignment in stored.assignments:
            self._recall(assignment)

    # --- looking ------------------------------------------------------------------------------------------------

    @property
    def now(self) -> float:
        """The time of the input being handled."""
        return self.turn.now

    @property
    def wishes(self) -> Mapping[str, EngineWish]:
        """The engines that nodes should have, by name."""
        return self.book.wishes

    @property
    def revision(self) -> Revision:
        """Grows with every change that is published."""
        return Revision(epoch=self.epoch, seq=self.change)

    @property
    def beat(self) -> float:
        """Seconds between heartbeats, stretched for a large fleet."""
        return beat(self.settings.heartbeat, len(self.nodes))

    @property
    def none_lost_before(self) -> float:
        """After a start every node has the settle time to come back."""
        return self.started + self.settings.settle

    def node_state(self, name: NodeName) -> NodeState:
        """The state of a node; one that nobody ever saw is lost."""
        node = self.nodes.get(name)
        return node.state if node else NodeState.LOST

    def replicas_of(self, model: ModelName) -> list[Replica]:
        """All replicas of a model, by id, those that leave too."""
        return [self.replicas[replica] for replica in sorted(self._of.get(model, ()))]

    def replicas_on(self, node: NodeName) -> list[Replica]:
        """All replicas with a shard on a node, by id, those that leave too."""
        return [self.replicas[replica] for replica in sorted(self._on.get(node, ()))]

    @property
    def short_of_room(self) -> set[ModelName]:
        """Models that may wait for room on some node."""
        return self.refusals.keys() | self.behind

    def promised(self, node: NodeName) -> Bytes:
        """RAM of the replicas on a node, those that leave and strays too: it is theirs until they are gone."""
        return self._promised.get(node, NONE)

    # --- writing ------------------------------------------------------------------------------------------------

    def do(self, effect: Effect) -> None:
        """Ask the shell to carry this out."""
        self.turn.effects.append(effect)

    def emit(
        self,
        kind: EventKind,
        subject: str,
        text: str,
        *,
        by: str = "",
        lines: tuple[str, ...] = (),
        cause: int | None = None,
    ) -> Event:
        """Record an event.

        What somebody asked for (`by`) came from outside; else its cause is `cause`, the one that `caused` named, or
        the first event of this turn.
        """
        self._seq += 1
        if by:
            cause = 0
        elif cause is None:
            cause = self._causes.get(subject, self.turn.because.get(subject, self.turn.first_event))
        event = Event(
            seq=self._seq, at=self.now, kind=kind, subject=subject, text=text, cause=cause, by=by, lines=lines
        )
        self.turn.first_event = self.turn.first_event or event.seq
        self.do(AppendEvent(event))
        return event

    def is_news(self, subject: str, what: str) -> bool:
        """Whether this was not said for ten minutes; for what others can make happen as often as they like."""
        if self.now - self._news.get((subject, what), float("-inf")) < _SAY_AGAIN:
            return False
        self._news = {key: at for key, at in self._news.items() if self.now - at < _SAY_AGAIN}
        if len(self._news) >= _MOST_NEWS:
            return False
        self._news[subject, what] = self.now
        return True

    def caused(self, subject: str, event: Event) -> None:
        """Let `event` be the cause of events about `subject`, a replica or a shard, until another is."""
        self._causes[subject] = event.seq

    def put_node(self, node: Node) -> None:
        """Replace or add a node's record."""
        before = self.nodes.get(node.name)
        self.nodes[node.name] = node
        self.watch_node(node)
        self.turn.nodes.add(node.name)
        if before is None or before.inventory is not node.inventory:
            self.watch_warnings(node)
            self.turn.nodes |= self.subnets.put(node.name, node.inventory)
        if before is None or _placement_differs(before, node):
            self.turn.models.update(self.models)
            self.turn.models.update(replica.model for replica in self.replicas_on(node.name))
        if before is None or _supply_differs(before, node):
            self.turn.engines.add(node.name)
        if before is None or _found(before) != _found(node):  # whether they are outdated may be another now
            self.turn.replicas.update(replica.id for replica in self.replicas_on(node.name))

    def watch_node(self, node: Node) -> None:
        """Be woken when the node's state changes for want of news."""
        due = next_change(node, beat=self.beat, lost_after=self.settings.lost_after, not_before=self.none_lost_before)
        self.deadlines.set(NodeDue(node.name), due)

    def watch_warnings(self, node: Node) -> None:
        """Be woken when its warnings say something else by the time alone."""
        self.deadlines.set(WarnDue(node.name), certificate_due(node.inventory, self.now))

    def put_replica(self, replica: Replica, *, save: bool = False) -> None:
        """Replace or add a replica's record; `save` when what is stored of it changed.

        Its model, nodes and profile never change.
        """
        if replica.id not in self.replicas:
            self._of.setdefault(replica.model, set()).add(replica.id)
            for node in replica.nodes:
                self._on.setdefault(node, set()).add(replica.id)
                self._promise(node, replica.profile.memory)
        self.replicas[replica.id] = replica
        self._touch(replica)
        if save:
            self.do(SaveAssignment(_assignment(replica)))

    def drop_replica(self, replica: Replica) -> None:
        """Forget a replica whose shards are gone."""
        del self.replicas[replica.id]
        self._of[replica.model].discard(replica.id)
        for shard in replica.shards:
            self._on[shard.node].discard(replica.id)
            self._promise(shard.node, -replica.profile.memory)
            self._causes.pop(shard.id, None)
        self._causes.pop(replica.id, None)
        self._touch(replica)
        self.turn.models |= self.short_of_room  # what it held is free now
        self.do(DropAssignment(replica.id))

    def put_stray(self, node: NodeName, report: ShardReport) -> None:
        """Replace or add an engine that runs unasked; its memory is in use."""
        self.drop_stray(node, report.shard)
        self.strays.setdefault(node, {})[report.shard] = report
        self._promise(node, _memory(report))
        self.turn.nodes.add(node)

    def drop_stray(self, node: NodeName, shard: ShardId) -> None:
        """Forget one, if it is there."""
        report = self.strays.get(node, {}).pop(shard, None)
        if report is not None:
            self._promise(node, -_memory(report))
            self.turn.nodes.add(node)

    def next_ordinal(self, model: ModelName) -> int:
        """Return an ordinal that no replica of this model ever had, and reserve it."""
        ordinal = self._ordinals.get(model, 0)
        self.reserve_ordinal(model, ordinal)
        return ordinal

    def reserve_ordinal(self, model: ModelName, ordinal: int) -> None:
        """Never give out this ordinal or a lower one again."""
        if ordinal >= self._ordinals.get(model, 0):
            self._ordinals[model] = ordinal + 1
            self.do(SaveOrdinal(model, ordinal + 1))

    def copy(self) -> "Ledger":
        """An independent ledger: records are frozen and shared, what holds them is copied."""
        twin = copy.copy(self)
        for name in (
            "declared",
            "models",
            "names",
            "overlays",
            "nodes",
            "replicas",
            "_news",
            "words",
            "tellings",
            "refusals",
            "reasons",
            "rolls",
        ):
            setattr(twin, name, dict(getattr(self, name)))
        twin.behind = set(self.behind)
        twin.strays = {node: dict(strays) for node, strays in self.strays.items()}
        twin.deadlines, twin.reach = self.deadlines.copy(), self.reach.copy()
        twin.subnets, twin.book = self.subnets.copy(), self.book.copy()
        twin.turn = Turn(self.turn.now)
        twin._ordinals, twin._causes, twin._promised = dict(self._ordinals), dict(self._causes), dict(self._promised)
        twin._on = {node: set(replicas) for node, replicas in self._on.items()}
        twin._of = {model: set(replicas) for model, replicas in self._of.items()}
        return twin

    def _promise(self, node: NodeName, memory: int) -> None:
        self._promised[node] = Bytes(self._promised.get(node, NONE) + memory)

    def _touch(self, replica: Replica) -> None:
        self.turn.replicas.add(replica.id)
        self.turn.models.add(replica.model)
        self.turn.nodes.update(replica.nodes)

    def _recall(self, stored: Assignment) -> None:
        shards = tuple(
            Shard(id=shard_id(stored.replica, rank), node=node, rank=rank, since=self.now)
            for rank, node in enumerate(stored.nodes)
        )
        self.put_replica(
            Replica(
                id=stored.replica,
                model=stored.model,
                profile=stored.profile,
                want=stored.want,
                placed_at=stored.placed_at,
                adopted=stored.adopted,
                shards=shards,
            )
        )
        ordinal = int(stored.replica.rpartition("/")[2])
        self._ordinals[stored.model] = max(self._ordinals.get(stored.model, 0), ordinal + 1)


def _placement_differs(before: Node, after: Node) -> bool:
    """Whether placement may decide otherwise; usage and the time of the last beat do not count."""
    if (before.state, before.engines) != (after.state, after.engines):
        return True
    return before.inventory is not after.inventory and _lasting(before.inventory) != _lasting(after.inventory)


def _supply_differs(before: Node, after: Node) -> bool:
    """Whether what it should install, may give to others or shows of its engines may be another; no beat does that."""
    about = (before.state, before.since, before.address, before.files_port)
    return (
        about != (after.state, after.since, after.address, after.files_port)
        or before.inventory is not after.inventory
        or before.engines is not after.engines
        or before.installs is not after.installs
    )


def _found(node: Node) -> object:
    """The engines that it has, without when it looked."""
    return node.engines.engines if node.engines else None


def _lasting(inventory: Inventory | None) -> Inventory | None:
    return lasting(inventory) if inventory else None


def _memory(stray: ShardReport) -> int:
    return stray.order.profile.memory if stray.order else 0


def _assignment(replica: Replica) -> Assignment:
    return Assignment(
        replica=replica.id,
        model=replica.model,
        nodes=replica.nodes,
        want=replica.want,
        profile=replica.profile,
        placed_at=replica.placed_at,
        adopted=replica.adopted,
    )
