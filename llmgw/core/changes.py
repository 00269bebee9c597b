"""What about a node changed between two of its descriptions, in words for an operator?

What only wobbles (free space, what processes hold of a GPU, the end of a certificate that is renewed) is no change.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from llmgw.core.brief import cut, some
from llmgw.core.inventory import ByHand, Disk, FabricAdapter, Gpu, GpuVendor, Inventory, PortState, port_name
from llmgw.core.symptoms import nearly_full
from llmgw.core.units import Bytes, several, size

_MOST, _NAMED = 16, 4
"""Changes told at once, and things named in one of them."""


def changes(before: Inventory, after: Inventory) -> list[str]:
    """Return what changed, a few words each, what bears most on engines first; empty when nothing did.

    While a GPU probe fails, `before.gpus` should be what it listed last (`listed`).
    """
    found = [
        *_of_memory(before, after),
        *_of_gpus(before, after),
        *_of_cpu(before, after),
        *_of_fabrics(before, after),
        *_of_disks(before.disks, after.disks),
        *_of_system(before, after),
        *_of_by_hand(before.by_hand, after.by_hand),
    ]
    return found if len(found) <= _MOST else [*found[:_MOST], f"and {len(found) - _MOST} more"]


def lasting(inventory: Inventory) -> Inventory:
    """The inventory without what only wobbles: two that are equal so are the same machine to placement."""
    return replace(inventory, disks=(), gpu_holders=(), certificate_ends=None)


def listed(known: Sequence[Gpu], after: Inventory) -> tuple[Gpu, ...]:
    """Return the GPUs that a node has for all we know: as it lists them, or as known where their probe fails.

    A tool that lists some cards of a vendor works, whatever it says of the others.
    """
    if not after.gpu_problem:
        return after.gpus
    answered = {gpu.vendor for gpu in after.gpus}
    return (*after.gpus, *(gpu for gpu in known if gpu.vendor not in answered))


def cards(gpus: Iterable[Gpu]) -> dict[str, Gpu]:
    """Whole cards by what tells them apart; parts of a divided one come and go by an operator's act."""
    return {gpu.uuid or gpu.pci or f"{gpu.vendor.value} {gpu.index}": gpu for gpu in gpus if not gpu.parent}


def gone(before: Inventory, after: Inventory) -> list[Gpu]:
    """The cards that were there and are not any more; none while it is not known."""
    now = cards(listed(before.gpus, after))
    return [gpu for name, gpu in cards(before.gpus).items() if name not in now]


# --- parts ------------------------------------------------------------------------------------------------------


def _of_system(before: Inventory, after: Inventory) -> Iterator[str]:
    yield from _turned("system", before.os, after.os)
    yield from _turned("kernel", before.kernel, after.kernel)
    yield from _turned("architecture", before.arch, after.arch)
    yield from _turned("virtualization", before.virtualization, after.virtualization)
    yield from _turned("recorded machine", before.recorded, after.recorded)


def _of_cpu(before: Inventory, after: Inventory) -> Iterator[str]:
    was, now = before.cpu, after.cpu
    yield from _turned("processor", was.model, now.model)
    yield from _turned("cores", str(was.cores), str(now.cores))
    yield from _turned("CPU quota", _quota(was.quota), _quota(now.quota))
    yield from _turned("NUMA nodes", str(len(before.numa)), str(len(after.numa)))
    if lost := sorted(set(was.features) - set(now.features)):
        yield f"CPU features lost: {some(lost, _NAMED)}"
    if new := sorted(set(now.features) - set(was.features)):
        yield f"CPU features newly there: {some(new, _NAMED)}"


def _of_memory(before: Inventory, after: Inventory) -> Iterator[str]:
    yield from _turned("memory", _size(before.memory), _size(after.memory))
    yield from _turned("memory limit", _size(before.memory_limit), _size(after.memory_limit))


def _of_gpus(before: Inventory, after: Inventory) -> Iterator[str]:
    yield from _of_probe("GPU probe", before.gpu_problem, after.gpu_problem)
    known = listed(before.gpus, after)
    was, now = cards(before.gpus), cards(known)
    lost, new = gone(before, after), [gpu for name, gpu in now.items() if name not in was]
    if lost:
        yield f"{_cards(lost)} gone, {len(now)} of {len(now) + len(lost)} left"
    if new:
        yield f"{_cards(new)} newly there, {several(len(now), 'GPU')} now"
    for vendor in GpuVendor:
        old, drivers = _drivers(before.gpus, vendor), _drivers(known, vendor)
        if old and drivers:
            yield from _turned(f"{vendor.value} driver", old, drivers)
    for name in was.keys() & now.keys():
        yield from _of_card(was[name], now[name], before.gpus, known)


