"""Which processes hold memory of a GPU and are no engines of ours?"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from llmgw.agent.discovery.root import LONGEST, Root
from llmgw.agent.discovery.virtualization import contained
from llmgw.core.inventory import GpuHolder
from llmgw.core.units import Bytes

MOST = 64
"""Holders that are told of."""
LARGEST_PID = 1 << 22
"""Of Linux on 64 bits (proc(5), pid_max)."""


@dataclass(frozen=True, slots=True)
class Held:
    """A process on a GPU, as the driver knows it."""

    gpu: str
    pid: int
    name: str
    memory: Bytes | None


def foreign(root: Root, held: Iterable[Held], ours: Callable[[int], bool]) -> tuple[GpuHolder, ...]:
    """Return those that are not `ours`, by GPU and pid, at most MOST.

    In a container the driver may number processes as the host does. One that is not there by its number could be an
    engine of ours under another, so nothing is said of it. Outside, one that is not there is hidden from us (hidepid)
    or has just ended, and is told by the driver's name for it.
    """
    own_numbers = not contained(root)
    found = dict[tuple[str, int], GpuHolder]()
    for one in sorted(held, key=lambda one: (one.gpu, one.pid)):
        command = _command(root, one.pid)
        if len(found) == MOST or not (command or own_numbers) or ours(one.pid):
            continue
        found[one.gpu, one.pid] = GpuHolder(
            gpu=one.gpu, pid=one.pid, command=(command or one.name)[:LONGEST], memory=one.memory
        )
    return tuple(found.values())


def _command(root: Root, pid: int) -> str:
    """Its command line, empty when it cannot be read."""
    return " ".join(root.text(f"proc/{pid}/cmdline").split("\0")).strip()
