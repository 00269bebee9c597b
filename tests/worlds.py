"""Clusters to look at, built from the vocabulary of core: fixed values, no clock, no network."""

from dataclasses import dataclass, field, replace

from llmgw.core.events import Event, EventKind
from llmgw.core.facts import Cpu, EngineReport, Engines, Failure, FailureKind, Inventory, Usage
from llmgw.core.names import ModelName, NodeName, ReplicaId, ShardId
from llmgw.core.refusals import EngineMissing, NodeAway, NotEnoughMemory, Refusal
from llmgw.core.shard import ShardState
from llmgw.core.state import NodeState
from llmgw.core.units import GIB, MIB, Bytes
from llmgw.core.views import (
    AboutView,
    ModelState,
    ModelView,
    NodeView,
    NodeWarning,
    ReplicaView,
    Revision,
    ShardView,
    Why,
)

T0 = 1_767_268_800.0
"""2026-01-01 12:00:00 UTC."""

REVISION = Revision(epoch=3, seq=48213)


@dataclass(frozen=True, kw_only=True)
class World:
    """All that a control plane would show."""

    about: AboutView
    nodes: tuple[NodeView, ...] = ()
    models: tuple[ModelView, ...] = ()
    replicas: tuple[ReplicaView, ...] = ()
    events: tuple[Event, ...] = ()
    whys: dict[str, Why] = field(default_factory=dict)


def about(*, settled: bool = True, exposure: str = "loopback") -> AboutView:
    return AboutView(
        cluster="demo",
        version="0.1.0",
        revision=REVISION,
        now=T0,
        started=T0 - 7200,
        settled=settled,
        exposure=exposure,
    )


