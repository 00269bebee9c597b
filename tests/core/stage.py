"""A cluster with agents that do what a Desired says: values only, a clock that the test turns."""

from dataclasses import dataclass, field, replace

from llmgw.core.catalog import Model
from llmgw.core.cluster import Cluster
from llmgw.core.effects import (
    Answer,
    AppendEvent,
    DropAssignment,
    Effect,
    Resolve,
    SaveAssignment,
    SaveNode,
    SaveOrdinal,
    SaveRelease,
)
from llmgw.core.engines.orders import EngineWish, Release
from llmgw.core.engines.terms import Install, Installs
from llmgw.core.events import Event, EventKind
from llmgw.core.facts import EngineReport, Engines, Failure, FailureKind, Profile, ShardReport, Want
from llmgw.core.inputs import (
    AgentBeat,
    AgentGone,
    AgentInstalls,
    AgentRegistered,
    AgentReported,
    CatalogLoaded,
    Input,
    ScaleModel,
    Tick,
)
from llmgw.core.inventory import ByHand, Cpu, Inventory, Usage
from llmgw.core.link import Accepted, Desired, Heartbeat, Refused, Registration, Report
from llmgw.core.names import ModelName, NodeName, ShardId
from llmgw.core.settings import Settings, Stored
from llmgw.core.shard import ShardState
from llmgw.core.units import GIB, MIB, Bytes
from llmgw.core.views import ModelView, NodeView, Noun, ReplicaView

T0 = 1_000_000.0
SETTINGS = Settings(cluster="test", heartbeat=2.0, lost_after=60.0, settle=15.0)


def profile(memory: int = 600 * MIB, **fields: object) -> Profile:
    return replace(Profile(engine="llama.cpp", weights="/w/m.gguf", memory=Bytes(memory)), **fields)  # type: ignore[arg-type]


def model(name: str = "gemma", replicas: int = 2, **fields: object) -> Model:
    return Model(name=ModelName(name), replicas=replicas, profile=profile(**fields))  # type: ignore[arg-type]


def inventory(memory: int = 8 * GIB) -> Inventory:
    return Inventory(
        os="Debian 12",
        kernel="6.1",
        arch="x86_64",
        cpu=Cpu(cores=2),
        memory=Bytes(memory),
        by_hand=(ByHand(field="memory", stated="8GiB"),),
    )


LLAMA = Engines(probed_at=T0, engines=(EngineReport(engine="llama.cpp", version="b10991", path="/bin/llama"),))


@dataclass
class Agent:
    """One node's agent: holds the last Desired and what it runs."""

    name: str
    machine: str = ""
    inventory: Inventory = field(default_factory=inventory)
    engines: Engines | None = LLAMA
    installs: tuple[Install, ...] = ()
    files_port: int | None = None
    session: int | None = None
    desired: Desired | None = None
    shards: dict[ShardId, ShardReport] = field(default_factory=dict)
    cluster: str = ""
    address: str = "10.0.0.1"
    behind: float = 0.0
    """Seconds that its clock is behind."""

    def registration(self, **fields: object) -> Registration:
        said = Registration(
            node=NodeName(self.name),
            machine=self.machine or f"machine-of-{self.name}",
            boot="boot",
            agent_version="0.1.0",
            address=self.address,
            inventory=self.inventory,
            engines=self.engines,
            installs=self.installs,
            files_port=self.files_port,
            shards=tuple(self.shards.values()),
            cluster=self.cluster,
        )
        return replace(said, **fields)  # type: ignore[arg-type]


