"""What does this node have? Measured, unless agent.yaml says it."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from llmgw.agent.discovery import certificate, gpus, machine, memory
from llmgw.agent.discovery.adapters import adapters
from llmgw.agent.discovery.by_hand import by_hand
from llmgw.agent.discovery.cpu import CPUINFO, cpu
from llmgw.agent.discovery.disk import disks
from llmgw.agent.discovery.numa import numa
from llmgw.agent.discovery.root import Root
from llmgw.agent.discovery.virtualization import virtualization
from llmgw.agent.threads import aside
from llmgw.config.agent import AgentConfig
from llmgw.core.inventory import Cpu, Fabric, Inventory, NumaNode
from llmgw.core.units import Bytes

Ours = Callable[[int], bool]
"""Whether a process is an engine of ours."""

LIMIT = 5.0
"""Seconds that a tool may take, or storage for its answer; a driver that hangs keeps its tool for ever, a dead network
share never answers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """What one look at the machine found, and what of it belongs to the moment."""

    inventory: Inventory
    ram: memory.Ram
    available: Bytes
    gpu_used: tuple[Bytes, ...]
    """Of each of the inventory's GPUs."""


async def inventory(config: AgentConfig, root: Root, *, ours: Ours | None = None, limit: float = LIMIT) -> Inventory:
    """As `look`, without what belongs to the moment."""
    return (await look(config, root, ours=ours, limit=limit)).inventory


async def look(config: AgentConfig, root: Root, *, ours: Ours | None = None, limit: float = LIMIT) -> Look:
    """Look at the node. Raises OSError when the kernel does not say how much memory there is.

    Files are read beside the event loop, at the same time as tools run and storage is asked; each of those has `limit`
    seconds.
    """
    ram, available = await aside(_ram, root)
    # The pids of a recorded machine mean nothing here.
    known = ours if ours is not None and root.real else _nobody
    async with asyncio.TaskGroup() as group:
        reading = group.create_task(aside(_read, root, config))
        seeing = group.create_task(gpus.look(root, ram.total, available, known, limit=limit))
        asking = group.create_task(disks(root, config, limit))
        comparing = group.create_task(by_hand(config, ram.total))
    files, cards = reading.result(), seeing.result()
    ports, adapter_problem = await aside(adapters, root, cards.gpus)
    found = Inventory(
        os=files.system.name,
        os_id=files.system.id,
        os_version=files.system.version,
        kernel=files.kernel,
        arch=files.arch,
        virtualization=files.virtualization,
        cpu=files.cpu,
        numa=files.numa,
        memory=ram.total if config.memory is None else Bytes(config.memory),
        memory_limit=ram.limit,
        disks=asking.result(),
        gpus=cards.gpus,
        gpu_problem=cards.problem,
        gpu_holders=cards.holders,
        adapters=ports,
        adapter_problem=adapter_problem,
        fabrics=tuple(Fabric(name=name, adapters=named) for name, named in config.fabrics.items()),
        by_hand=comparing.result(),
        certificate_ends=files.certificate_ends,
        recorded="" if root.real else str(root.path),
    )
    return Look(inventory=found, ram=ram, available=available, gpu_used=cards.used)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Files:
    """What files say that need nothing else to be understood."""

    system: machine.System
    kernel: str
    arch: str
    virtualization: str
    cpu: Cpu
    numa: tuple[NumaNode, ...]
    certificate_ends: float | None


def _read(root: Root, config: AgentConfig) -> _Files:
    cpuinfo = root.text(CPUINFO)  # once: the kernel asks each processor for its speed to write it
    return _Files(
        system=machine.system(root),
        kernel=machine.kernel(root),
        arch=machine.architecture(root, cpuinfo),
        virtualization=virtualization(root, cpuinfo),
        cpu=cpu(root, cpuinfo),
        numa=numa(root),
        certificate_ends=certificate.ends(config.tls.certificate),
    )


def _ram(root: Root) -> tuple[memory.Ram, Bytes]:
    return memory.ram(root), memory.available(root)


def _nobody(pid: int) -> bool:
    return False
