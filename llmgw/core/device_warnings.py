"""What about GPUs and fabric adapters should an operator mend? Typed warnings; `warnings.py` has the others and all."""

from dataclasses import dataclass
from typing import ClassVar

from llmgw.core.brief import some
from llmgw.core.units import Bytes, size

_PRESENT = 8
"""Adapters that are named."""


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
