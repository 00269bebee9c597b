"""What do the answers of nvidia-smi mean? Text in, GPUs out; no text raises anything.

Its words for "not said" stand in brackets (`[N/A]`, `[Not Supported]`, `[Unknown Error]`), older ones without.
"""

import re
from dataclasses import dataclass, replace

from llmgw.agent.discovery import pci_bus
from llmgw.agent.discovery.gpus_found import MOST_CARDS, MOST_PARTS
from llmgw.agent.discovery.holders import LARGEST_PID, Held
from llmgw.agent.discovery.numbers import MOST, whole
from llmgw.agent.discovery.root import LONGEST
from llmgw.core.inventory import Gpu
from llmgw.core.units import MIB, Bytes

TOOL = "nvidia-smi"

FIELDS = ("memory.total", "memory.used", "driver_version", "compute_cap", "mig.mode.current")
OLD_FIELDS = ("memory.total", "memory.used", "driver_version")
"""Known to every driver: one field that a driver does not know makes it refuse the whole query."""

CSV = "--format=csv,noheader,nounits"
LIST = ("-L",)
APPS = ("--query-compute-apps=gpu_uuid,pid,process_name,used_memory", CSV)

UNIFIED = re.compile(r"\b(GB10|N1X|Orin|Thor|Xavier|nvgpu)\b")
"""GPUs on the processor's die, by name. They have no memory of their own: a GB10 and an Orin say `[N/A]`, an N1X states
8128 MiB, which is not so. A GH200 has its own."""

_LOST = re.compile(r"\[(GPU (?:is lost|requires reset))\]", re.IGNORECASE)
_UNSAID = re.compile(r"\[.*\]|n/?a|not supported|unknown error|", re.IGNORECASE)
_CARD = re.compile(r"GPU \d+: .*\(UUID: ([^)]+)\)\s*")
_PART = re.compile(r"\s+MIG (\S+)\s+Device\s+\d+:\s*\(UUID: (MIG-[^)]+)\)\s*")
_PROFILE = re.compile(r"(?:([1-9])c\.)?([1-9])g\.([0-9]{1,4})gb\b.*")


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A GPU as the query lists it."""

    gpu: Gpu
    """Without its NUMA node; `divided` when it is in MIG mode."""
    used: Bytes | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What a query answered."""

    rows: tuple[Row, ...]
    bad: tuple[str, ...]
    """About each line that is no GPU to count on."""
    none: bool
    """The tool says that there are no devices."""


@dataclass(frozen=True, slots=True)
class Part:
    """A MIG device as the list shows it."""

    parent: str
    uuid: str
    profile: str


def query(fields: tuple[str, ...]) -> tuple[str, ...]:
    """The arguments that ask for `fields`, with what every driver knows in front."""
    known = ("index", "uuid", "name", "pci.bus_id")
    return f"--query-gpu={','.join((*known, *fields))}", CSV


def unknown_field(text: str) -> bool:
    """Whether the tool refused a query for a field that it does not know."""
    return "not a valid field to query" in text


def rows(text: str, fields: tuple[str, ...]) -> Answer:
    """Read the answer to `query(fields)`."""
    found, bad, seen, none = list[Row](), list[str](), set[str](), False
    for line in filter(str.strip, text.splitlines()):
        if line.strip().lower().startswith("no devices were found"):
            none = True
        elif isinstance(row := _row(line, fields), str):
            bad.append(row)
        elif len(found) == MOST_CARDS or row.gpu.uuid in seen:
            bad.append(f"the line {_shown(line)} is one too many")
        else:
            found.append(row)
            seen |= {row.gpu.uuid} - {""}
    return Answer(rows=tuple(found), bad=tuple(bad), none=none)


def parts(text: str) -> tuple[Part, ...]:
    """Read the answer to LIST: the MIG devices in their order, at most MOST_PARTS of a GPU."""
    found, parent = dict[str, list[Part]](), ""
    for line in text.splitlines():
        if card := _CARD.fullmatch(line):
            parent = card[1].strip()[:LONGEST]
        elif (part := _PART.fullmatch(line)) and parent and len(found) <= MOST_CARDS:
            of_card = found.setdefault(parent, [])
            if len(of_card) < MOST_PARTS:
                of_card.append(Part(parent, part[2][:LONGEST], part[1][:LONGEST]))
    return tuple({part.uuid: part for of_card in found.values() for part in of_card}.values())


def apps(text: str) -> tuple[Held, ...]:
    """Read the answer to APPS; lines that are no process are left out. A name may hold commas."""
    found = list[Held]()
    for line in text.splitlines():
        words = [word.strip() for word in line.split(",")]
        if len(words) >= 4 and (pid := whole(words[1])) is not None and 0 < pid <= LARGEST_PID:
            found.append(Held(said(words[0]), pid, said(", ".join(words[2:-1])), _mib(words[-1])))
    return tuple(found)


def of_part(card: Gpu, part: Part) -> Gpu:
    """A MIG device as a GPU of its own."""
    return replace(
        card,
        uuid=part.uuid,
        name=f"{card.name} MIG {part.profile}".strip()[:LONGEST],
        memory=_memory(part.profile),
        divided=False,
        parent=part.parent,
    )


def said(word: str) -> str:
    """The word, empty when it stands for "not said"."""
    return "" if _UNSAID.fullmatch(word) else word[:LONGEST]


def _row(line: str, fields: tuple[str, ...]) -> Row | str:
    """A GPU, or what is wrong with the line."""
    words = [word.strip() for word in line.split(",")]
    index = whole(words[0])
    # A name may hold commas; the fields around it cannot.
    if len(words) < 4 + len(fields) or index is None or index > 1023:
        return f"the line {_shown(line)} is no GPU"
    *name, pci = words[2 : -len(fields)]
    if lost := _LOST.search(line):
        return f"GPU {index} ({pci_bus.address(pci) or 'without address'}): {lost[1]}"
    told = dict(zip(fields, words[-len(fields) :], strict=True))
    gpu = Gpu(
        index=index,
        uuid=said(words[1]),
        name=said(", ".join(name)),
        memory=_mib(told["memory.total"]),
        driver=said(told["driver_version"]),
        compute=said(told.get("compute_cap", "")),
        pci=pci_bus.address(pci),
        divided=told.get("mig.mode.current", "").lower() == "enabled",
    )
    return Row(gpu=replace(gpu, unified=UNIFIED.search(gpu.name) is not None), used=_mib(told.get("memory.used", "")))


def _memory(profile: str) -> Bytes | None:
    """The memory of a MIG device, less than it has rather than more.

    A profile is named by its share of the card's nominal size, of which the driver keeps some: an H200's 1g.18gb has
    16.0 GiB (`nvidia-smi mig -lgip`), 95 % of 18 GB. So one part in sixteen is left out. Compute instances
    (`2c.3g.40gb`) share their GPU instance's memory: each counts with its share of the slices.
    """
    match = _PROFILE.fullmatch(profile)
    if match is None:
        return None
    slices = int(match[2])
    taken = min(int(match[1] or slices), slices)
    return Bytes(int(match[3]) * 10**9 * 15 // 16 * taken // slices)


def _mib(word: str) -> Bytes | None:
    count = whole(word)
    return None if count is None or count > MOST // MIB else Bytes(count * MIB)


def _shown(line: str) -> str:
    return repr(line.strip()[:120])
