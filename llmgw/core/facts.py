"""What nodes say about themselves and their shards, and what they are told to run.

These are the vocabulary of the agent link; `proto/facts/v1` has the wire form of each under the same names.
Times are seconds since 1970, sizes bytes.
"""

from dataclasses import dataclass, field
from enum import Enum

from llmgw.core.names import ModelName, NodeName, ShardId
from llmgw.core.shard import ShardState
from llmgw.core.units import NONE, Bytes


class Secret(str):
    """A string that no log, repr or table shows. Compare and encode it as the string it is."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "Secret(…)"


class Exposure(Enum):
    """Where engines listen."""

    LOOPBACK = "loopback"
    """127.0.0.1: only a router on the same machine reaches them."""
    DIRECT = "direct"
    """The node's address, plain HTTP with a key per launch; shown as a warning."""


class Want(Enum):
    """What the control plane wants of a shard."""

    RUN = "run"
    DRAIN = "drain"
    """Finish what it serves, then stop."""
    STOP = "stop"


# --- what a node is ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Cpu:
    """The processors as the kernel describes them."""

    model: str = ""
    cores: int
    """Processors that processes started here may use; 0 when it cannot be told."""
    quota: float | None = None
    """Processors' worth of time that the control group allows; None where it sets no bound."""
    features: tuple[str, ...] = ()
    """Vector extensions by the kernel's flag words, sorted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NumaNode:
    """One NUMA node of the machine."""

    index: int
    cores: int
    memory: Bytes


class GpuVendor(Enum):
    """Whose driver answers for a GPU."""

    NVIDIA = "nvidia"
    AMD = "amd"


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """One GPU, or one part of a GPU that was divided (MIG), as its driver's tool describes it."""

    vendor: GpuVendor = GpuVendor.NVIDIA
    index: int
    """The tool's own number of the card; parts have the number of their card."""
    uuid: str = ""
    """What a process names to be given this GPU; unique on the node."""
    name: str = ""
    memory: Bytes | None = None
    """None where the tool does not say. Of a part a little less than its profile's name says (`1g.18gb` has 16 GiB)."""
    unified: bool = False
    """It has no memory of its own and uses the machine's; `memory` is then the machine's, too."""
    driver: str = ""
    compute: str = ""
    """Compute capability (`9.0`), or AMD's name for it (`gfx90a`)."""
    pci: str = ""
    """Its address as sysfs writes it: `0000:17:00.0`."""
    numa: int | None = None
    divided: bool = False
    """It is split into parts and runs nothing itself."""
    parent: str = ""
    """Of a part: the uuid of its card."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuHolder:
    """A process that holds memory of a GPU and is no engine of ours."""

    gpu: str
    """The GPU's uuid."""
    pid: int
    command: str = ""
    memory: Bytes | None = None
    """None where the tool does not say."""


class LinkLayer(Enum):
    """What a fabric adapter speaks."""

    INFINIBAND = "InfiniBand"
    ETHERNET = "Ethernet"
    """RoCE or iWARP."""
    OTHER = "other"


