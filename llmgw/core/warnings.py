"""What about a node should an operator mend? A typed warning with its numbers, in words, and what to do.

A warning never keeps a replica away; what does is a refusal. One class a warning; `code` is stable (JSON, wire, metric
label, docs anchor). `symptoms.py` finds them.
"""

from dataclasses import dataclass
from typing import ClassVar

from llmgw.core.brief import some
from llmgw.core.hosts import host_port
from llmgw.core.names import ReplicaId, ShardId
from llmgw.core.units import Bytes, age, size, sizes

_SHOWN, _PRESENT = 3, 8
"""Replicas, and adapters, that are named."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EnginesExposed:
    """Engines listen on the node's address."""

    code: ClassVar[str] = "engines_exposed"
    fix: ClassVar[str] = "exposure: loopback in server.yaml"

    def __str__(self) -> str:
        return "its engines listen on its address in plain HTTP, with a key each"


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochAhead:
    """The agent has obeyed a later control plane than this one."""

    code: ClassVar[str] = "epoch_ahead"
    obeyed: int
    ours: int

    def __str__(self) -> str:
        return f"its agent obeyed epoch {self.obeyed}, ours is {self.ours}: it will not obey us"

    @property
    def fix(self) -> str:
        return f"restart llmgwd once the time is past {self.obeyed} s since 1970: its epoch is the time of its start"


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineFails:
    """The node has an engine and saw it fail; the text is the node's own."""

    code: ClassVar[str] = "engine_broken"
    engine: str
    text: str
    fix: ClassVar[str] = ""

    def __str__(self) -> str:
        return f"{self.engine}: {self.text}"


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundRunning:
    """Replicas that were found on the node and adopted."""

    code: ClassVar[str] = "adopted"
    replicas: tuple[ReplicaId, ...]
    fix: ClassVar[str] = "llmgw ctl scale MODEL N takes them as ordinary ones"

    def __str__(self) -> str:
        return f"{some(sorted(self.replicas), _SHOWN)} found running, not placed by this control plane"


@dataclass(frozen=True, slots=True, kw_only=True)
class StrayEngines:
    """Engines of ours that run unasked."""

    code: ClassVar[str] = "stray_engine"
    shards: tuple[ShardId, ...]
    fix: ClassVar[str] = "stop it by hand on the node"

    def __str__(self) -> str:
        return f"{some(sorted(self.shards), _SHOWN)} running that was not ordered; it gets no requests"


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedMachine:
    """The node describes a recorded machine in its own place."""

    code: ClassVar[str] = "recorded_machine"
    directory: str
    fix: ClassVar[str] = "for demos and tests only: take discovery_root: out of its agent.yaml"

    def __str__(self) -> str:
        return f"it describes the machine recorded in {self.directory}, not its own"


@dataclass(frozen=True, slots=True, kw_only=True)
class NoAvx2:
    """An x86 processor without the vector extension that engines are built for."""

    code: ClassVar[str] = "no_avx2"
    virtualization: str
    model: str

    def __str__(self) -> str:
        return f"no AVX2 ({self.model or 'unknown processor'}): engines are several times slower, or die when they load"

    @property
    def fix(self) -> str:
        around, _, below = self.virtualization.partition(" on ")
        if (below or around) in ("", "none") or (not below and around.startswith("container")):
            return "this processor has none; use the node for small models, or not for engines"
        return "the VM's CPU type hides it: set it to host (Proxmox: cpu: host, libvirt: mode='host-passthrough')"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClockSkew:
    """The node's clock differs from the control plane's."""

    code: ClassVar[str] = "clock_skew"
    seconds: float
    """Positive: the node's clock is behind."""
    fix: ClassVar[str] = "set up NTP on both (chrony, systemd-timesyncd): certificates are judged by the clock"

    def __str__(self) -> str:
        way = "behind" if self.seconds > 0 else "ahead of"
        return f"its clock is {abs(self.seconds):.0f} s {way} the control plane's"


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryShrunk:
    """The node has less RAM than it once had."""

    code: ClassVar[str] = "memory_shrunk"
    now: Bytes
    registered: Bytes
    """The most that it had since it first registered."""
    fix: ClassVar[str] = (
        "look for a failed module or a shrunk VM; if it is meant, memory: in its agent.yaml ends this, and "
        "by_hand_differs remains where that is not what is measured"
    )

    def __str__(self) -> str:
        now, had = sizes(self.now, self.registered)
        return f"memory is {now}, it had {had}"


