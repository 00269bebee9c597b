"""Which nodes are on which InfiniBand subnet under one fabric's name, and who is on another one than most?

Only a GID prefix that is not the default says anything. A node counts by the first adapter that has one; adapters of
one node that differ are that node's own affair.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from llmgw.core.device_warnings import SubnetsDiffer
from llmgw.core.inventory import Inventory
from llmgw.core.names import NodeName
from llmgw.core.symptoms import prefixes

_Leaders = tuple[tuple[str, NodeName], ...]
"""The prefixes that most nodes have, each with one of them; nothing while there is only one."""


@dataclass(slots=True)
class Subnets:
    """The index of all nodes, kept up by `put`."""

    _nodes: dict[str, dict[str, set[NodeName]]] = field(default_factory=dict)
    """Fabric → prefix → nodes."""
    _of: dict[NodeName, dict[str, tuple[str, str]]] = field(default_factory=dict)
    """Node → fabric → (adapter, prefix)."""

    def copy(self) -> "Subnets":
        """An independent copy."""
        nodes = {fabric: {prefix: set(on) for prefix, on in subnets.items()} for fabric, subnets in self._nodes.items()}
        return Subnets(nodes, dict(self._of))

    def put(self, node: NodeName, inventory: Inventory | None) -> set[NodeName]:
        """Take what a node says now; return the nodes whose warnings may be others because of it."""
        said = prefixes(inventory) if inventory else {}
        now = {fabric: ports[0] for fabric, ports in said.items()}
        before = self._of.get(node, {})
        if now == before:
            return set()
        touched: set[NodeName] = set()
        for fabric in before.keys() | now.keys():
            was = _leaders(self._nodes.get(fabric, {}))
            self._move(fabric, node, before.get(fabric), now.get(fabric))
            if _leaders(self._nodes.get(fabric, {})) != was:
                touched |= {name for on in self._nodes.get(fabric, {}).values() for name in on}
        self._of[node] = now
        return touched

    def differing(self, node: NodeName) -> list[SubnetsDiffer]:
        """Where the node is not on the subnet that most nodes of a fabric are on; in a tie, all are told."""
        found = []
        for fabric, (adapter, prefix) in sorted(self._of.get(node, {}).items()):
            other = _other(_leaders(self._nodes[fabric]), prefix)
            if other is not None:
                found.append(
                    SubnetsDiffer(
                        fabric=fabric, adapter=adapter, prefix=prefix, other=f"node {other[1]}", other_prefix=other[0]
                    )
                )
        return found

    def _move(self, fabric: str, node: NodeName, before: tuple[str, str] | None, now: tuple[str, str] | None) -> None:
        if before is not None:
            self._nodes[fabric][before[1]].discard(node)
            if not self._nodes[fabric][before[1]]:
                del self._nodes[fabric][before[1]]
        if now is not None:
            self._nodes.setdefault(fabric, {}).setdefault(now[1], set()).add(node)


def _leaders(on: dict[str, set[NodeName]]) -> _Leaders:
    if len(on) < 2:
        return ()
    most = max(len(nodes) for nodes in on.values())
    return tuple((prefix, min(on[prefix])) for prefix in sorted(on) if len(on[prefix]) == most)


def _other(leaders: Sequence[tuple[str, NodeName]], prefix: str) -> tuple[str, NodeName] | None:
    """Another prefix that at least as many nodes have as this one; None where this one has most, or nobody differs."""
    return next((leader for leader in leaders if leader[0] != prefix), None)
