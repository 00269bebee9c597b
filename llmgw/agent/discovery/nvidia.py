"""Which NVIDIA GPUs are there, by NVIDIA's own tool? One that fails is a problem in its words, never "no GPUs"."""

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from llmgw.agent.discovery import nvidia_smi as smi
from llmgw.agent.discovery import pci_bus
from llmgw.agent.discovery.gpus_found import Gpus
from llmgw.agent.discovery.holders import foreign
from llmgw.agent.discovery.root import Root
from llmgw.agent.discovery.virtualization import contained
from llmgw.agent.run import Ran, run
from llmgw.core.brief import some
from llmgw.core.inventory import Gpu
from llmgw.core.units import NONE, Bytes, several

_MEANING = {
    4: "it may not use the driver",
    8: "a power cable of a GPU is not in",
    9: "the driver is not loaded",
    10: "the kernel has a fault with a GPU's interrupts",
    12: "the driver's library libnvidia-ml is missing",
    13: "the driver's library is too old for the tool",
    14: "the infoROM of a GPU is corrupt",
    15: "a GPU fell off the bus",
    16: "a GPU must be reset",
    17: "the system keeps it from the GPUs",
    18: "the driver that is loaded is not the one that is installed: reboot",
}
"""Exit statuses: nvidia-smi(1) up to 15, then NVML's return codes (nvml.h), which the tool passes on."""

_NOT_FOUND = 6
"""Exit status where there is no device: an answer, no failure."""

MODULE = "sys/module/nvidia"
"""There while the kernel's driver is loaded, whatever the tool says."""

_NAMED = 3
"""GPUs that are named in one problem."""

_OURS = ("", "nvidia")
"""Kernel drivers of a GPU that the tool should list. One that is lent to a virtual machine has another (vfio-pci)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What the tool answered to each question."""

    query: Ran
    fields: tuple[str, ...]
    """What the query asked for."""
    parts: Ran
    apps: Ran


def tool(root: Root) -> str | None:
    """The path of the tool, None where there is none."""
    return root.tool(smi.TOOL)


async def ask(tool: str | None, limit: float) -> Asked | None:
    """Ask the tool all at once, `limit` seconds long at most; None where there is no tool."""
    if tool is None:
        return None
    (query, fields), parts, apps = await asyncio.gather(
        _query(tool, limit), run([tool, *smi.LIST], timeout=limit), run([tool, *smi.APPS], timeout=limit)
    )
    return Asked(query=query, fields=fields, parts=parts, apps=apps)


async def _query(tool: str, limit: float) -> tuple[Ran, tuple[str, ...]]:
    loop = asyncio.get_running_loop()
    until = loop.time() + limit
    ran = await run([tool, *smi.query(smi.FIELDS)], timeout=limit)
    if ran.ok or not smi.unknown_field(ran.out + ran.err):
        return ran, smi.FIELDS
    return await run([tool, *smi.query(smi.OLD_FIELDS)], timeout=until - loop.time()), smi.OLD_FIELDS


def read(root: Root, asked: Asked | None, total: Bytes, available: Bytes, ours: Callable[[int], bool]) -> Gpus:
    """Return what the tool's answers and the kernel say. `total` and `available` are the machine's memory."""
    if asked is None:
        return Gpus(problem=_without_tool(root))
    answer = smi.rows(asked.query.out, asked.fields)
    parts = smi.parts(asked.parts.out) if asked.parts.ok else ()
    listed = [each for row in answer.rows for each in _with_parts(root, row, parts, total, available)]
    return Gpus(
        gpus=tuple(gpu for gpu, _ in listed),
        used=tuple(used for _, used in listed),
        holders=foreign(root, smi.apps(asked.apps.out) if asked.apps.ok else (), ours),
        problem=_problem(root, asked, answer),
    )


def _with_parts(
    root: Root, row: smi.Row, parts: tuple[smi.Part, ...], total: Bytes, available: Bytes
) -> Iterator[tuple[Gpu, Bytes]]:
    """A card and the devices it is divided into, each with its memory in use."""
    card, used = replace(row.gpu, numa=pci_bus.numa(root, row.gpu.pci)), row.used
    if card.unified:
        card, used = replace(card, memory=total), Bytes(max(0, total - available))
    own = [part for part in parts if part.parent == card.uuid]
    card = replace(card, divided=card.divided or bool(own))
    yield card, used or NONE
    yield from ((smi.of_part(card, part), NONE) for part in own)


def _problem(root: Root, asked: Asked, answer: smi.Answer) -> str:
    """What is wrong, the gravest alone; the questions fail together and need no mending each."""
    query = asked.query
    if not query.ok and not (answer.none and query.status == _NOT_FOUND):
        # Beside GPUs that it listed, only its other lines are about what is wrong.
        words = (replace(query, out="; ".join(answer.bad)) if answer.rows else query).words()
        meaning = _MEANING.get(query.status or 0)
        return f"{smi.TOOL}: {words} ({meaning})" if meaning else f"{smi.TOOL}: {words}"
    if answer.bad:
        more = f", and {len(answer.bad) - 1} more" if answer.bad[1:] else ""
        return f"{smi.TOOL}: {answer.bad[0]}{more}"
    return _missing(root, answer.rows) or _unasked(asked, answer)


def _unasked(asked: Asked, answer: smi.Answer) -> str:
    """What went wrong with the other questions. Not every GPU can tell of its processes: only a hang is a fault."""
    if answer.rows and not asked.parts.ok:
        return f"{smi.TOOL} {smi.LIST[0]}: {asked.parts.words()}"
    return f"{smi.TOOL} {smi.APPS[0]}: {asked.apps.problem}" if asked.apps.problem else ""


def _missing(root: Root, rows: tuple[smi.Row, ...]) -> str:
    """Which GPUs the kernel sees and the tool does not. In a container the bus tells of more than was given to it."""
    on_bus = [card.address for card in pci_bus.cards(root, pci_bus.NVIDIA) if card.driver in _OURS]
    listed = {row.gpu.pci for row in rows}
    lacking = [address for address in on_bus if address not in listed]
    if len(rows) >= len(on_bus) or "" in listed or contained(root):
        return ""
    count = several(len(on_bus), "NVIDIA device")
    return f"{smi.TOOL} lists {len(rows)} of {count} on the PCI bus; missing {some(lacking, _NAMED)}"


def _without_tool(root: Root) -> str:
    """What is wrong with a machine that has NVIDIA's GPUs and not its tool."""
    within = contained(root)
    if root.exists("proc/driver/nvidia/version") and (root.exists("dev/nvidiactl") or not within):
        return f"an NVIDIA driver is loaded and {smi.TOOL} is not on the PATH: install it"
    idle = [card.address for card in pci_bus.cards(root, pci_bus.NVIDIA) if card.driver in (*_OURS, "nouveau")]
    if not idle or within:
        return ""
    many = several(len(idle), "NVIDIA device")
    return f"{many} on the PCI bus ({some(idle, _NAMED)}) and no {smi.TOOL}: install its driver"
