"""Which NUMA nodes has the machine?"""

import re

from llmgw.agent.discovery.numbers import kib, processors
from llmgw.agent.discovery.root import Root
from llmgw.core.inventory import NumaNode
from llmgw.core.units import Bytes

_NODES = "sys/devices/system/node"
_MOST = 256
"""Nodes that are told; the kernel's own bound is 1024 (CONFIG_NODES_SHIFT)."""

_TOTAL = re.compile(r"MemTotal:\s*(\d{1,19} kB)", re.ASCII)


def numa(root: Root) -> tuple[NumaNode, ...]:
    """The nodes by number; empty where the kernel shows none. A node without memory or without cores is one, too."""
    numbers = sorted(int(name[4:]) for name in root.names(_NODES) if re.fullmatch(r"node[0-9]{1,4}", name))
    return tuple(_node(root, number) for number in numbers[:_MOST])


def _node(root: Root, number: int) -> NumaNode:
    total = _TOTAL.search(root.text(f"{_NODES}/node{number}/meminfo"))
    return NumaNode(
        index=number,
        cores=len(processors(root.text(f"{_NODES}/node{number}/cpulist"))),
        memory=Bytes((kib(total[1]) if total else None) or 0),
    )
