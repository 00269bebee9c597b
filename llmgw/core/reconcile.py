"""Which replicas a model is short of, and which it has too many of. One model at a time.

    living   wanted to run, on nodes that are not lost
    missing  wanted − living: to be placed
    surplus  living − wanted: to be drained, the least useful first

A replica on a lost node is neither living nor ended: its engine may well run. It keeps its assignment and counts
again when its node returns; then the surplus goes, and the older replica is the one that stays.
An adopted replica fills a place that would be empty and takes none from another, nor is it ever surplus itself: an
operator's `scale` makes it an ordinary one first.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from llmgw.core.facts import Want
from llmgw.core.names import NodeName, ReplicaId
from llmgw.core.shard import ShardState
from llmgw.core.state import NodeState, Replica


@dataclass(frozen=True, slots=True, kw_only=True)
class Gap:
    """What is between a model as it is and as it is wanted."""

    missing: int = 0
    surplus: tuple[ReplicaId, ...] = ()
    """In the order in which they go."""


def gap(wanted: int, replicas: Iterable[Replica], node_state: Callable[[NodeName], NodeState]) -> Gap:
    """Return what has to be placed or drained so that `wanted` replicas live."""
    running = [replica for replica in replicas if replica.want is Want.RUN]
    if wanted == 0:
        ending = [replica for replica in running if not replica.adopted]
        return Gap(surplus=tuple(replica.id for replica in sorted(ending, key=_usefulness(node_state))))
    living = [replica for replica in running if not on_lost_node(replica, node_state)]
    ordinary = sorted((replica for replica in living if not replica.adopted), key=_usefulness(node_state))
    over = max(0, len(ordinary) - wanted)
    return Gap(missing=max(0, wanted - len(living)), surplus=tuple(replica.id for replica in ordinary[:over]))


def on_lost_node(replica: Replica, node_state: Callable[[NodeName], NodeState]) -> bool:
    """Whether a part of it is on a node that is lost."""
    return any(node_state(node) is NodeState.LOST for node in replica.nodes)


_RANK = {
    ShardState.FAILED: 0,
    ShardState.STOPPED: 1,
    ShardState.PLACED: 2,
    ShardState.FETCHING: 3,
    ShardState.STARTING: 4,
    ShardState.DRAINING: 5,
    ShardState.READY: 6,
}


def _usefulness(node_state: Callable[[NodeName], NodeState]) -> Callable[[Replica], tuple[int, bool, int]]:
    """Sorts the least useful first: not ready before ready, on a node that is away before others, younger first."""

    def key(replica: Replica) -> tuple[int, bool, int]:
        present = all(node_state(node) is NodeState.READY for node in replica.nodes)
        return _RANK[replica.state], present, -int(replica.id.rpartition("/")[2])

    return key
