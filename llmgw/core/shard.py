"""The life of a shard: one table, moved by its agent.

A shard is `placed` until its agent says otherwise. Weights already on the node make `fetching` a passing state.
"""

from collections.abc import Iterable, Mapping
from enum import Enum

from llmgw.core.errors import InvalidTransition


class ShardState(Enum):
    """Where a shard is in its life, in this order."""

    PLACED = "placed"
    FETCHING = "fetching"
    STARTING = "starting"
    READY = "ready"
    DRAINING = "draining"
    STOPPED = "stopped"
    FAILED = "failed"


class ShardEvent(Enum):
    """What happens to a shard."""

    FETCH = "fetch"
    """Its weights are being brought to the node."""
    LAUNCHED = "launched"
    """The engine process exists."""
    HEALTHY = "healthy"
    """The engine answers and its model is loaded."""
    UNHEALTHY = "unhealthy"
    """It was ready and answers "loading" again, or not at all."""
    DRAIN = "drain"
    """Told to finish what it serves."""
    GONE = "gone"
    """The process ended because it was told to, or there never was one."""
    FAILED = "failed"
    """It ended by itself, would not start, or not in time."""


_S, _E = ShardState, ShardEvent

_NEXT: Mapping[tuple[ShardState, ShardEvent], ShardState] = {
    # placed: named in Desired, nothing done yet
    (_S.PLACED, _E.FETCH): _S.FETCHING,
    (_S.PLACED, _E.LAUNCHED): _S.STARTING,
    (_S.PLACED, _E.GONE): _S.STOPPED,
    (_S.PLACED, _E.FAILED): _S.FAILED,
    # fetching: the weights come
    (_S.FETCHING, _E.LAUNCHED): _S.STARTING,
    (_S.FETCHING, _E.GONE): _S.STOPPED,
    (_S.FETCHING, _E.FAILED): _S.FAILED,
    # starting: the process runs and loads its model
    (_S.STARTING, _E.HEALTHY): _S.READY,
    (_S.STARTING, _E.DRAIN): _S.DRAINING,
    (_S.STARTING, _E.GONE): _S.STOPPED,
    (_S.STARTING, _E.FAILED): _S.FAILED,
    # ready: it serves
    (_S.READY, _E.UNHEALTHY): _S.STARTING,
    (_S.READY, _E.DRAIN): _S.DRAINING,
    (_S.READY, _E.GONE): _S.STOPPED,
    (_S.READY, _E.FAILED): _S.FAILED,
    # draining: it finishes; that the engine ends now by itself is no failure
    (_S.DRAINING, _E.GONE): _S.STOPPED,
    (_S.DRAINING, _E.FAILED): _S.STOPPED,
    # stopped: may be wanted again
    (_S.STOPPED, _E.FETCH): _S.FETCHING,
    (_S.STOPPED, _E.LAUNCHED): _S.STARTING,
    (_S.STOPPED, _E.FAILED): _S.FAILED,
    # failed: tried again after a while, or given up
    (_S.FAILED, _E.FETCH): _S.FETCHING,
    (_S.FAILED, _E.LAUNCHED): _S.STARTING,
    (_S.FAILED, _E.FAILED): _S.FAILED,
    (_S.FAILED, _E.GONE): _S.STOPPED,
}


def advance(shard: str, state: ShardState, event: ShardEvent) -> ShardState:
    """Return the state after `event`, or raise InvalidTransition naming the shard."""
    try:
        return _NEXT[state, event]
    except KeyError:
        raise InvalidTransition(f"shard {shard}", state.value, event.value) from None


def table() -> str:
    """The transitions as text, a state a paragraph; a test and the docs show it."""
    lines = []
    for state in ShardState:
        moves = [f"  {event.value:<10} → {to.value}" for (at, event), to in _NEXT.items() if at is state]
        lines += [state.value, *moves]
    return "\n".join(lines) + "\n"


_ORDER = (_S.PLACED, _S.FETCHING, _S.STARTING, _S.READY)


def combined(states: Iterable[ShardState]) -> ShardState:
    """A replica's state: any failed → failed, else any draining → draining, else the earliest; stopped when all are."""
    seen = set(states)
    if not seen or seen == {_S.STOPPED}:
        return _S.STOPPED
    for state in (_S.FAILED, _S.DRAINING):
        if state in seen:
            return state
    return next((state for state in _ORDER if state in seen), _S.STOPPED)
