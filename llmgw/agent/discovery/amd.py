"""Which AMD GPUs are there, by the kernel's own files? AMD's tools only add their names.

A card counts when KFD knows it: a small one beside a processor that only drives a screen does not compute. Where the
kernel has no topology, one with a GiB of its own memory counts.
"""

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from llmgw.agent.discovery import kfd, pci_bus, rocm
from llmgw.agent.discovery.gpus_found import MOST_CARDS, Gpus
from llmgw.agent.discovery.holders import Held, foreign
from llmgw.agent.discovery.machine import kernel
from llmgw.agent.discovery.numbers import whole
from llmgw.agent.discovery.root import LONGEST, Root
from llmgw.agent.discovery.virtualization import contained
from llmgw.agent.run import Ran, run
from llmgw.core.inventory import Gpu, GpuVendor
from llmgw.core.units import GIB, NONE, Bytes, several

DRIVER = "amdgpu"


@dataclass(frozen=True, slots=True)
class _Card:
    """A card that counts."""

    pci: str
    node: kfd.Node | None


@dataclass(frozen=True, slots=True)
class Tools:
    """The paths of AMD's tools, None for one that is not there."""

    newer: str | None = None
    older: str | None = None


def tools(root: Root) -> Tools:
    """The tools to ask: none where there is no card of AMD."""
    if not pci_bus.cards(root, pci_bus.AMD):
        return Tools()
    return Tools(root.tool(rocm.AMD_SMI[0]), root.tool(rocm.ROCM_SMI[0]))


async def ask(there: Tools, limit: float) -> list[rocm.Told]:
    """What the tools say, both asked at once, `limit` seconds long at most."""
    newer, older = await asyncio.gather(_run(there.newer, rocm.AMD_SMI, limit), _run(there.older, rocm.ROCM_SMI, limit))
    return rocm.amd_smi(newer) or rocm.rocm_smi(older)


async def _run(tool: str | None, argv: tuple[str, ...], limit: float) -> str:
    """What the tool wrote, when it is there and did well: the kernel's files do without it."""
    ran = await run([tool, *argv[1:]], timeout=limit) if tool else Ran(None, "", "")
    return ran.out if ran.ok else ""


def read(root: Root, told: list[rocm.Told], ours: Callable[[int], bool]) -> Gpus:
    """Return what the kernel says, with the names that the tools told."""
    seen = pci_bus.cards(root, pci_bus.AMD)
    found = _computing(root, [card.address for card in seen if card.driver == DRIVER])
    gpus = tuple(_gpu(root, index, card, told, len(found)) for index, card in enumerate(found))
    return Gpus(
        gpus=gpus,
        used=tuple(_bytes(root, card.pci, "mem_info_vram_used") or NONE for card in found),
        holders=foreign(root, _held(root, gpus, found), ours),
        problem=_problem(root, [card.address for card in seen if not card.driver]),
    )


def _computing(root: Root, addresses: list[str]) -> list[_Card]:
    """The cards that count, in the order in which ROCm's runtime numbers them."""
    nodes = kfd.nodes(root)
    if nodes is not None:
        found = [_Card(node.pci, node) for node in nodes if node.pci in addresses]
    else:
        found = [_Card(pci, None) for pci in addresses if (_bytes(root, pci, "mem_info_vram_total") or 0) >= GIB]
    within = contained(root)
    return [card for card in found if not within or _given(root, card.pci)][:MOST_CARDS]


def _given(root: Root, pci: str) -> bool:
    """Whether a container was given the card: the kernel's files tell it of all cards of the machine."""
    drawn = [name for name in root.names(f"{pci_bus.DEVICES}/{pci}/drm") if name.startswith("renderD")]
    return root.exists("dev/kfd") and any(root.exists(f"dev/dri/{name}") for name in drawn)


def _gpu(root: Root, index: int, card: _Card, told: list[rocm.Told], count: int) -> Gpu:
    at = f"{pci_bus.DEVICES}/{card.pci}"
    unique_id = root.text(f"{at}/unique_id").lower()[:LONGEST]
    said = _told(told, index, card.pci, unique_id, count)
    return Gpu(
        vendor=GpuVendor.AMD,
        index=index,
        # The runtime takes a card by its id or by its number; not every card has an id.
        uuid=f"GPU-{unique_id}" if unique_id.strip("0") else str(index),
        name=said.name or root.text(f"{at}/product_name")[:LONGEST],
        memory=_bytes(root, card.pci, "mem_info_vram_total"),
        # The driver that comes with the kernel has no version of its own.
        driver=(root.text(f"sys/module/{DRIVER}/version") or said.driver or kernel(root))[:LONGEST],
        compute=(card.node.compute if card.node else "") or said.compute,
        pci=card.pci,
        numa=pci_bus.numa(root, card.pci),
    )


def _told(told: list[rocm.Told], index: int, pci: str, unique_id: str, count: int) -> rocm.Told:
    """What the tools say of this card: by its address or id, or by its place where they name neither."""
    for one in told:
        if one.pci == pci or (unique_id and one.unique_id == unique_id):
            return one
    by_place = len(told) == count and not any(one.pci or one.unique_id for one in told)
    return told[index] if by_place else rocm.Told()


def _held(root: Root, gpus: tuple[Gpu, ...], cards: list[_Card]) -> Iterator[Held]:
    for gpu, card in zip(gpus, cards, strict=True):
        for pid, memory in kfd.held(root, card.node.gpu_id) if card.node else ():
            yield Held(gpu.uuid, pid, "", memory)


def _problem(root: Root, idle: list[str]) -> str:
    if not idle or contained(root):
        return ""
    return f"{several(len(idle), 'AMD GPU')} on the PCI bus without a driver ({idle[0]}): load {DRIVER}"


def _bytes(root: Root, pci: str, file: str) -> Bytes | None:
    number = whole(root.text(f"{pci_bus.DEVICES}/{pci}/{file}"))
    return None if number is None else Bytes(number)