class PortState(Enum):
    """The logical state of an adapter's port, by the kernel's words."""

    DOWN = "DOWN"
    INIT = "INIT"
    """The link is up and no subnet manager has answered."""
    ARMED = "ARMED"
    ACTIVE = "ACTIVE"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class FabricAdapter:
    """One port of an RDMA device, from /sys/class/infiniband."""

    name: str
    """The device: `mlx5_0`."""
    port: int = 1
    link_layer: LinkLayer
    state: PortState
    physical_state: str = ""
    """The kernel's word: `LinkUp`, `Disabled`, `Polling`."""
    rate: str = ""
    """The kernel's words: `100 Gb/sec (2X HDR)`; a placeholder while the port is down."""
    node_guid: str = ""
    port_guid: str = ""
    gid_prefix: str = ""
    """The first half of GID 0, `fe80:0000:0000:0000` by default everywhere: an equal one proves nothing."""
    pkey: str = ""
    netdev: str = ""
    pci: str = ""
    numa: int | None = None
    gpu: str = ""
    """The uuid of the GPU that is nearest by the PCI tree, empty when none is nearer than others."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fabric:
    """A fabric that agent.yaml puts this node on, with the adapters it names."""

    name: str
    adapters: tuple[str, ...] = ()
    """As written: `mlx5_0`, or `mlx5_0:2` for its second port."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Disk:
    """The filesystem under a directory of ours."""

    directory: str
    uses: tuple[str, ...] = ()
    """What is kept there: `state`, `engines`, `weights`."""
    total: Bytes = NONE
    free: Bytes = NONE
    """What an unprivileged process may still write."""
    problem: str = ""
    """Why nothing is known of it: it is not there, or its storage does not answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ByHand:
    """A field that agent.yaml states: the stated value holds, what was measured stands beside it."""

    field: str
    stated: str
    measured: str = ""
    """Empty where it could not be measured."""
    differs: bool = False
    """The measured value is another one, by more than measuring can explain."""
    below: bool = False
    """The stated value is the smaller one of two sizes that differ."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Inventory:
    """What the node found out about itself; sent whole at registration and when it changes."""

    os: str
    """The distribution's name for itself: `Debian GNU/Linux 12 (bookworm)`."""
    os_id: str = ""
    """`debian`, by os-release."""
    os_version: str = ""
    """`12`, by os-release."""
    kernel: str
    arch: str
    virtualization: str = ""
    """`none` on bare metal, `kvm`, `vmware`, `vm` (of which kind is not shown), …; in a container `container:docker`,
    with ` on kvm` when what is below it is virtual. Empty when it cannot be told."""
    cpu: Cpu
    numa: tuple[NumaNode, ...] = ()
    memory: Bytes
    """Total RAM that engines may count on: what agent.yaml says, else the machine's or its control group's limit."""
    memory_limit: Bytes | None = None
    """The smallest limit of the control groups around the agent, where that is below the machine's RAM."""
    disks: tuple[Disk, ...] = ()
    gpus: tuple[Gpu, ...] = ()
    gpu_problem: str = ""
    """The GPU tool's own words when its probe failed; empty GPUs then do not mean "none"."""
    gpu_holders: tuple[GpuHolder, ...] = ()
    adapters: tuple[FabricAdapter, ...] = ()
    adapter_problem: str = ""
    """Why adapters could not be looked at; empty adapters then do not mean "none"."""
    fabrics: tuple[Fabric, ...] = ()
    by_hand: tuple[ByHand, ...] = ()
    certificate_ends: float | None = None
    """When the certificate that the agent dials with ends."""
    recorded: str = ""
    """The directory of a recorded machine that is described in the place of this one; for demos and tests."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """The lean part of a heartbeat."""

    memory_available: Bytes
    load_average: float = 0.0
    """One-minute load average."""
    gpu_used: tuple[Bytes, ...] = ()
    """Memory in use of each GPU, in the inventory's order, by the last probe; 0 where the tool does not say."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineReport:
    """An engine on a node: seen to run, or with the reason why it was not."""

    engine: str
    version: str = ""
    path: str = ""
    problem: str = ""
    """Empty when it ran; otherwise the node's own words."""
    by_hand: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Engines:
    """One probe of all engines. An empty list means "has none"; a probe never made is no `Engines` at all."""

    probed_at: float
    engines: tuple[EngineReport, ...] = ()