def _of_card(was: Gpu, now: Gpu, before: Sequence[Gpu], after: Sequence[Gpu]) -> Iterator[str]:
    if not (was.unified and now.unified):
        yield from _turned(f"GPU {now.index} memory", _size(was.memory), _size(now.memory))
    if now.uuid:
        yield from _turned(f"GPU {now.index} parts", _parts(before, now.uuid), _parts(after, now.uuid))


def _of_fabrics(before: Inventory, after: Inventory) -> Iterator[str]:
    yield from _of_probe("adapter probe", before.adapter_problem, after.adapter_problem)
    was, now = _ports(before), _ports(after)
    if not after.adapter_problem and (lost := sorted(was.keys() - now.keys())):
        yield f"adapter {some(lost, _NAMED)} gone"
    if new := sorted(now.keys() - was.keys()):
        yield f"adapter {some(new, _NAMED)} newly there"
    for name in sorted(was.keys() & now.keys()):
        yield from _of_port(name, was[name], now[name])
    old, put = _fabrics(before), _fabrics(after)
    for fabric in sorted(old.keys() | put.keys()):
        yield from _turned(f"fabric {cut(fabric)}", old.get(fabric, ""), put.get(fabric, ""))


def _of_port(name: str, was: FabricAdapter, now: FabricAdapter) -> Iterator[str]:
    yield from _turned(name, was.state.value, now.state.value)
    yield from _turned(name, was.link_layer.value, now.link_layer.value)
    if was.state is now.state is PortState.ACTIVE:
        yield from _turned(f"{name} rate", was.rate, now.rate)
        yield from _turned(f"{name} GID prefix", was.gid_prefix, now.gid_prefix)


def _of_disks(before: Sequence[Disk], after: Sequence[Disk]) -> Iterator[str]:
    was = {disk.directory: disk for disk in before}
    for now in {disk.directory: disk for disk in after}.values():
        old, name = was.get(now.directory), cut(now.directory)
        if now.problem and (old is None or old.problem != now.problem):
            yield f"{name}: {cut(now.problem)}"
        elif old is not None and old.problem and not now.problem:
            yield f"{name} is there again"
        elif old is not None and nearly_full(old) is not nearly_full(now):
            yield f"{name} is nearly full" if nearly_full(now) else f"{name} is no longer nearly full"


def _of_by_hand(before: Sequence[ByHand], after: Sequence[ByHand]) -> Iterator[str]:
    was, now = {one.field: one.stated for one in before}, {one.field: one.stated for one in after}
    for field in sorted(was.keys() | now.keys()):
        yield from _turned(f"{cut(field)} by hand", was.get(field, ""), now.get(field, ""))


# --- words ------------------------------------------------------------------------------------------------------


def _of_probe(what: str, before: str, after: str) -> Iterator[str]:
    if after and after != before:
        yield f"{what} failed: {cut(after)}"
    elif before and not after:
        yield f"{what} works again"


def _turned(what: str, before: str, after: str) -> Iterator[str]:
    if before != after:
        yield f"{what} {cut(before) or 'none'} → {cut(after) or 'none'}"


def _size(count: Bytes | None) -> str:
    """Some pages more or less are no other size."""
    return "" if count is None else size(count)


def _quota(quota: float | None) -> str:
    return "" if quota is None else f"{quota:g}"


def _cards(gpus: Sequence[Gpu]) -> str:
    """`GPU 3 (NVIDIA H100)`; of many their number by name."""
    if len(gpus) <= _NAMED:
        return ", ".join(f"GPU {gpu.index} ({cut(gpu.name)})" if gpu.name else f"GPU {gpu.index}" for gpu in gpus)
    names = Counter(gpu.name or "GPU" for gpu in gpus)
    return some([f"{count} × {name}" for name, count in sorted(names.items())], _NAMED)


def _drivers(gpus: Iterable[Gpu], vendor: GpuVendor) -> str:
    return ", ".join(sorted({gpu.driver for gpu in gpus if gpu.vendor is vendor and gpu.driver}))


def _parts(gpus: Iterable[Gpu], card: str) -> str:
    names = Counter(gpu.name or "a part" for gpu in gpus if gpu.parent == card)
    return some([f"{count} × {name}" for name, count in sorted(names.items())], _NAMED)


def _ports(inventory: Inventory) -> dict[str, FabricAdapter]:
    return {port_name(one): one for one in inventory.adapters}


def _fabrics(inventory: Inventory) -> dict[str, str]:
    return {fabric.name: some(fabric.adapters, _NAMED) or "no adapter" for fabric in inventory.fabrics}