@dataclass(frozen=True, slots=True, kw_only=True)
class StatedDiffers:
    """What agent.yaml states is not what was measured; the stated value holds."""

    code: ClassVar[str] = "by_hand_differs"
    field: str
    stated: str
    measured: str
    below: bool = False
    """The stated value is the smaller one: a limit may be meant."""

    def __str__(self) -> str:
        return f"{self.field} is {self.stated} by hand, {self.measured} was measured"

    @property
    def fix(self) -> str:
        meant = "routers should reach it there" if self.field == "address" else "it is meant as a limit"
        if self.field == "address" or self.below:
            return f"leave it if {meant}; else correct {self.field}: in its agent.yaml, or take it out"
        return f"correct {self.field}: in its agent.yaml, or take it out so that the measured value holds"


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuProbeFailed:
    """The GPU tool failed, or lists fewer than there are: what is not listed is not known. The text is the tool's."""

    code: ClassVar[str] = "gpu_probe_failed"
    text: str
    fix: ClassVar[str] = "run the tool on the node; after a driver update, reboot it"

    def __str__(self) -> str:
        return f"GPUs: {self.text}"


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuGone:
    """A GPU that was there and is not any more."""

    code: ClassVar[str] = "gpu_gone"
    name: str
    uuid: str
    fix: ClassVar[str] = "look for Xid in the kernel's log and at its power and seat; a reboot may bring it back"

    def __str__(self) -> str:
        return f"{self.name or 'a GPU'} ({self.uuid or 'without uuid'}) was there and is gone"


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuHeld:
    """A process that is no engine of ours holds memory of a GPU."""

    code: ClassVar[str] = "gpu_held"
    gpu: int | None
    """Its index; None for one that is not listed."""
    pid: int
    command: str
    memory: Bytes | None

    def __str__(self) -> str:
        held = "memory" if self.memory is None else size(self.memory)
        of = "a GPU" if self.gpu is None else f"GPU {self.gpu}"
        return f"pid {self.pid} ({self.command or 'unknown'}) holds {held} of {of} and is no engine of ours"

    @property
    def fix(self) -> str:
        return f"end it (kill {self.pid}), or let it finish"


@dataclass(frozen=True, slots=True, kw_only=True)
class NoSubnetManager:
    """An InfiniBand port whose link is up and that no subnet manager has set up."""

    code: ClassVar[str] = "no_subnet_manager"
    adapter: str
    fix: ClassVar[str] = "start a subnet manager on this fabric (opensm on one of its nodes, or its switch's own)"

    def __str__(self) -> str:
        return f"{self.adapter}: link is up but no subnet manager answers"


@dataclass(frozen=True, slots=True, kw_only=True)
class FabricPortDown:
    """An adapter that agent.yaml puts on a fabric has no link."""

    code: ClassVar[str] = "fabric_port_down"
    fabric: str
    adapter: str
    state: str
    fix: ClassVar[str] = "look at its cable, its switch and `ip link`"

    def __str__(self) -> str:
        return f"{self.adapter} on fabric {self.fabric} is {self.state}"


@dataclass(frozen=True, slots=True, kw_only=True)
class AdapterAbsent:
    """An adapter that agent.yaml puts on a fabric is not there."""

    code: ClassVar[str] = "adapter_absent"
    fabric: str
    adapter: str
    present: tuple[str, ...]

    def __str__(self) -> str:
        there = f"there are {some(self.present, _PRESENT)}" if self.present else "there is none"
        return f"fabric {self.fabric} names adapter {self.adapter}, which is not there; {there}"

    @property
    def fix(self) -> str:
        return f"correct fabrics: {{{self.fabric}: […]}} in its agent.yaml, or load the adapter's driver"


@dataclass(frozen=True, slots=True, kw_only=True)
class AdaptersUnknown:
    """Adapters could not be looked at."""

    code: ClassVar[str] = "adapter_probe_failed"
    text: str
    fix: ClassVar[str] = "load the RDMA driver (modprobe mlx5_ib, irdma, …); in a container, show it /sys"

    def __str__(self) -> str:
        return f"fabric adapters are not known: {self.text}"


