"""Which GPUs can compute, by the topology of the kernel's AMD driver (KFD), and which processes use them?

The runtime of ROCm numbers GPUs in the order of these nodes.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from llmgw.agent.discovery.numbers import whole
from llmgw.agent.discovery.root import Root
from llmgw.core.units import Bytes

_KFD = "sys/class/kfd/kfd"
_NODES = f"{_KFD}/topology/nodes"
_MOST_NODES, _MOST_PROCESSES = 1024, 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A GPU of the topology."""

    gpu_id: int
    """The kernel's own number of it, in the names of its files."""
    pci: str
    compute: str
    """`gfx90a`; empty where it is not said."""


def nodes(root: Root) -> list[Node] | None:
    """The GPUs in the runtime's order, None where the kernel has no topology."""
    if not root.exists(_NODES):
        return None
    numbers = sorted(int(name) for name in root.names(_NODES) if name.isascii() and name.isdecimal() and len(name) < 6)
    found = dict[str, Node]()
    for number in numbers[:_MOST_NODES]:
        gpu_id = whole(root.text(f"{_NODES}/{number}/gpu_id"))
        if gpu_id:
            node = _node(gpu_id, _properties(root.text(f"{_NODES}/{number}/properties")))
            found.setdefault(node.pci, node)
    return list(found.values())


def held(root: Root, gpu_id: int) -> Iterator[tuple[int, Bytes]]:
    """The processes that hold memory of a GPU, and how much."""
    for name in root.names(f"{_KFD}/proc")[:_MOST_PROCESSES]:
        pid, memory = whole(name), whole(root.text(f"{_KFD}/proc/{name}/vram_{gpu_id}"))
        if pid and memory:
            yield pid, Bytes(memory)


def gfx(version: int) -> str:
    """The compiler's name for `gfx_target_version`, which has two decimal digits each for minor and stepping: 90010 is
    gfx90a."""
    return f"gfx{version // 10000}{version // 100 % 100:x}{version % 100:x}" if version > 0 else ""


def _node(gpu_id: int, said: dict[str, int]) -> Node:
    place = said.get("location_id", 0)  # bus, device and function, as PCI packs them into 16 bits
    pci = f"{said.get('domain', 0):04x}:{place >> 8 & 0xFF:02x}:{place >> 3 & 0x1F:02x}.{place & 7}"
    return Node(gpu_id=gpu_id, pci=pci, compute=gfx(said.get("gfx_target_version", 0)))


def _properties(text: str) -> dict[str, int]:
    lines = (line.split() for line in text.splitlines())
    return {words[0]: value for words in lines if len(words) == 2 and (value := whole(words[1])) is not None}
