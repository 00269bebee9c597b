"""What did a node find out about itself? The machine, its GPUs, fabric adapters and disks, and what is in use now.

`proto/facts/v1` has the wire form of each under the same names. Times are seconds since 1970, sizes bytes.
"""

from dataclasses import dataclass
from enum import Enum

from llmgw.core.units import NONE, Bytes


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
    nvidia_driver: bool = False
    """NVIDIA's kernel module is loaded, or that could not be told: without GPUs, their probe failed or found none."""
    gpu_holders: tuple[GpuHolder, ...] = ()
    adapters: tuple[FabricAdapter, ...] = ()
    adapter_problem: str = ""
    """Why adapters could not be looked at; empty adapters then do not mean "none"."""
    fabrics: tuple[Fabric, ...] = ()
    by_hand: tuple[ByHand, ...] = ()
    certificate_ends: float | None = None
    """When the certificate that the agent dials with ends."""
    machine_problem: str = ""
    """Which files about the system, the processors or the certificate did not answer; what they said is from before."""
    labels: tuple[str, ...] = ()
    """`key=value`, as agent.yaml states them, sorted."""
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


# --- reading it -------------------------------------------------------------------------------------------------


def memory_stated(inventory: Inventory) -> bool:
    """Whether its memory is what agent.yaml states."""
    return any(one.field == "memory" for one in inventory.by_hand)


def adapter_named(inventory: Inventory, named: str) -> FabricAdapter | None:
    """The port that agent.yaml means by `mlx5_0` (its first) or `mlx5_0:2`."""
    name, _, port = named.partition(":")
    ports = [one for one in inventory.adapters if one.name == name and (not port or str(one.port) == port)]
    return min(ports, key=lambda one: one.port, default=None)


def port_name(port: FabricAdapter) -> str:
    """As agent.yaml names it: `mlx5_0`, and `mlx5_0:2` for its second port."""
    return port.name if port.port == 1 else f"{port.name}:{port.port}"
