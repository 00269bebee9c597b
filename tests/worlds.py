"""Clusters to look at, built from the vocabulary of core: fixed values, no clock, no network."""

from dataclasses import dataclass, field, replace

from llmgw.core.device_warnings import AdapterAbsent, FabricPortDown, GpuHeld, GpuProbeFailed, NoSubnetManager
from llmgw.core.engines.terms import Install, InstallStep
from llmgw.core.events import Event, EventKind
from llmgw.core.facts import EngineReport, Engines, Failure, FailureKind
from llmgw.core.inventory import (
    ByHand,
    Cpu,
    Disk,
    Fabric,
    FabricAdapter,
    Gpu,
    GpuHolder,
    Inventory,
    LinkLayer,
    NumaNode,
    PortState,
    Usage,
)
from llmgw.core.names import ModelName, NodeName, ReplicaId, ShardId
from llmgw.core.presence import NodeState
from llmgw.core.refusals import EngineInstalling, EngineMissing, NodeAway, NotEnoughMemory, Refusal
from llmgw.core.shard import ShardState
from llmgw.core.units import GIB, MIB, TIB, Bytes
from llmgw.core.views import (
    AboutView,
    EngineView,
    ModelState,
    ModelView,
    NodeView,
    Reach,
    ReplicaView,
    Revision,
    ShardView,
    Why,
)
from llmgw.core.warnings import (
    CertificateEnds,
    ClockSkew,
    DiskNearlyFull,
    DiskUnknown,
    EngineFails,
    NoAvx2,
    NodeWarning,
    OtherWarning,
    RecordedMachine,
    RouterCannotReach,
    StatedDiffers,
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
    installs: tuple[EngineView, ...] = ()
    """Engines beside those that the nodes report."""

    @property
    def engines(self) -> tuple[EngineView, ...]:
        """All engines, as a control plane makes them of what nodes report and of their installs."""
        reported = (_reported(node, one) for node in self.nodes for one in (node.engines or _NO_ENGINES).engines)
        return (*reported, *self.installs)


_NO_ENGINES = Engines(probed_at=T0, engines=())


def _reported(node: NodeView, report: EngineReport) -> EngineView:
    return EngineView(
        node=node.name,
        by_hand=report.by_hand,
        wanted=not report.by_hand,
        install=Install(
            engine=report.engine,
            version=report.version,
            variant=report.variant,
            step=InstallStep.READY,
            since=node.since,
            path=report.path,
            problem=report.problem,
            checked_at=T0 - 30,
        ),
    )


def engine_view(node: str, step: InstallStep, **more: object) -> EngineView:
    """An engine that server.yaml wants; `by_hand` and `wanted` are the view's, all else the install's."""
    of_view = {"wanted": True} | {key: more.pop(key) for key in ("by_hand", "wanted") if key in more}
    known: dict[str, object] = {"engine": "llama.cpp", "version": "b10991", "variant": "cpu", "since": T0 - 12}
    return EngineView(node=NodeName(node), install=Install(step=step, **(known | more)), **of_view)  # type: ignore[arg-type]


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
    engine: str = "llama.cpp b10991",
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
        engine=engine,
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
    skewed = ClockSkew(seconds=95.0)
    fails = EngineFails(engine=broken.engine, text=broken.problem)
    return World(
        about=about(),
        nodes=(
            node("node01"),
            node("node02", NodeState.LOST, ago=252),
            node("node03", NodeState.UNREACHABLE, ago=8),
            node("node04", warnings=(skewed, fails), engines=(broken,)),
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
    NotEnoughMemory(
        node=NodeName("node03"), need=Bytes(6 * GIB), free=Bytes(2 * GIB), total=Bytes(4 * GIB), more=Bytes(2 * GIB)
    ),
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


ARCHIVE = "llama-b10991-bin-ubuntu-x64.tar.gz"
CUDA = "llama-b10991-bin-ubuntu-cuda-13.3-x64.tar.gz"


def installing() -> World:
    """Nodes at every step of an install, one that waits for its turn, and a model that waits for them."""
    at = InstallStep
    moving = {"done": Bytes(91 * MIB), "total": Bytes(149 * MIB), "rate": 3.2 * MIB}
    installs = (
        engine_view("node01", at.READY, checked_at=T0 - 120, path="/opt/llmgw/engines/llama-server", used=True),
        engine_view("node02", at.DOWNLOAD, variant="cuda 13.3", subject=CUDA, **moving),
        engine_view("node03", at.UNPACK, subject=ARCHIVE, done=Bytes(15 * MIB), total=Bytes(16 * MIB), rate=40.0 * MIB),
        engine_view("node04", at.PROVE, subject="loads a tiny model"),
        engine_view("node05", at.RESOLVE, variant="", problem="waits for its turn to download"),
        engine_view(
            "node06", at.DOWNLOAD, engine="vllm", version="0.33.0", variant="cuda", subject="torch",
            done=Bytes(900 * MIB), total=Bytes(6400 * MIB), rate=10.5 * MIB,
        ),
        engine_view("node06", at.LIBRARIES, subject="libgomp.so.1"),
    )  # fmt: skip
    steps = {one.node: one.install for one in installs if one.install.engine == "llama.cpp"}
    doing = {name: f"llama.cpp b10991: {one.step.value}" for name, one in steps.items() if one.step is not at.READY}
    bare = (node(f"node0{number}", engines=()) for number in range(2, 7))
    has = EngineReport(engine="llama.cpp", version="b10991", variant="cpu")
    refusal = EngineInstalling(
        node=NodeName("node02"),
        engine="llama.cpp",
        version="b10991",
        step=at.DOWNLOAD,
        text=f"downloading {CUDA}, 61 %",
    )
    return World(
        about=about(),
        nodes=(node("node01", engines=(has,)), *(replace(one, installing=(doing[one.name],)) for one in bare)),
        models=(model("gemma", ModelState.DEGRADED, 1, 2, refusals=(refusal,)),),
        replicas=(replica("gemma", 0, "node01"),),
        events=(
            event(48213, 4, EventKind.ENGINE_INSTALLING, "node02", "llama.cpp b10991 (cuda 13.3), 149 MiB to download"),
        ),
        whys={"gemma": why("gemma", ModelState.DEGRADED, 2, 1, refusals=(refusal,))},
        installs=installs,
    )


HOSTILE = "\x1b[2J[bold red]\u202egnp.exe\x00"


def engines_gone_wrong() -> World:
    """What can be wrong with engines, with long words, words that mean harm, and nodes that are away."""
    at = InstallStep
    unresolved = (
        "the release API answered 403: rate limit exceeded; 60 requests an hour are free for one address, and this one "
        "has used them up; set mirror: for the engine in server.yaml, or run llmgw mirror add llama.cpp b10991 "
        "--to DIR on a host that reaches it"
    )
    broken = EngineReport(engine="llama.cpp", version="b10900", problem="libgomp.so.1 is missing", by_hand=True)
    installs = (
        engine_view(
            "node02", at.READY, variant="cuda 13.3", problem="libcudart.so.13 is missing: it was there 10 minutes ago",
            checked_at=T0 - 700, path="/var/lib/llmgw-agent/engines/llama.cpp/b10991-cuda/tree/llama-server", used=True,
            retry_at=T0 + 38, attempts=1,
        ),
        engine_view("node03", at.RESOLVE, variant="", problem=unresolved, attempts=7, retry_at=T0 + 580),
        engine_view("node04", at.DOWNLOAD, subject=ARCHIVE, done=Bytes(9 * MIB), total=Bytes(16 * MIB), rate=1.0),
        engine_view("node05", at.UNPACK, subject=HOSTILE, problem=HOSTILE, variant=HOSTILE, note=HOSTILE, attempts=1),
        engine_view("node06", at.READY, note="its driver 470 is too old for CUDA 12.4: the build for processors"),
        engine_view("node06", at.READY, version="b10800", wanted=False, used=True, checked_at=T0 - 60),
        engine_view("node06", at.READY, version="b10700", wanted=False, checked_at=T0 - 60),
    )  # fmt: skip
    return World(
        about=about(),
        nodes=(
            node("node01", engines=(broken,)),
            *(node(f"node0{number}", engines=()) for number in (2, 3, 5, 6)),
            node("node04", NodeState.LOST, ago=252, engines=()),
        ),
        events=(event(48213, 4, EventKind.ENGINE_BROKEN, "node02", "libcudart.so.13 is missing"),),
        installs=installs,
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


def rolling() -> World:
    """A model on its way to a new version of its engine, and one whose way there ended."""
    old, new = "llama.cpp b10991", "llama.cpp b11549"
    stopped = (
        f"its change to {new} stopped: qwen/1 on node02: ended by itself with exit status 1; "
        "`llmgw ctl engine retry node02` tries again, or name b10991 in engines: of server.yaml"
    )
    return World(
        about=about(),
        nodes=(node("node01"), node("node02"), node("node03")),
        models=(
            replace(model("gemma", ModelState.READY, 2, 2), roll=f"moves to {new}: 1 of 2 done"),
            replace(model("qwen", ModelState.READY, 1, 1), roll=stopped),
        ),
        replicas=(
            replica("gemma", 1, "node02", engine=old),
            replica("gemma", 2, "node01", engine=new, ago=40),
            replica("gemma", 3, "node03", ShardState.STARTING, engine=new, ago=3),
            replica("qwen", 0, "node02", engine=old),
        ),
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


def _h100(index: int, numa: int) -> Gpu:
    return Gpu(
        index=index,
        uuid=f"GPU-{index}a4c1f0e-7d52-4b0e-9f1a-3c5d2e8b610{index}",
        name="NVIDIA H100 80GB HBM3",
        memory=Bytes(81559 * MIB),
        driver="550.90.07",
        compute="9.0",
        pci=f"0000:{0x18 + 0x11 * index:02x}:00.0",
        numa=numa,
    )


def _hca(index: int, gpu: Gpu) -> FabricAdapter:
    return FabricAdapter(
        name=f"mlx5_{index}",
        link_layer=LinkLayer.INFINIBAND,
        state=PortState.ACTIVE,
        physical_state="LinkUp",
        rate="400 Gb/sec (4X NDR)",
        node_guid=f"a088:c203:0084:9e1{index}",
        port_guid=f"a288:c2ff:fe84:9e1{index}",
        gid_prefix="fe80:0000:0000:0000",
        pkey="0xffff",
        netdev=f"ibp{24 + 17 * index}s0",
        pci=f"0000:{0x19 + 0x11 * index:02x}:00.0",
        numa=gpu.numa,
        gpu=gpu.uuid,
    )


def gpu_server() -> World:
    """Eight GPUs, an adapter for each, two sockets, a router that reaches it."""
    gpus = tuple(_h100(index, index // 4) for index in range(8))
    one = node("gpu01", memory=2048 * GIB, promised=900 * GIB)
    inventory = Inventory(
        os="Ubuntu 24.04.2 LTS",
        os_id="ubuntu",
        os_version="24.04",
        kernel="6.8.0-60-generic",
        arch="x86_64",
        virtualization="none",
        cpu=Cpu(
            model="Intel(R) Xeon(R) Platinum 8480C",
            cores=224,
            features=("amx_bf16", "amx_int8", "amx_tile", "avx", "avx2", "avx512_vnni", "avx512f", "sse4_2"),
        ),
        numa=tuple(NumaNode(index=index, cores=112, memory=Bytes(1024 * GIB)) for index in range(2)),
        memory=Bytes(2048 * GIB),
        disks=(
            Disk(directory="/var/lib/llmgw-agent", uses=("state",), total=Bytes(878 * GIB), free=Bytes(610 * GIB)),
            Disk(directory="/srv/models", uses=("weights",), total=Bytes(28 * TIB), free=Bytes(9 * TIB)),
        ),
        gpus=gpus,
        adapters=tuple(_hca(index, gpu) for index, gpu in enumerate(gpus)),
        fabrics=(Fabric(name="ib-a", adapters=tuple(f"mlx5_{index}" for index in range(8))),),
        certificate_ends=T0 + 80 * 86400,
    )
    usage = Usage(
        memory_available=Bytes(1100 * GIB),
        load_average=12.5,
        gpu_used=tuple(Bytes((70 if index < 4 else 1) * 1000 * MIB) for index in range(8)),
    )
    reach = (Reach(router="router01", host="10.0.0.1", port=21007, at=T0 - 25),)
    described = replace(one, inventory=inventory, usage=usage, reach=reach, usable=Bytes(2040 * GIB))
    return World(
        about=about(exposure="direct"),
        nodes=(described, node("node02")),
        models=(model("gemma", ModelState.READY, 2, 2),),
        replicas=(replica("gemma", 0, "gpu01"), replica("gemma", 1, "gpu01", ago=890)),
        events=STORY,
    )


_TOOL = "nvidia-smi ended with exit status 9: NVIDIA-SMI has failed because it couldn't communicate with the driver"


def sick_node() -> World:
    """What can be wrong with one node, all at once; its engines were never probed."""
    port = replace(_hca(0, _h100(0, 0)), state=PortState.INIT, gpu="", gid_prefix="")
    down = replace(
        _hca(1, _h100(1, 0)), state=PortState.DOWN, physical_state="Polling", rate="10 Gb/sec (4X SDR)", gpu=""
    )
    full = Disk(directory="/srv/models", uses=("engines", "weights"), total=Bytes(2 * TIB), free=Bytes(9 * GIB))
    stale = Disk(directory="/mnt/nfs/weights", uses=("weights",), problem="its storage does not answer")
    stated = ByHand(field="memory", stated="64 GiB", measured="31.3 GiB", differs=True)
    one = node("node07", memory=64 * GIB, promised=70 * GIB)
    assert one.inventory is not None
    inventory = replace(
        one.inventory,
        virtualization="kvm",
        cpu=Cpu(model="Common KVM processor", cores=16, quota=4.0, features=("avx", "sse4_2")),
        memory_limit=Bytes(32 * GIB),
        disks=(full, stale),
        gpu_problem=_TOOL,
        adapters=(port, down),
        fabrics=(Fabric(name="ib-a", adapters=("mlx5_0", "mlx5_1", "mlx5_4")),),
        by_hand=(stated,),
        certificate_ends=T0 + 5 * 86400,
    )
    error = "connection timed out after 2 s"
    reach = (
        Reach(router="router01", host="10.0.0.7", port=21000, error=error, at=T0 - 40),
        Reach(router="router02", host="10.0.0.7", port=21000, at=T0 - 40),
    )
    warnings: tuple[NodeWarning, ...] = (
        NoAvx2(virtualization="kvm", model="Common KVM processor"),
        StatedDiffers(field="memory", stated="64 GiB", measured="31.3 GiB"),
        GpuProbeFailed(text=_TOOL),
        NoSubnetManager(adapter="mlx5_0"),
        FabricPortDown(fabric="ib-a", adapter="mlx5_1", state="DOWN (Polling)"),
        AdapterAbsent(fabric="ib-a", adapter="mlx5_4", present=("mlx5_0", "mlx5_1")),
        CertificateEnds(seconds=5 * 86400.0, node="node07"),
        DiskNearlyFull(directory="/srv/models", free=full.free, total=full.total),
        DiskUnknown(directory=stale.directory, text=stale.problem),
        ClockSkew(seconds=-34.0),
        RouterCannotReach(router="router01", address="10.0.0.7", port=21000, error=error),
    )
    sick = replace(one, inventory=inventory, engines=None, reach=reach, warnings=warnings)
    return World(
        about=about(),
        nodes=(node("node01"), sick),
        models=(model("gemma", ModelState.DEGRADED, 0, 1),),
        replicas=(
            replica("gemma", 2, "node07", ShardState.FAILED, failure=KILLED, retry_at=T0 + 38, attempts=2, ago=30),
        ),
        events=STORY,
    )


def _any_machine(text: str) -> Inventory:
    """A machine whose every word is `text`."""
    card = Gpu(index=0, uuid=text, name=text, driver=text, compute=text, pci=text, memory=Bytes(GIB), divided=True)
    part = replace(card, uuid=text + "/part", parent=text, divided=False, unified=True)
    port = FabricAdapter(
        name=text, link_layer=LinkLayer.INFINIBAND, state=PortState.DOWN, physical_state=text, rate=text,
        node_guid=text, port_guid=text, gid_prefix=text, pkey=text, netdev=text, pci=text, gpu=text,
    )  # fmt: skip
    return Inventory(
        os=text,
        os_id=text,
        os_version=text,
        kernel=text,
        arch=text,
        virtualization=text,
        cpu=Cpu(model=text, cores=1, features=(text, f"amx{text}")),
        memory=Bytes(GIB),
        disks=(
            Disk(directory=text, uses=(text,), problem=text),
            Disk(directory=text, uses=(text,), total=Bytes(GIB), free=Bytes(1)),
        ),
        gpus=(card, part),
        gpu_problem=text,
        gpu_holders=(GpuHolder(gpu=text, pid=1, command=text), GpuHolder(gpu="another", pid=2, command=text)),
        adapters=(port,),
        adapter_problem=text,
        fabrics=(Fabric(name=text, adapters=(text,)),),
        by_hand=(ByHand(field=text, stated=text, measured=text, differs=True),),
        certificate_ends=T0,
        recorded=text,
        machine_problem=text,
    )


def speaking(text: str) -> World:
    """A cluster whose every word from outside is `text`."""
    failure = replace(KILLED, text=text, last_lines=(text, text))
    warning = OtherWarning(code=text, text=text, fix=text)
    engine = EngineReport(engine=text, version=text, problem=text)
    typed = (RecordedMachine(directory=text), GpuHeld(gpu=0, pid=1, command=text, memory=None), warning)
    one = node("node01", engines=(engine,), warnings=typed)
    reach = (Reach(router=text, host=text, port=1, error=text, at=T0), Reach(router=text, host=text, port=1, at=T0))
    refusal = EngineMissing(node=NodeName(text), engine=text, has=(text,))
    m = replace(model(text, ModelState.REFUSED, 0, 1, aliases=(text,), refusals=(refusal,)), engine=text)
    return World(
        about=replace(about(), cluster=text),
        nodes=(
            replace(
                one, name=NodeName(text), address=text, agent_version=text, inventory=_any_machine(text), reach=reach
            ),
        ),
        models=(m,),
        replicas=(replica(text, 0, text, ShardState.FAILED, failure=failure),),
        events=(event(7, 60, EventKind.SHARD_FAILED, text, text, by=text, lines=(text,)),),
        whys={text: replace(why(text, ModelState.REFUSED, 1, 0, refusals=(refusal,), fits=(text,)), engine=text)},
        installs=(
            engine_view(
                text,
                InstallStep.DOWNLOAD,
                engine=text,
                version=text + "1",
                variant=text,
                subject=text,
                note=text,
                path=text,
                total=Bytes(9),
                done=Bytes(1),
            ),
        ),
    )
