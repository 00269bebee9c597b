"""What does a node's description of itself say is right and wrong with it?"""

from collections.abc import Collection, Iterator, Mapping, Sequence

from llmgw.core import device_warnings, symptoms, warnings
from llmgw.core.checks import Check, fault, ok, warning
from llmgw.core.inventory import FabricAdapter, Gpu, Inventory, adapter_named, port_name
from llmgw.core.units import size

_MOST = 32
"""GPUs, adapters and disks that are told, of each."""

_NAMES: Mapping[type[warnings.NodeWarning], str] = {
    warnings.RecordedMachine: "machine",
    warnings.MachineUnknown: "machine",
    warnings.NoAvx2: "processor",
    warnings.StatedDiffers: "by hand",
    device_warnings.GpuProbeFailed: "gpu",
    device_warnings.GpuHeld: "gpu",
    device_warnings.NoSubnetManager: "fabric",
    device_warnings.FabricPortDown: "fabric",
    device_warnings.AdapterAbsent: "fabric",
    device_warnings.AdaptersUnknown: "fabric",
    device_warnings.SubnetsDiffer: "fabric",
    warnings.DiskNearlyFull: "disk",
    warnings.DiskUnknown: "disk",
}
"""The kind of check that each warning belongs to. The certificate's end is told with the certificate."""

_ADAPTER = (
    device_warnings.NoSubnetManager,
    device_warnings.FabricPortDown,
    device_warnings.AdapterAbsent,
    device_warnings.SubnetsDiffer,
)
_FAULTS = (warnings.MachineUnknown, device_warnings.AdapterAbsent, device_warnings.GpuProbeFailed, warnings.DiskUnknown)


def of_inventory(inventory: Inventory, now: float, but: Collection[str] = ()) -> Iterator[Check]:
    """The facts, then what is wrong with them; of a thing that is wrong there is no other line.

    `but`: directories whose disks are told elsewhere.
    """
    found = list(symptoms.of_inventory(inventory, now))
    yield from _facts(inventory, found, but)
    for one in found:
        name = _NAMES.get(type(one))
        if name is None or getattr(one, "directory", None) in but:
            continue
        full = isinstance(one, warnings.DiskNearlyFull) and not one.free
        yield (fault if full or isinstance(one, _FAULTS) else warning)(name, str(one), one.fix)


def once(checks: Sequence[Check]) -> list[Check]:
    """Without the measured memory, where another line says what is wrong with it."""
    wrong = any(one.fix and one.name == "memory" for one in checks)
    return [one for one in checks if one.fix or one.name != "memory" or not wrong]


def _facts(inventory: Inventory, found: Sequence[warnings.NodeWarning], but: Collection[str]) -> Iterator[Check]:
    where = inventory.virtualization or "unknown virtualisation"
    yield ok("machine", f"{inventory.os}, kernel {inventory.kernel}, {inventory.arch}, {where}")
    extensions = ", ".join(inventory.cpu.features) or "none that is known"
    model = inventory.cpu.model or "unknown processor"
    if not _told(found, warnings.NoAvx2):
        yield ok("processor", f"{model}, {inventory.cpu.cores} cores; vector extensions: {extensions}")
    limit = f", limited by its control group to {size(inventory.memory_limit)}" if inventory.memory_limit else ""
    if "memory" not in {one.field for one in found if isinstance(one, warnings.StatedDiffers)}:
        yield ok("memory", f"{size(inventory.memory)} for engines{limit}")
    yield from (ok("gpu", _gpu(one)) for one in inventory.gpus[:_MOST])
    if not inventory.gpus and not inventory.gpu_problem:
        yield ok("gpu", "none")
    named = [one.adapter for one in found if isinstance(one, _ADAPTER)]
    wrong = [adapter_named(inventory, name) for name in named]
    yield from (ok("fabric", _adapter(one)) for one in inventory.adapters[:_MOST] if one not in wrong)
    if not inventory.adapters and not inventory.adapter_problem and not named:
        yield ok("fabric", "no adapter")
    for disk in inventory.disks[:_MOST]:
        if not disk.problem and not symptoms.nearly_full(disk) and disk.directory not in but:
            yield ok("disk", f"{disk.directory}: {size(disk.free)} of {size(disk.total)} free")


def _told(found: Sequence[warnings.NodeWarning], kind: type[warnings.NodeWarning]) -> bool:
    return any(isinstance(one, kind) for one in found)


def _gpu(gpu: Gpu) -> str:
    memory = "memory not said" if gpu.memory is None else size(gpu.memory)
    driver = f", driver {gpu.driver}" if gpu.driver else ""
    return f"GPU {gpu.index}: {gpu.name or 'unknown'}, {memory}{driver}"


def _adapter(adapter: FabricAdapter) -> str:
    rate = f", {adapter.rate}" if adapter.rate else ""
    return f"{port_name(adapter)}: {adapter.link_layer.value} {adapter.state.value}{rate}"
