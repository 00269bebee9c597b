"""What do AMD's tools call the GPUs? JSON in, names out; no text raises anything.

Both tools are asked only for what the kernel's files lack. Keys and their case differ from version to version, numbers
are text, and warnings may stand before the JSON.
"""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass

from llmgw.agent.discovery import pci_bus
from llmgw.agent.discovery.gpus_found import MOST_CARDS
from llmgw.agent.discovery.root import LONGEST

AMD_SMI = ("amd-smi", "static", "--asic", "--bus", "--driver", "--json")
ROCM_SMI = ("rocm-smi", "--showproductname", "--showuniqueid", "--showbus", "--showdriverversion", "--json")

_STARTS = re.compile(r"^\s*[\[{]", re.MULTILINE)
_CARD = re.compile(r"card[0-9]{1,4}")
_UNSAID = ("", "n/a", "none", "unknown")
_NAMES = ("market_name", "card series", "device name", "card model", "product name")


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """A GPU as a tool describes it; what it does not say is empty."""

    pci: str = ""
    unique_id: str = ""
    name: str = ""
    compute: str = ""
    driver: str = ""


def amd_smi(text: str) -> list[Told]:
    """Read the answer to AMD_SMI: a list of GPUs, in newer versions under `gpu_data`."""
    said = _json(text)
    listed = said.get("gpu_data") if isinstance(said, dict) else said
    found = list[Told]()
    for gpu in listed[:MOST_CARDS] if isinstance(listed, list) else ():
        asic, place, driver = (_part(gpu, key) for key in ("asic", "bus", "driver"))
        found.append(
            Told(
                pci=pci_bus.address(_said(place, "bdf")),
                unique_id=_hex(_said(asic, "asic_serial")),
                name=_said(asic, *_NAMES),
                compute=_said(asic, "target_graphics_version").lower(),
                driver=_said(driver, "version", "driver_version"),
            )
        )
    return found


def rocm_smi(text: str) -> list[Told]:
    """Read the answer to ROCM_SMI: an object with a key for each card, and others."""
    said = _json(text)
    cards = [key for key in said if _CARD.fullmatch(key)] if isinstance(said, dict) else []
    driver = _said(_part(said, "system"), "driver version")
    found = list[Told]()
    for key in sorted(cards, key=lambda key: int(key[4:]))[:MOST_CARDS]:
        card = _part(said, key)
        found.append(
            Told(
                pci=pci_bus.address(_said(card, "pci bus")),
                unique_id=_hex(_said(card, "unique id")),
                name=_said(card, *_NAMES),
                compute=_said(card, "gfx version").lower(),
                driver=driver,
            )
        )
    return found


def _json(text: str) -> object:
    start = _STARTS.search(text)
    try:
        return json.JSONDecoder().raw_decode(text, start.end() - 1)[0] if start else None
    except (ValueError, RecursionError):
        return None


def _part(said: object, key: str) -> dict[str, str]:
    """The texts of an object inside another one, by their keys in lower case."""
    inner = said.get(key) if isinstance(said, dict) else None
    return {name.lower(): str(value) for name, value in _texts(inner)}


def _texts(said: object) -> Iterator[tuple[str, str]]:
    for name, value in said.items() if isinstance(said, dict) else ():
        if isinstance(value, str) and value.strip().lower() not in _UNSAID:
            yield name, value.strip()[:LONGEST]


def _said(said: dict[str, str], *keys: str) -> str:
    """The first of the keys that says something else than a number of PCI."""
    return next((said[key] for key in keys if key in said and not (key in _NAMES and _hex(said[key]))), "")


def _hex(word: str) -> str:
    """`0x` and a number, as sysfs writes it: sixteen digits; empty when it is something else."""
    digits = word.lower().removeprefix("0x")
    return digits.rjust(16, "0") if word[:2].lower() == "0x" and re.fullmatch("[0-9a-f]{1,16}", digits) else ""
