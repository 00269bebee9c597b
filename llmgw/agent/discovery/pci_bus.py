"""What does the kernel see on the PCI bus, whatever tools say: GPUs, and where they are?"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from llmgw.agent.discovery.numbers import whole
from llmgw.agent.discovery.root import Root

DEVICES = "sys/bus/pci/devices"
NVIDIA, AMD = "0x10de", "0x1002"
"""PCI vendor ids."""

_CLASSES = ("0x03", "0x12")
"""Display controllers and processing accelerators: PCI base classes."""

_ADDRESS = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")


@dataclass(frozen=True, slots=True)
class Card:
    """A GPU's PCI function."""

    address: str
    driver: str
    """Of the kernel, empty when none has taken it."""


def cards(root: Root, vendor: str) -> list[Card]:
    """The GPUs of a vendor, by address; functions that a card lends to virtual machines (SR-IOV) are not counted."""
    return [Card(name, root.device(f"{DEVICES}/{name}/driver")) for name in _of(root, vendor)]


def numa(root: Root, address: str) -> int | None:
    """The NUMA node of a device, None where the kernel does not say (it writes -1)."""
    return whole(root.text(f"{DEVICES}/{address}/numa_node")) if address else None


def is_address(text: str) -> bool:
    """Whether it is a PCI address as sysfs writes it: `0000:17:00.0`."""
    return _ADDRESS.fullmatch(text) is not None


def address(text: str) -> str:
    """A PCI address as sysfs writes it, from one in any tool's writing (`0000000F:01:00.0`); empty when it is none."""
    domain, _, rest = text.strip().lower().partition(":")
    found = f"{domain.lstrip('0').rjust(4, '0')}:{rest}"
    return found if is_address(found) else ""


def _of(root: Root, vendor: str) -> Iterator[str]:
    for name in root.names(DEVICES):
        at = f"{DEVICES}/{name}"
        ours = is_address(name) and root.text(f"{at}/vendor") == vendor
        if ours and root.text(f"{at}/class").startswith(_CLASSES) and not root.exists(f"{at}/physfn"):
            yield name
