"""Is what was found now another machine than what was told? What only wobbles is no news."""

from dataclasses import replace

from llmgw.core.inventory import Disk, GpuHolder, Inventory
from llmgw.core.symptoms import nearly_full

DISK = 0.01
"""The share of a disk's size by which its free space may wobble."""
HOLDER = 0.10
"""The share by which the GPU memory that a process holds may wobble."""


def worth_telling(told: Inventory | None, found: Inventory) -> bool:
    """Whether `found` differs from what was told last by more than wobbling."""
    if told is None:
        return True
    return told != replace(
        found,
        disks=_settled(told.disks, found.disks),
        gpu_holders=_held(told.gpu_holders, found.gpu_holders),
    )


def _settled(told: tuple[Disk, ...], found: tuple[Disk, ...]) -> tuple[Disk, ...]:
    """The disks as found, with the free space that was told where it is still near."""
    before = {disk.directory: disk for disk in told}
    return tuple(_near(before.get(disk.directory), disk) for disk in found)


def _near(told: Disk | None, found: Disk) -> Disk:
    if told is None or nearly_full(told) != nearly_full(found):
        return found
    return replace(found, free=told.free) if abs(told.free - found.free) < DISK * found.total else found


def _held(told: tuple[GpuHolder, ...], found: tuple[GpuHolder, ...]) -> tuple[GpuHolder, ...]:
    """The processes as found, in the order told, with the memory that was told where it is still near."""
    before = {(one.gpu, one.pid): one for one in told}
    place = {key: number for number, key in enumerate(before)}
    kept = [_still(before.get((one.gpu, one.pid)), one) for one in found]
    return tuple(sorted(kept, key=lambda one: place.get((one.gpu, one.pid), len(place))))


def _still(told: GpuHolder | None, found: GpuHolder) -> GpuHolder:
    if told is None or told.memory is None or found.memory is None:
        return found
    near = abs(told.memory - found.memory) < HOLDER * max(told.memory, found.memory)
    return replace(found, memory=told.memory) if near else found
