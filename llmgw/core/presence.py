"""Is a node's agent there?"""

from enum import Enum


class NodeState(Enum):
    """Whether a node's agent is there."""

    READY = "ready"
    UNREACHABLE = "unreachable"
    LOST = "lost"
