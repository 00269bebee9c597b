"""How much RAM is there, and how much is left? A limit set on our control group counts as the machine's size."""

import errno
from collections.abc import Mapping
from dataclasses import dataclass

from llmgw.agent.discovery.cgroups import around
from llmgw.agent.discovery.numbers import MOST, kib, whole
from llmgw.agent.discovery.root import Root
from llmgw.core.units import Bytes

MEMINFO = "proc/meminfo"

_LIMITS = ("memory.max", "memory.high", "memory.limit_in_bytes")
"""Of both hierarchies. Above `memory.high` the kernel does not end a process, it slows it down until it is useless."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ram:
    """What bounds the memory of processes that are started here."""

    machine: Bytes
    """The machine's RAM."""
    limit: Bytes | None
    """The smallest limit of the control groups around us, None when it is not below the machine's RAM."""

    @property
    def total(self) -> Bytes:
        """What counts of the two."""
        return self.machine if self.limit is None else self.limit


def ram(root: Root) -> Ram:
    """How much there is. Raises OSError when the kernel does not say."""
    return _ram(root, meminfo(root.text(MEMINFO)), _limits(root))


def total(root: Root) -> Bytes:
    """RAM that processes started here may use in all. Raises OSError when the kernel does not say."""
    return ram(root).total


def available(root: Root) -> Bytes:
    """RAM that can be had without swapping: free, and what the kernel gives back when asked.

    In a control group with a limit, what is left of the limit when that is less; the group's file cache counts as
    left. Raises OSError when the kernel does not say.
    """
    return _available(root, meminfo(root.text(MEMINFO)), _limits(root))


def both(root: Root) -> tuple[Ram, Bytes]:
    """As `ram` and `available`, of one reading."""
    said, limits = meminfo(root.text(MEMINFO)), _limits(root)
    return _ram(root, said, limits), _available(root, said, limits)


def meminfo(text: str) -> dict[str, Bytes]:
    """What /proc/meminfo says of memory, by its names; what is no amount is left out."""
    found = dict[str, Bytes]()
    for line in text.splitlines()[:1000]:
        name, _, said = line.partition(":")
        amount = kib(said)
        if amount is not None and name not in found:
            found[name] = Bytes(amount)
    return found


def _ram(root: Root, said: Mapping[str, Bytes], limits: Mapping[str, Bytes]) -> Ram:
    machine = said.get("MemTotal")
    if not machine:
        raise _unsaid("there is", root)
    return Ram(machine=machine, limit=min((one for one in limits.values() if one < machine), default=None))


def _available(root: Root, said: Mapping[str, Bytes], limits: Mapping[str, Bytes]) -> Bytes:
    available = said.get("MemAvailable")
    if available is None and "MemFree" in said:  # before Linux 3.14
        available = Bytes(said["MemFree"] + said.get("Cached", 0))
    if available is None:
        raise _unsaid("is left", root)
    left = [left for group, limit in limits.items() if (left := _left(root, group, limit)) is not None]
    return min([available, *left])


def _unsaid(what: str, root: Root) -> OSError:
    return OSError(errno.ENODATA, f"does not say how much memory {what}", str(root.at(MEMINFO)))


def _limits(root: Root) -> dict[str, Bytes]:
    """The limits of the groups around us that have one."""
    return {group: limit for group in around(root, "memory") if (limit := _limit(root, group)) is not None}


def _limit(root: Root, group: str) -> Bytes | None:
    """The group's own limit."""
    said = [whole(root.text(f"{group}/{file}")) for file in _LIMITS]
    return Bytes(min((one for one in said if one is not None and 0 < one < MOST), default=0)) or None


def _left(root: Root, group: str, limit: Bytes) -> Bytes | None:
    """What the group's limit leaves; None where it does not say what it uses."""
    for file, cache in (("memory.current", "inactive_file"), ("memory.usage_in_bytes", "total_inactive_file")):
        used = whole(root.text(f"{group}/{file}"))
        if used is not None:
            return Bytes(max(0, limit - max(0, used - _stat(root, group, cache))))
    return None


def _stat(root: Root, group: str, name: str) -> int:
    for line in root.text(f"{group}/memory.stat").splitlines()[:1000]:
        key, _, number = line.partition(" ")
        if key == name:
            return whole(number) or 0
    return 0