def node(
    name: str,
    state: NodeState = NodeState.READY,
    *,
    ago: float = 7000,
    memory: int = 8 * GIB,
    promised: int = 600 * MIB,
    engines: tuple[EngineReport, ...] | None = None,
    warnings: tuple[NodeWarning, ...] = (),
) -> NodeView:
    engines = (EngineReport(engine="llama.cpp", version="b10991", by_hand=True),) if engines is None else engines
    return NodeView(
        name=NodeName(name),
        state=state,
        since=T0 - ago,
        address="10.0.0." + (name[-2:].lstrip("0") if name[-2:].isdigit() else "9"),
        agent_version="0.1.0",
        inventory=Inventory(
            os="Debian 12",
            kernel="6.1.0",
            arch="x86_64",
            cpu=Cpu(model="EPYC 7313", cores=16, features=("avx2",)),
            memory=Bytes(memory),
        ),
        engines=Engines(probed_at=T0 - 30, engines=engines),
        usage=Usage(memory_available=Bytes(memory // 2), load_average=0.7),
        promised=Bytes(promised),
        usable=Bytes(memory - GIB // 2),
        warnings=warnings,
    )


def model(
    name: str,
    state: ModelState,
    ready: int,
    wanted: int,
    *,
    declared: int | None = None,
    memory: int = 600 * MIB,
    refusals: tuple[Refusal, ...] = (),
    aliases: tuple[str, ...] = (),
) -> ModelView:
    return ModelView(
        name=ModelName(name),
        aliases=aliases,
        state=state,
        wanted=wanted,
        ready=ready,
        declared=wanted if declared is None else declared,
        context=2048,
        slots=2,
        memory=Bytes(memory),
        engine="llama.cpp",
        refusals=refusals,
    )


def replica(
    model: str,
    number: int,
    node: str,
    state: ShardState = ShardState.READY,
    *,
    ago: float = 3600,
    failure: Failure | None = None,
    retry_at: float | None = None,
    attempts: int = 0,
    adopted: bool = False,
    outdated: bool = False,
) -> ReplicaView:
    running = state in (ShardState.STARTING, ShardState.READY, ShardState.DRAINING)
    shard = ShardView(
        shard=ShardId(f"{model}/{number}.0"),
        node=NodeName(node),
        rank=0,
        state=state,
        since=T0 - ago,
        launch=1,
        pid=4100 + number if running else None,
        host="127.0.0.1",
        port=21000 + number if running else None,
        attempts=attempts,
        retry_at=retry_at,
        failure=failure,
    )
    return ReplicaView(
        id=ReplicaId(f"{model}/{number}"),
        model=ModelName(model),
        state=state,
        adopted=adopted,
        outdated=outdated,
        since=T0 - ago,
        shards=(shard,),
    )


def event(seq: int, ago: float, kind: EventKind, subject: str, text: str, cause: int = 0, **more: object) -> Event:
    return replace(Event(seq=seq, at=T0 - ago, kind=kind, subject=subject, text=text, cause=cause), **more)  # type: ignore[arg-type]


KILLED = Failure(
    kind=FailureKind.EXITED,
    text="was ended by signal 9",
    signal=9,
    last_lines=(
        "load_tensors: loading model tensors",
        "llama_kv_cache: CPU KV buffer size = 1024.00 MiB",
        "ggml_backend_cpu_buffer_type_alloc_buffer: failed to allocate buffer of size 1073741824",
        "llama_init_from_model: failed to initialize the context",
    ),
    at=T0 - 30,
)

STORY = (
    event(48190, 900, EventKind.MODEL_SCALED, "gemma", "2 replicas wanted, 1 before", by="ana"),
    event(48191, 900, EventKind.REPLICA_PLACED, "gemma/1", "on node02", 48190),
    event(48192, 899, EventKind.SHARD_STARTING, "gemma/1.0", "on node02, launch 1", 48191),
    event(48195, 890, EventKind.SHARD_READY, "gemma/1.0", "on node02 at 127.0.0.1:21001", 48192),
)


def three_nodes() -> World:
    """What a demo looks like: three nodes, one model, two replicas."""
    return World(
        about=about(),
        nodes=(node("node01"), node("node02"), node("node03", promised=0)),
        models=(model("gemma", ModelState.READY, 2, 2, declared=1, aliases=("gemma-270m",)),),
        replicas=(replica("gemma", 0, "node01"), replica("gemma", 1, "node02", ago=890)),
        events=STORY,
        whys={"gemma": why("gemma", ModelState.READY, 2, 2, fits=("node03",))},
    )


def one_node_lost() -> World:
    """A node away for long, one away for a moment, one with a broken engine; figures stay."""
    broken = EngineReport(engine="llama.cpp", problem="libgomp.so.1 is missing", by_hand=True)
    skewed = NodeWarning(code="clock", text="its clock is 95 s behind", fix="set up NTP on node04")
    return World(
        about=about(),
        nodes=(
            node("node01"),
            node("node02", NodeState.LOST, ago=252),
            node("node03", NodeState.UNREACHABLE, ago=8),
            node("node04", warnings=(skewed,), engines=(broken,)),
            replace(
                node("node05", NodeState.LOST, ago=7200), inventory=None, engines=None, usage=None, usable=Bytes(0)
            ),
        ),
        models=(model("gemma", ModelState.DEGRADED, 1, 2),),
        replicas=(
            replica("gemma", 0, "node01"),
            replica("gemma", 1, "node02"),
            replica("gemma", 2, "node03", ShardState.FAILED, failure=KILLED, retry_at=T0 + 38, attempts=2, ago=30),
        ),
        events=(
            *STORY,
            event(48200, 252, EventKind.NODE_LOST, "node02", "silent for 60 s; 1 replica is placed elsewhere"),
            event(48201, 252, EventKind.REPLICA_PLACED, "gemma/2", "on node03, in place of gemma/1", 48200),
            event(48202, 80, EventKind.SHARD_STARTING, "gemma/2.0", "on node03, launch 1", 48201),
            event(
                48205, 30, EventKind.SHARD_FAILED, "gemma/2.0", "was ended by signal 9", 48202, lines=KILLED.last_lines
            ),
        ),
    )


REFUSALS: tuple[Refusal, ...] = (
    NotEnoughMemory(node=NodeName("node01"), need=Bytes(6 * GIB), free=Bytes(4 * GIB), total=Bytes(8 * GIB)),
    NodeAway(node=NodeName("node02"), lost=True, seconds=252),
    NotEnoughMemory(node=NodeName("node03"), need=Bytes(6 * GIB), free=Bytes(2 * GIB), total=Bytes(4 * GIB)),
    EngineMissing(node=NodeName("node04"), engine="llama.cpp", has=()),
)


def nothing_fits() -> World:
    """Every node refuses a model, each with a reason of its own."""
    refused = model("llama4", ModelState.REFUSED, 0, 1, memory=6 * GIB, refusals=REFUSALS)
    return World(
        about=about(),
        nodes=(node("node01"), node("node02", NodeState.LOST, ago=252), node("node03"), node("node04", engines=())),
        models=(model("gemma", ModelState.STOPPED, 0, 0), refused),
        events=(event(48213, 4, EventKind.PLACE_REFUSED, "llama4/0", "4 nodes: 2 not now, 2 never"),),
        whys={"llama4": why("llama4", ModelState.REFUSED, 1, 0, refusals=REFUSALS, memory=6 * GIB)},
    )


def many_states() -> World:
    """Models in every state, with replicas in every state."""
    return World(
        about=about(),
        nodes=(node("node01"), node("node02"), node("node03")),
        models=(
            model("embed", ModelState.STARTING, 0, 2),
            model("gemma", ModelState.DEGRADED, 1, 3),
            model("llama4", ModelState.REFUSED, 0, 1, refusals=REFUSALS, memory=6 * GIB),
            model("qwen3-0.6b-instruct", ModelState.READY, 1, 1, aliases=("qwen",)),
            model("whisper", ModelState.STOPPED, 0, 0),
        ),
        replicas=(
            replica("embed", 0, "node01", ShardState.STARTING, ago=12),
            replica("embed", 1, "node02", ShardState.PLACED, ago=2),
            replica("gemma", 9, "node01"),
            replica("gemma", 10, "node02", ShardState.FAILED, failure=KILLED, retry_at=T0 + 38, attempts=2, ago=30),
            replica("gemma", 11, "node03", ShardState.DRAINING, ago=5),
            replica("qwen3-0.6b-instruct", 0, "node03", outdated=True),
            replica("removed", 4, "node03", adopted=True),
        ),
        events=STORY,
    )


def empty() -> World:
    """A control plane that nobody has joined, without models."""
    return World(about=about())


def why(
    name: str,
    state: ModelState,
    wanted: int,
    placed: int,
    *,
    refusals: tuple[Refusal, ...] = (),
    fits: tuple[str, ...] = (),
    memory: int = 600 * MIB,
) -> Why:
    return Why(
        model=ModelName(name),
        state=state,
        wanted=wanted,
        placed=placed,
        memory=Bytes(memory),
        engine="llama.cpp",
        refusals=refusals,
        fits=tuple(NodeName(node) for node in fits),
        revision=REVISION,
        now=T0,
    )


def speaking(text: str) -> World:
    """A cluster whose every word from outside is `text`."""
    failure = replace(KILLED, text=text, last_lines=(text, text))
    warning = NodeWarning(code=text, text=text, fix=text)
    engine = EngineReport(engine=text, version=text, problem=text)
    one = node("node01", engines=(engine,), warnings=(warning,))
    assert one.inventory is not None
    inventory = replace(one.inventory, os=text, arch=text, cpu=Cpu(model=text, cores=1), gpu_problem=text)
    refusal = EngineMissing(node=NodeName(text), engine=text, has=(text,))
    m = replace(model(text, ModelState.REFUSED, 0, 1, aliases=(text,), refusals=(refusal,)), engine=text)
    return World(
        about=replace(about(), cluster=text),
        nodes=(replace(one, name=NodeName(text), address=text, agent_version=text, inventory=inventory),),
        models=(m,),
        replicas=(replica(text, 0, text, ShardState.FAILED, failure=failure),),
        events=(event(7, 60, EventKind.SHARD_FAILED, text, text, by=text, lines=(text,)),),
        whys={text: replace(why(text, ModelState.REFUSED, 1, 0, refusals=(refusal,), fits=(text,)), engine=text)},
    )