@dataclass(frozen=True, slots=True, kw_only=True)
class SubnetsDiffer:
    """Ports under one fabric's name are on different subnets."""

    code: ClassVar[str] = "subnets_differ"
    fabric: str
    adapter: str
    prefix: str
    other: str
    """Where the other prefix is: an adapter of this node, or another node."""
    other_prefix: str

    def __str__(self) -> str:
        return (
            f"fabric {self.fabric}: {self.adapter} has GID prefix {self.prefix}, {self.other} has "
            f"{self.other_prefix}: two subnets"
        )

    @property
    def fix(self) -> str:
        return f"give them two fabric names in fabrics: of agent.yaml, or put both on {self.fabric}'s subnet"


@dataclass(frozen=True, slots=True, kw_only=True)
class CertificateEnds:
    """The node's certificate ends soon, or has."""

    code: ClassVar[str] = "certificate_ends"
    seconds: float
    """From now."""
    node: str
    """Whose it is."""

    @property
    def fix(self) -> str:
        issue = f"llmgw pki issue {self.node} --role agent"
        return f"on the machine with the authority: {issue}; copy it to the node and restart llmgw-agent"

    def __str__(self) -> str:
        if self.seconds <= 0:
            return f"its certificate ended {age(-self.seconds)} ago"
        days = self.seconds / 86400
        return f"its certificate ends in {f'{days:.0f} days' if days >= 2 else age(self.seconds)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class DiskNearlyFull:
    """Little is left on a filesystem of ours."""

    code: ClassVar[str] = "disk_nearly_full"
    directory: str
    free: Bytes
    total: Bytes
    fix: ClassVar[str] = "free some space there, or name another directory in its agent.yaml"

    def __str__(self) -> str:
        return f"{self.directory}: {size(self.free)} of {size(self.total)} free"


@dataclass(frozen=True, slots=True, kw_only=True)
class DiskUnknown:
    """A directory of ours that does not answer."""

    code: ClassVar[str] = "disk_unknown"
    directory: str
    text: str
    fix: ClassVar[str] = "mount it, make it, or name another directory in its agent.yaml"

    def __str__(self) -> str:
        return f"{self.directory}: {self.text}"


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineUnknown:
    """Files about the machine that do not answer: what they said is from before."""

    code: ClassVar[str] = "machine_probe_failed"
    text: str
    fix: ClassVar[str] = "look in the kernel's log for a driver or a share that hangs; a reboot may be the only way"

    def __str__(self) -> str:
        return f"the machine cannot be looked at whole: {self.text}"


@dataclass(frozen=True, slots=True, kw_only=True)
class RouterCannotReach:
    """A router does not reach the node."""

    code: ClassVar[str] = "router_cannot_reach"
    router: str
    address: str
    port: int
    error: str
    fix: ClassVar[str] = "open its engine_ports to the routers, or set address: in its agent.yaml"

    def __str__(self) -> str:
        return f"router {self.router} does not reach {host_port(self.address, self.port)}: {self.error}"


@dataclass(frozen=True, slots=True, kw_only=True)
class OtherWarning:
    """A warning of a newer version: its words are known, its type is not."""

    code: str
    text: str
    fix: str = ""

    def __str__(self) -> str:
        return self.text


NodeWarning = (
    EnginesExposed
    | EpochAhead
    | EngineFails
    | FoundRunning
    | StrayEngines
    | RecordedMachine
    | NoAvx2
    | ClockSkew
    | MemoryShrunk
    | StatedDiffers
    | GpuProbeFailed
    | GpuGone
    | GpuHeld
    | NoSubnetManager
    | FabricPortDown
    | AdapterAbsent
    | AdaptersUnknown
    | SubnetsDiffer
    | CertificateEnds
    | DiskNearlyFull
    | DiskUnknown
    | RouterCannotReach
    | OtherWarning
    | MachineUnknown
)

DERIVED = ("code", "text", "fix")
"""Written on the wire beside the typed form for a reader that does not know the type; only that one reads them."""
