"""Whether a node is there: `ready → unreachable → lost`, decided by when it was heard.

ready        its stream is open and the last beat is not older than MISSED beats
unreachable  its stream ended, or it is silent for MISSED beats
lost         unreachable for `lost_after`; its replicas are then placed elsewhere
"""

from llmgw.core.presence import NodeState
from llmgw.core.state import Node

MISSED = 3
"""Beats that may fail to come before a silent node counts as unreachable."""

_STRETCH_FROM, _STRETCH_TO, _LONGEST = 100, 1000, 5.0


def beat(interval: float, nodes: int) -> float:
    """Seconds between heartbeats: as configured up to 100 nodes, stretched to at least 5 s at 1,000."""
    if nodes <= _STRETCH_FROM or interval >= _LONGEST:
        return interval
    share = min(1.0, (nodes - _STRETCH_FROM) / (_STRETCH_TO - _STRETCH_FROM))
    return interval + (_LONGEST - interval) * share


def state_at(node: Node, now: float, *, beat: float, lost_after: float, not_before: float) -> tuple[NodeState, float]:
    """Return the node's state at `now` and since when; no node is lost before `not_before`."""
    if node.session is not None:
        silent_from = node.heard + MISSED * beat
        if now < silent_from:
            return NodeState.READY, node.since if node.state is NodeState.READY else now
        away_since = silent_from if node.state is NodeState.READY else node.since
    else:
        away_since = node.since
    if node.state is NodeState.LOST:
        return NodeState.LOST, node.since
    lost_at = max(away_since + lost_after, not_before)
    if now >= lost_at:
        return NodeState.LOST, lost_at
    return NodeState.UNREACHABLE, away_since


def next_change(node: Node, *, beat: float, lost_after: float, not_before: float) -> float | None:
    """When the node's state changes if nothing is heard of it; None when it never does."""
    if node.state is NodeState.READY:
        return node.heard + MISSED * beat
    if node.state is NodeState.UNREACHABLE:
        return max(node.since + lost_after, not_before)
    return None
