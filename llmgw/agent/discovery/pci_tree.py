"""Which GPU is an adapter nearest to, by the tree of PCI bridges? Pure: paths of sysfs in, pairs out.

A device's path names each bridge on the way to it: `pci0000:15/0000:15:01.0/0000:16:00.0/0000:17:04.0/0000:1b:00.0`
is a root complex, its port, a switch's two sides and the device. What two devices share below the root complex
carries their traffic past the processor. `nvidia-smi topo -m` calls that PIX (one bridge) or PXB (several); what meets
only at the root complex (PHB), in its NUMA node (NODE) or across sockets (SYS) is near to nothing here.
"""

import re
from collections.abc import Iterator, Mapping
from itertools import takewhile

from llmgw.agent.discovery.pci_bus import is_address

_ROOT = re.compile(r"pci[0-9a-f]{4,8}:[0-9a-f]{2}")

Way = tuple[str, ...]
"""The parts of a path from the root complex to the device, both included."""


def device(path: str) -> str:
    """The PCI device that `path` leads to or through last, empty when it names none: a part of a device (a scalable
    function) has the address of the whole."""
    return next((part for part in reversed(path.split("/")) if is_address(part)), "")


def way(path: str) -> Way:
    """The way to a device, from its path in sysfs; empty when that has no root complex."""
    parts = path.split("/")
    root = next((at for at, part in enumerate(parts) if _ROOT.fullmatch(part)), len(parts))
    return tuple(parts[root:])


def shared(one: Way, other: Way) -> int:
    """How many bridges below the root complex are on both ways."""
    return max(0, sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False))) - 1)


def nearest(adapters: Mapping[str, str], gpus: Mapping[str, str]) -> dict[str, str]:
    """Return the GPU of each adapter that has one; names and paths in, adapter → GPU out.

    It is the GPU with which the adapter shares most bridges. Where several GPUs are equally near to as many cards or
    more, they are dealt out in the order of the bus, so that each GPU has one; where there are fewer cards than GPUs,
    none is nearer than the others. The functions of one card go together.
    """
    found = dict[str, str]()
    ways = sorted((way(path), gpu) for gpu, path in gpus.items())
    for bridge, names in _by_bridge(adapters, ways):
        near = [gpu for place, gpu in ways if place[: len(bridge)] == bridge]
        cards = sorted({_card(adapters[name]) for name in names})
        if len(cards) >= len(near):
            found |= {name: near[cards.index(_card(adapters[name])) % len(near)] for name in names}
    return found


def _by_bridge(adapters: Mapping[str, str], gpus: list[tuple[Way, str]]) -> Iterator[tuple[Way, list[str]]]:
    """Each bridge at which adapters meet their nearest GPUs, with these adapters."""
    meeting = dict[Way, list[str]]()
    for name, path in adapters.items():
        own = way(path)
        depth = max((shared(own, place) for place, _ in gpus), default=0)
        if depth:
            meeting.setdefault(own[: depth + 1], []).append(name)
    yield from meeting.items()


def _card(path: str) -> Way:
    """What the functions of one card have in common."""
    *bridges, device = way(path)
    return *bridges, device.partition(".")[0]
