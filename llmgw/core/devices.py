"""What is there to say about a node's GPUs and fabric adapters?"""

from collections.abc import Iterator

from llmgw.core.groups import Group, Line, bar, table
from llmgw.core.inventory import FabricAdapter, Gpu, GpuHolder, Inventory, PortState, Usage, adapter_named, port_name
from llmgw.core.symptoms import DEFAULT_PREFIX
from llmgw.core.units import several, size

_GPUS = ("GPU", "NAME", "FILLED", "MEMORY", "DRIVER", "COMPUTE", "PCI", "NUMA", "NOTE")
_ADAPTERS = ("ADAPTER", "LAYER", "STATE", "RATE", "FABRIC", "NETDEV", "NUMA", "GPU", "PREFIX")


def gpus_in_short(inventory: Inventory, *, memory: bool) -> str:
    """`8×H100`, or with their `memory` `8×H100 80 GiB`; empty for none, and in words when it is not known."""
    if inventory.gpu_problem:
        return "probe failed"
    cards = [gpu for gpu in inventory.gpus if not gpu.parent]
    parts = len(inventory.gpus) - len(cards)
    names = [_in_short(gpu, memory) for gpu in cards]
    words = [f"{names.count(name)}×{name}" for name in dict.fromkeys(names)]
    return ", ".join([*words, *([several(parts, "part")] if parts else [])])


def _in_short(gpu: Gpu, memory: bool) -> str:
    known = f" {size(gpu.memory)}" if memory and gpu.memory is not None else ""
    return f"{gpu.name or 'GPU'}{known}"


def groups(inventory: Inventory, usage: Usage | None, *, wide: bool) -> Iterator[Group]:
    """GPUs, who else holds them, and adapters; `wide` adds what identifies them."""
    yield _gpus(inventory, usage, wide)
    if inventory.gpu_holders:
        holders = (_holder(one, inventory) for one in inventory.gpu_holders)
        yield table("GPUs held by others", ("GPU", "PID", "MEMORY", "COMMAND"), holders)
    yield _adapters(inventory, wide)


# --- GPUs -------------------------------------------------------------------------------------------------------


def _gpus(inventory: Inventory, usage: Usage | None, wide: bool) -> Group:
    problem = inventory.gpu_problem
    note = f"not known: {problem}" if problem else ""
    if not inventory.gpus:
        return Group(title="GPUs", note=note or "none", heed=bool(problem))
    used = dict(zip((gpu.uuid for gpu in inventory.gpus), usage.gpu_used if usage else (), strict=False))
    lines = (_gpu(gpu, used.get(gpu.uuid), wide) for gpu in _cards_then_parts(inventory.gpus))
    return table("GPUs", (*_GPUS, "UUID") if wide else _GPUS, lines, note=note, heed=bool(problem))


def _cards_then_parts(gpus: tuple[Gpu, ...]) -> Iterator[Gpu]:
    cards = {gpu.uuid for gpu in gpus if not gpu.parent}
    for gpu in gpus:
        if not gpu.parent:
            yield gpu
            yield from (part for part in gpus if gpu.uuid and part.parent == gpu.uuid)
        elif gpu.parent not in cards:
            yield gpu


def _gpu(gpu: Gpu, used: int | None, wide: bool) -> Line:
    part = bool(gpu.parent)
    cells = (
        "└" if part else str(gpu.index),
        gpu.name or "GPU",
        "" if used is None or not gpu.memory else bar(used, gpu.memory),
        _gpu_memory(gpu, used),
        gpu.driver,
        gpu.compute,
        gpu.pci,
        "" if gpu.numa is None else str(gpu.numa),
        _gpu_note(gpu),
    )
    return Line(cells=(*cells, gpu.uuid) if wide else cells, under=part)


def _gpu_memory(gpu: Gpu, used: int | None) -> str:
    total = "?" if gpu.memory is None else size(gpu.memory)
    return total if used is None else f"{size(used)} of {total}"


def _gpu_note(gpu: Gpu) -> str:
    if gpu.divided:
        return "divided, runs nothing itself"
    return "unified with the machine's memory" if gpu.unified else ""


def _holder(one: GpuHolder, inventory: Inventory) -> Line:
    held = "?" if one.memory is None else size(one.memory)
    return Line(cells=(_index(one.gpu, inventory), str(one.pid), held, one.command), heed=True)


def _index(uuid: str, inventory: Inventory) -> str:
    """A GPU's number, by its uuid."""
    found = next((gpu for gpu in inventory.gpus if uuid and gpu.uuid == uuid), None)
    return uuid if found is None else str(found.index)


# --- adapters ---------------------------------------------------------------------------------------------------


def _adapters(inventory: Inventory, wide: bool) -> Group:
    problem = inventory.adapter_problem
    note = f"not known: {problem}" if problem else ""
    if not inventory.adapters:
        return Group(title="adapters", note=note or "none", heed=bool(problem))
    fabrics = _fabrics(inventory)
    lines = (_adapter(port, fabrics.get((port.name, port.port), ""), inventory, wide) for port in inventory.adapters)
    columns = (*_ADAPTERS, "PORT GUID", "PKEY", "PCI") if wide else _ADAPTERS
    return table("adapters", columns, lines, note=note, heed=bool(problem))


def _fabrics(inventory: Inventory) -> dict[tuple[str, int], str]:
    """By port, the fabrics that agent.yaml puts it on."""
    found: dict[tuple[str, int], list[str]] = {}
    for fabric in inventory.fabrics:
        for named in fabric.adapters:
            port = adapter_named(inventory, named)
            if port is not None:
                found.setdefault((port.name, port.port), []).append(fabric.name)
    return {port: ", ".join(names) for port, names in found.items()}


def _adapter(port: FabricAdapter, fabric: str, inventory: Inventory, wide: bool) -> Line:
    cells = (
        port_name(port),
        port.link_layer.value,
        _port_state(port),
        port.rate,
        fabric,
        port.netdev,
        "" if port.numa is None else str(port.numa),
        _index(port.gpu, inventory),
        f"{port.gid_prefix} (default)" if port.gid_prefix == DEFAULT_PREFIX else port.gid_prefix,
    )
    wrong = port.state is PortState.INIT or (bool(fabric) and port.state is PortState.DOWN)
    return Line(cells=(*cells, port.port_guid, port.pkey, port.pci) if wide else cells, heed=wrong)


def _port_state(port: FabricAdapter) -> str:
    if port.state is PortState.INIT:
        return "INIT, no subnet manager"
    known = port.state.value
    return f"{known} ({port.physical_state})" if port.state is PortState.DOWN and port.physical_state else known