class Stage:
    """Drives a Cluster as the daemon and its agents would, and keeps what it stored."""

    def __init__(
        self,
        *models: Model,
        stored: Stored | None = None,
        settings: Settings = SETTINGS,
        epoch: int = 1,
        engines: tuple[EngineWish, ...] = (),
    ) -> None:
        self.now = T0
        self.cluster = Cluster(settings, stored or Stored(), epoch=epoch, now=self.now)
        self.events: list[Event] = []
        self.answers: dict[int, Accepted | Refused] = {}
        self.agents: dict[str, Agent] = {}
        self.assignments = {one.replica: one for one in (stored.assignments if stored else ())}
        self.ordinals = dict(stored.ordinals) if stored else {}
        self.machines = dict(stored.machines) if stored else {}
        self.memories = dict(stored.memories) if stored else {}
        self.releases = {(release.engine, wanted, release.variant): release for wanted, release in _releases(stored)}
        self.resolves: list[EngineWish] = []
        self._session = 0
        self.apply(CatalogLoaded(models={one.name: one for one in models}, engines=engines))

    # --- input and time -----------------------------------------------------------------------------------------

    def apply(self, happened: Input) -> list[Effect]:
        effects = self.cluster.apply(happened, self.now)
        self._check(happened, effects)
        for effect in effects:
            match effect:
                case AppendEvent(event):
                    self.events.append(event)
                case Answer(session, answer):
                    self.answers[session] = answer
                case SaveAssignment(assignment):
                    self.assignments[assignment.replica] = assignment
                case DropAssignment(replica):
                    del self.assignments[replica]
                case SaveOrdinal(name, following):
                    self.ordinals[name] = following
                case SaveNode(node, machine, memory):
                    self.machines[node], self.memories[node] = machine, memory
                case SaveRelease(release, wanted):
                    self.releases[release.engine, wanted, release.variant] = release
                case Resolve(wish):
                    self.resolves.append(wish)
        return effects

    def _check(self, happened: Input, effects: list[Effect]) -> None:
        """Of a beat that says nothing new only its time is kept, and most of what happens is that."""
        if effects or not isinstance(happened, AgentBeat):
            self.cluster.check()

    def later(self, seconds: float, *, beating: bool = True) -> None:
        """Let time pass in steps of a beat; connected agents beat, deadlines tick."""
        end = self.now + seconds
        while self.now < end:
            self.now = min(end, self.now + SETTINGS.heartbeat)
            for agent in self.agents.values():
                if agent.session is not None and beating:
                    self.beat(agent)
            due = self.cluster.deadline()
            if due is not None and due <= self.now:
                self.apply(Tick())

    def stored(self) -> Stored:
        """What a restarted control plane would find."""
        return Stored(
            assignments=tuple(self.assignments.values()),
            ordinals=self.ordinals,
            machines=self.machines,
            memories=self.memories,
            releases=tuple((wanted, release) for (_, wanted, _), release in self.releases.items()),
            seq=self.events[-1].seq if self.events else 0,
        )

    # --- agents -------------------------------------------------------------------------------------------------

    def join(self, *agents: Agent, **fields: object) -> None:
        for agent in agents:
            self._session += 1
            agent.session = self._session
            self.agents[agent.name] = agent
            self.apply(AgentRegistered(session=agent.session, registration=agent.registration(**fields)))
            if isinstance(self.answers[agent.session], Refused):
                agent.session = None

    def beat(self, agent: Agent, *, late: float = 0.0) -> None:
        """A beat that travelled for `late` seconds."""
        assert agent.session is not None
        heartbeat = Heartbeat(at=self.now - agent.behind - late, usage=Usage(memory_available=GIB))
        self.apply(AgentBeat(session=agent.session, node=NodeName(agent.name), heartbeat=heartbeat))

    def leave(self, agent: Agent, *, clean: bool = False) -> None:
        assert agent.session is not None
        session, agent.session = agent.session, None
        self.apply(AgentGone(session=session, node=NodeName(agent.name), reason="connection lost", clean=clean))

    def report(self, agent: Agent, **fields: object) -> None:
        assert agent.session is not None
        report = replace(Report(shards=tuple(agent.shards.values())), **fields)  # type: ignore[arg-type]
        self.apply(AgentReported(session=agent.session, node=NodeName(agent.name), report=report))

    def installs(self, agent: Agent, *installs: Install) -> list[Effect]:
        """The agent says how far its engines are."""
        assert agent.session is not None
        agent.installs = installs
        said = AgentInstalls(session=agent.session, node=NodeName(agent.name), installs=Installs(installs=installs))
        return self.apply(said)

    def obey(self, *names: str) -> None:
        """Let agents make their Desired so, all of it ready, until nothing more changes."""
        agents = [
            agent
            for agent in self.agents.values()
            if agent.session is not None and agent.name in (names or self.agents)
        ]
        for _ in range(10):
            if not any([self._obey_once(agent) for agent in agents]):
                return
        raise AssertionError("orders never came to rest")

    def _obey_once(self, agent: Agent) -> bool:
        desired = self.cluster.desired(NodeName(agent.name))
        agent.desired, agent.cluster = desired, desired.cluster
        before = dict(agent.shards)
        ordered = {order.shard for order in desired.shards}
        for shard in agent.shards.keys() - ordered:
            if desired.settled:
                del agent.shards[shard]
        for order in desired.shards:
            there = agent.shards.get(order.shard)
            if order.want is not Want.RUN:
                stopped = ShardReport(shard=order.shard, state=ShardState.STOPPED, since=self.now)
                agent.shards[order.shard] = stopped
            elif there is None or there.state is ShardState.STOPPED:
                agent.shards[order.shard] = running(order.shard, self.now, order=order)
        if agent.shards != before:
            self.report(agent)
            return True
        return False

    def fails(self, agent: Agent, shard: str, kind: FailureKind, text: str, **fields: object) -> None:
        """The agent reports a failed shard."""
        failure = Failure(kind=kind, text=text, at=self.now, last_lines=("last words",), **fields)  # type: ignore[arg-type]
        there = agent.shards.get(ShardId(shard)) or running(ShardId(shard), self.now)
        agent.shards[ShardId(shard)] = replace(
            there,
            state=ShardState.FAILED,
            failure=failure,
            pid=None,
            attempts=there.attempts + 1,
            retry_at=self.now + 1,
        )
        self.report(agent)

    # --- looking ------------------------------------------------------------------------------------------------

    def scale(self, name: str, replicas: int) -> None:
        self.apply(ScaleModel(model=name, replicas=replicas, by="root"))

    def replicas(self) -> dict[str, str]:
        """Replica → its nodes, with a mark for those that leave."""
        views = [self.cluster.view(Noun.REPLICAS, name) for name in self.cluster.names(Noun.REPLICAS)]
        return {
            view.id: "+".join(shard.node for shard in view.shards) + (" leaving" if view.leaving else "")
            for view in views
            if isinstance(view, ReplicaView)
        }

    def model(self, name: str = "gemma") -> ModelView:
        view = self.cluster.view(Noun.MODELS, name)
        assert isinstance(view, ModelView)
        return view

    def node(self, name: str) -> NodeView:
        view = self.cluster.view(Noun.NODES, name)
        assert isinstance(view, NodeView)
        return view

    def kinds(self, subject: str = "") -> list[EventKind]:
        return [event.kind for event in self.events if subject in ("", event.subject)]

    def last(self, kind: EventKind) -> Event:
        return next(event for event in reversed(self.events) if event.kind is kind)

    def causes(self, event: Event) -> list[EventKind]:
        """The kinds along the walk from an event to the one that came from outside."""
        by_seq = {one.seq: one for one in self.events}
        kinds = [event.kind]
        while event.cause:
            assert event.cause < event.seq
            event = by_seq[event.cause]
            kinds.append(event.kind)
        return kinds

    def warned(self, name: str) -> list[str]:
        """What a node is warned of, in words."""
        return [str(warning) for warning in self.node(name).warnings]


def _releases(stored: Stored | None) -> tuple[tuple[str, Release], ...]:
    return stored.releases if stored else ()


def running(shard: ShardId, now: float, **fields: object) -> ShardReport:
    report = ShardReport(
        shard=shard, state=ShardState.READY, since=now, launch=1, pid=4711, host="127.0.0.1", port=21000
    )
    return replace(report, **fields)  # type: ignore[arg-type]


def three_nodes(*models: Model, **fields: object) -> Stage:
    """node01…node03, settled, everything placed and ready."""
    stage = Stage(*(models or (model(),)), **fields)  # type: ignore[arg-type]
    stage.join(Agent("node01"), Agent("node02"), Agent("node03"))
    stage.later(SETTINGS.settle)
    stage.obey()
    return stage