# --- what runs --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """How a model runs. What is reserved here is what is passed to the engine."""

    engine: str
    version: str = ""
    """The version wanted; empty takes what the node has."""
    weights: str
    """Absolute path on the node."""
    context: int = 4096
    """Tokens per request; llama.cpp is given context × slots."""
    slots: int = 1
    """Requests served at once by one replica."""
    memory: Bytes
    """RAM of one replica, weights and prompt cache included."""
    threads: int = 0
    """CPU threads; 0 leaves it to the engine."""
    arguments: tuple[str, ...] = ()
    """More arguments for the engine, as written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardOrder:
    """One shard that a node should run, drain or stop."""

    shard: ShardId
    model: ModelName
    aliases: tuple[str, ...] = ()
    want: Want
    profile: Profile
    drain: float = 30.0
    """Seconds a drain may take before the engine is stopped all the same."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Desired:
    """All that one node should run. An agent keeps it on disk before it acts."""

    cluster: str
    epoch: int
    """Of the control plane's leader; a lower one than seen before is not obeyed."""
    revision: int
    settled: bool
    """Only a settled leader's omission stops a shard."""
    exposure: Exposure
    shards: tuple[ShardOrder, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """Why a shard is not running; at most one of `exit_status` and `signal` is set."""

    kind: "FailureKind"
    text: str
    """One line, the node's own words."""
    exit_status: int | None = None
    signal: int | None = None
    last_lines: tuple[str, ...] = ()
    """The engine's last lines of output, at most 40."""
    at: float


class FailureKind(Enum):
    """What went wrong with a shard."""

    REFUSED = "refused"
    """The node would not start it: the profile does not fit what is there."""
    EXITED = "exited"
    """The engine process ended by itself."""
    TIMEOUT = "timeout"
    """It did not become ready in time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardReport:
    """One shard as its node sees it."""

    shard: ShardId
    state: ShardState
    since: float
    """When it entered this state."""
    launch: int = 0
    """Counts the launches of this shard on its node; with the shard's id it names one engine process."""
    pid: int | None = None
    host: str = ""
    port: int | None = None
    key: Secret = field(default=Secret(""), repr=False)
    """The engine's API key. Goes to routers only."""
    attempts: int = 0
    """Launches in a row that failed."""
    retry_at: float | None = None
    failure: Failure | None = None
    """The last one, kept while the shard is tried again."""
    order: ShardOrder | None = None
    """What it was launched with, so that a control plane without memory can adopt it."""


# --- the agent link ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Registration:
    """The first message of an agent's stream: everything there is to know about the node."""

    node: NodeName
    machine: str
    """The machine-id: tells two machines with one name apart."""
    boot: str
    agent_version: str
    address: str
    """Of the node, on the route to the control plane."""
    inventory: Inventory
    engines: Engines | None = None
    shards: tuple[ShardReport, ...] = ()
    cluster: str = ""
    """Of the last Desired that it obeyed, with its epoch; empty and 0 when there was none."""
    epoch: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Heartbeat:
    """Sent at the interval the control plane asked for; nothing in it that did not change, but the usage."""

    at: float
    usage: Usage


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What changed on the node: all its shards, and its engines or inventory when those changed."""

    shards: tuple[ShardReport, ...] = ()
    engines: Engines | None = None
    inventory: Inventory | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Listening:
    """The answer to a TryAddress: the agent listens there for routers that try, or says why it cannot."""

    token: str
    host: str = ""
    port: int | None = None
    problem: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Leaving:
    """The agent ends the stream on purpose; the only clean end."""

    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Accepted:
    """The answer to a registration that the control plane took."""

    cluster: str
    epoch: int
    heartbeat: float
    """Seconds between heartbeats."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """The answer to a registration that the control plane did not take, or the end of a session it closes."""

    code: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TryAddress:
    """Asks an agent to listen for a while where its engines would, so that routers can try whether they reach it."""

    token: str
    """What the agent's listener says to whoever connects, so that another machine's answer is not taken for it."""
    exposure: Exposure
    seconds: float
    """How long it should listen."""


AgentMessage = Registration | Heartbeat | Report | Listening | Leaving
ControlMessage = Accepted | Refused | Desired | TryAddress
