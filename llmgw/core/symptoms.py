"""What is wrong with a node, by its own description? Finds the warnings that its inventory shows."""

from collections.abc import Iterator

from llmgw.core.device_warnings import (
    AdapterAbsent,
    AdaptersUnknown,
    FabricPortDown,
    GpuHeld,
    GpuProbeFailed,
    NoSubnetManager,
    SubnetsDiffer,
)
from llmgw.core.inventory import (
    Disk,
    Fabric,
    FabricAdapter,
    Inventory,
    LinkLayer,
    PortState,
    adapter_named,
    memory_stated,
    port_name,
)
from llmgw.core.units import GIB, Bytes
from llmgw.core.warnings import (
    CertificateEnds,
    DiskNearlyFull,
    DiskUnknown,
    MachineUnknown,
    MemoryShrunk,
    NoAvx2,
    NodeWarning,
    RecordedMachine,
    StatedDiffers,
)

DEFAULT_PREFIX = "fe80:0000:0000:0000"
"""OpenSM's default subnet prefix (its `subnet_prefix 0xfe80000000000000`): nearly every fabric has it."""

NEARLY_FULL, NEARLY_FULL_BELOW = 0.05, Bytes(50 * GIB)
"""A disk is nearly full when less than this share is free, and less than so much."""

_SHRUNK = 0.98
"""Below this share of what it had a node has lost memory; the share that a kernel keeps differs by less."""

CERTIFICATE_SHORT = 14 * 86400.0
"""Seconds before its end at which a certificate is a warning."""

_CERTIFICATE_STEPS = (CERTIFICATE_SHORT, 7 * 86400.0, 3 * 86400.0, 86400.0, 0.0)
"""Seconds before its end at which it is said anew."""

_PASSED = 1.0
"""Seconds after a step at which it has been passed, whatever became of fractions."""


def of_inventory(inventory: Inventory, now: float, node: str = "NODE") -> Iterator[NodeWarning]:
    """What the description of a node, of this name where it is known, shows."""
    if inventory.recorded:
        yield RecordedMachine(directory=inventory.recorded)
    if inventory.machine_problem:
        yield MachineUnknown(text=inventory.machine_problem)
    if lacks_avx2(inventory):
        yield NoAvx2(virtualization=inventory.virtualization, model=inventory.cpu.model)
    for one in inventory.by_hand:
        if one.differs:
            yield StatedDiffers(field=one.field, stated=one.stated, measured=one.measured, below=one.below)
    yield from _of_gpus(inventory)
    yield from _of_fabrics(inventory)
    ends = inventory.certificate_ends
    if ends is not None and ends - now < CERTIFICATE_SHORT:
        yield CertificateEnds(seconds=ends - now, node=node)
    for disk in inventory.disks:
        if disk.problem:
            yield DiskUnknown(directory=disk.directory, text=disk.problem)
        elif nearly_full(disk):
            yield DiskNearlyFull(directory=disk.directory, free=disk.free, total=disk.total)


def shrunk(inventory: Inventory, registered: Bytes) -> MemoryShrunk | None:
    """The warning that it has less memory than it should; what is stated by hand is meant."""
    if memory_stated(inventory) or inventory.memory >= _SHRUNK * registered:
        return None
    return MemoryShrunk(now=inventory.memory, registered=registered)


def certificate_due(inventory: Inventory | None, now: float) -> float | None:
    """When the warning about its certificate says something else next; None when it does not."""
    if inventory is None or inventory.certificate_ends is None:
        return None
    steps = (inventory.certificate_ends - before + _PASSED for before in _CERTIFICATE_STEPS)
    return min((at for at in steps if at > now), default=None)


def _of_gpus(inventory: Inventory) -> Iterator[NodeWarning]:
    if inventory.gpu_problem:
        yield GpuProbeFailed(text=inventory.gpu_problem)
    index = {gpu.uuid: gpu.index for gpu in inventory.gpus}
    for holder in inventory.gpu_holders:
        yield GpuHeld(gpu=index.get(holder.gpu), pid=holder.pid, command=holder.command, memory=holder.memory)


def lacks_avx2(inventory: Inventory) -> bool:
    """Whether this is an x86 machine whose processor shows no AVX2; one whose flags are unknown is not called so."""
    features = inventory.cpu.features
    return inventory.arch in ("x86_64", "amd64") and bool(features) and "avx2" not in features


def nearly_full(disk: Disk) -> bool:
    """Whether little is left, by share and by size: 5 % of a large array is plenty."""
    return disk.total > 0 and disk.free < min(NEARLY_FULL * disk.total, NEARLY_FULL_BELOW)


def prefixes(inventory: Inventory) -> dict[str, list[tuple[str, str]]]:
    """By fabric, the InfiniBand adapters with a GID prefix that says something: (adapter, prefix)."""
    found: dict[str, list[tuple[str, str]]] = {}
    for fabric in inventory.fabrics:
        for named in fabric.adapters:
            port = adapter_named(inventory, named)
            if port is not None and _tells_subnet(port):
                found.setdefault(fabric.name, []).append((named, port.gid_prefix))
    return found


def _of_fabrics(inventory: Inventory) -> Iterator[NodeWarning]:
    if inventory.adapter_problem:
        yield AdaptersUnknown(text=inventory.adapter_problem)
    for port in inventory.adapters:
        if port.link_layer is LinkLayer.INFINIBAND and port.state is PortState.INIT:
            yield NoSubnetManager(adapter=port_name(port))
    subnets = prefixes(inventory)
    for fabric in inventory.fabrics:
        yield from _of_fabric(inventory, fabric, subnets.get(fabric.name, []))


def _of_fabric(inventory: Inventory, fabric: Fabric, ports: list[tuple[str, str]]) -> Iterator[NodeWarning]:
    """`ports`: its adapters with their prefixes, as `prefixes` has them."""
    present = tuple(dict.fromkeys(port.name for port in inventory.adapters))
    for named in fabric.adapters:
        found = adapter_named(inventory, named)
        if found is None and not inventory.adapter_problem:
            yield AdapterAbsent(fabric=fabric.name, adapter=named, present=present)
        elif found is not None and found.state is PortState.DOWN:
            state = f"DOWN ({found.physical_state})" if found.physical_state else "DOWN"
            yield FabricPortDown(fabric=fabric.name, adapter=named, state=state)
    for other, prefix in ports[1:]:
        first, first_prefix = ports[0]
        if prefix != first_prefix:
            yield SubnetsDiffer(
                fabric=fabric.name, adapter=first, prefix=first_prefix, other=other, other_prefix=prefix
            )


def _tells_subnet(port: FabricAdapter) -> bool:
    return port.link_layer is LinkLayer.INFINIBAND and port.gid_prefix not in ("", DEFAULT_PREFIX)
