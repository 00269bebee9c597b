"""What does this node have? Measured, unless agent.yaml says it."""

import asyncio
import os
from collections.abc import Callable
from dataclasses import dataclass

from llmgw.agent.discovery import certificate, gpus, machine, memory
from llmgw.agent.discovery.adapters import ADAPTERS, adapters
from llmgw.agent.discovery.by_hand import by_hand
from llmgw.agent.discovery.cpu import CPUINFO, cpu
from llmgw.agent.discovery.disk import disks
from llmgw.agent.discovery.numa import numa
from llmgw.agent.discovery.root import Root
from llmgw.agent.discovery.virtualization import virtualization
from llmgw.config.agent import AgentConfig
from llmgw.core.inventory import Cpu, Fabric, FabricAdapter, Gpu, Inventory, NumaNode
from llmgw.core.units import Bytes
from llmgw.host.threads import once

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


async def look(
    config: AgentConfig,
    root: Root,
    *,
    ours: Ours | None = None,
    before: Inventory | None = None,
    limit: float = LIMIT,
) -> Look:
    """Look at the node. Raises OSError when the kernel does not say how much memory there is.

    Files are read beside the event loop, at the same time as tools run and storage is asked; each of those has `limit`
    seconds. Of what does not answer, the problem is told; what the machine's own files said stays as it was `before`.
    """
    ram, available = await _memory(root, limit)
    # The pids of a recorded machine mean nothing here.
    known = ours if ours is not None and root.real else _nobody
    async with asyncio.TaskGroup() as group:
        reading = group.create_task(_files(root, before, limit))
        dating = group.create_task(_certificate(config, before, limit))
        seeing = group.create_task(gpus.look(root, ram.total, available, known, limit=limit))
        asking = group.create_task(disks(root, config, limit))
        comparing = group.create_task(by_hand(config, ram.total))
    (files, silent), (ends, unread), cards = reading.result(), dating.result(), seeing.result()
    ports, adapter_problem = await _adapters(root, cards.gpus, limit)
    found = Inventory(
        os=files.system.name,
        os_id=files.system.id,
        os_version=files.system.version,
        kernel=files.kernel,
        arch=files.arch,
        virtualization=files.virtualization,
        cpu=files.cpu,
        numa=files.numa,
        machine_problem="; ".join(filter(None, (silent, unread))),
        memory=ram.total if config.memory is None else Bytes(config.memory),
        memory_limit=ram.limit,
        disks=asking.result(),
        gpus=cards.gpus,
        gpu_problem=cards.problem,
        nvidia_driver=cards.nvidia_driver,
        gpu_holders=cards.holders,
        adapters=ports,
        adapter_problem=adapter_problem,
        fabrics=tuple(Fabric(name=name, adapters=named) for name, named in config.fabrics.items()),
        by_hand=comparing.result(),
        labels=tuple(sorted(f"{key}={value}" for key, value in config.labels.items())),
        certificate_ends=ends,
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


async def _files(root: Root, before: Inventory | None, limit: float) -> tuple[_Files, str]:
    """What they say, or said `before`, and why they are not known now."""
    try:
        return await once(("files", root), limit, _read, root), ""
    except TimeoutError as error:
        return _said(root, before), f"the files of the kernel and the system {error.strerror}"


def _read(root: Root) -> _Files:
    cpuinfo = root.text(CPUINFO)  # once: the kernel asks each processor for its speed to write it
    return _Files(
        system=machine.system(root),
        kernel=machine.kernel(root),
        arch=machine.architecture(root, cpuinfo),
        virtualization=virtualization(root, cpuinfo),
        cpu=cpu(root, cpuinfo),
        numa=numa(root),
    )


def _said(root: Root, before: Inventory | None) -> _Files:
    """What is known without a file where nothing was said before."""
    if before is None:
        system = machine.System(name="Linux", id="", version="")
        kernel, arch = (os.uname().release, os.uname().machine) if root.real else ("", "")
        return _Files(system=system, kernel=kernel, arch=arch, virtualization="", cpu=Cpu(model="", cores=0), numa=())
    return _Files(
        system=machine.System(name=before.os, id=before.os_id, version=before.os_version),
        kernel=before.kernel,
        arch=before.arch,
        virtualization=before.virtualization,
        cpu=before.cpu,
        numa=before.numa,
    )


async def _certificate(config: AgentConfig, before: Inventory | None, limit: float) -> tuple[float | None, str]:
    """When it ends, or was to end `before`, and why that is not known now. It may lie on a share."""
    path = config.tls.certificate
    try:
        return await once(("certificate", path), limit, certificate.ends, path), ""
    except TimeoutError as error:
        return before.certificate_ends if before else None, f"the storage of {path} {error.strerror}"


async def _adapters(root: Root, cards: tuple[Gpu, ...], limit: float) -> tuple[tuple[FabricAdapter, ...], str]:
    try:
        return await once(("adapters", root), limit, adapters, root, cards)
    except TimeoutError as error:
        return (), f"/{ADAPTERS} {error.strerror}"


async def _memory(root: Root, limit: float) -> tuple[memory.Ram, Bytes]:
    try:
        return await once(("memory", root), limit, memory.both, root)
    except TimeoutError as error:
        raise TimeoutError(error.errno, f"the kernel's files about memory {error.strerror}") from None


def _nobody(pid: int) -> bool:
    return False
