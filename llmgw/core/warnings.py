"""What about a node should an operator mend? A typed warning with its numbers, in words, and what to do.

A warning never keeps a replica away; what does is a refusal. One class a warning; `code` is stable (JSON, wire, metric
label, docs anchor). `symptoms.py` finds them. Those about
GPUs and fabric adapters are in `device_warnings.py`.
"""

from dataclasses import dataclass
from typing import ClassVar

from llmgw.core.brief import some
from llmgw.core.device_warnings import (
    AdapterAbsent,
    AdaptersUnknown,
    FabricPortDown,
    GpuGone,
    GpuHeld,
    GpuProbeFailed,
    NoSubnetManager,
    SubnetsDiffer,
)
from llmgw.core.hosts import host_port
from llmgw.core.names import ReplicaId, ShardId
from llmgw.core.units import Bytes, age, size, sizes

_SHOWN = 3
"""Replicas that are named."""


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
