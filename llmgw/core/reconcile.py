"""Which replicas a model is short of, and which it has too many of. One model at a time.

    living   wanted to run, on nodes that are not lost
    missing  wanted − living: to be placed
    surplus  living − wanted: to be drained, the least useful first

A replica on a lost node is neither living nor ended: its engine may well run. It keeps its assignment and counts
again when its node returns; then the surplus goes, and the older replica is the one that stays.
An adopted replica fills a place that would be empty and takes none from another, nor is it ever surplus itself: an
operator's `scale` makes it an ordinary one first. Only a rolling change, which needs one place more than
there are, counts it like any other.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from llmgw.core.facts import Want
from llmgw.core.names import NodeName, ReplicaId
from llmgw.core.presence import NodeState
from llmgw.core.shard import ShardState
from llmgw.core.state import Replica


@dataclass(frozen=True, slots=True, kw_only=True)
class Gap:
    """What is between a model as it is and as it is wanted."""

    missing: int = 0
    surplus: tuple[ReplicaId, ...] = ()
    """In the order in which they go."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """How far a rolling change of a model is."""

    behind: frozenset[ReplicaId]
    """Replicas that are to be replaced."""
    pending: bool
    """One of those that replace them is not ready yet."""


def gap(
    wanted: int,
    replicas: Iterable[Replica],
    node_state: Callable[[NodeName], NodeState],
    standing: Standing | None = None,
) -> Gap:
    """Return what has to be placed or drained so that `wanted` replicas live."""
    running = [replica for replica in replicas if replica.want is Want.RUN]
    if wanted == 0:
        ending = [replica for replica in running if not replica.adopted]
        return Gap(surplus=tuple(replica.id for replica in sorted(ending, key=usefulness(node_state))))
    living = [replica for replica in running if not on_lost_node(replica, node_state)]
    ordinary = sorted((replica for replica in living if not replica.adopted), key=usefulness(node_state))
    missing = max(0, wanted - len(living))
    if standing is not None and standing.behind:
        return Gap(missing=missing, surplus=_surplus_of_roll(wanted, living, ordinary, node_state, standing))
    over = max(0, len(ordinary) - wanted)
    return Gap(missing=missing, surplus=tuple(replica.id for replica in ordinary[:over]))


def _surplus_of_roll(
    wanted: int,
    living: Sequence[Replica],
    ordinary: Sequence[Replica],
    node_state: Callable[[NodeName], NodeState],
    standing: Standing,
) -> tuple[ReplicaId, ...]:
    """One more than wanted may live until it is ready; then those that are behind go, as far as others serve."""
    if standing.pending:
        over = max(0, len(ordinary) - wanted - 1)
        return tuple(replica.id for replica in ordinary[:over])
    serving = sum(1 for replica in living if serves(replica, node_state))
    going: list[ReplicaId] = []
    for replica in sorted(ordinary, key=lambda one: one.id not in standing.behind):  # stable: the least useful first
        spare = len(living) - len(going) > wanted if replica.id in standing.behind else False
        spare = spare or len(ordinary) - len(going) > wanted
        ready = serves(replica, node_state)
        if not spare or (ready and serving <= wanted):
            continue
        going.append(replica.id)
        serving -= ready
    return tuple(going)


def serves(replica: Replica, node_state: Callable[[NodeName], NodeState]) -> bool:
    """Ready on nodes that say so now; what a node that is away said last is not known to be so."""
    present = all(node_state(node) is NodeState.READY for node in replica.nodes)
    return replica.want is Want.RUN and replica.state is ShardState.READY and present


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


def usefulness(node_state: Callable[[NodeName], NodeState]) -> Callable[[Replica], tuple[int, bool, int]]:
    """Sorts the least useful first: not ready before ready, on a node that is away before others, younger first."""

    def key(replica: Replica) -> tuple[int, bool, int]:
        present = all(node_state(node) is NodeState.READY for node in replica.nodes)
        return _RANK[replica.state], present, -int(replica.id.rpartition("/")[2])

    return key
