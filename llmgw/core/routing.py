"""Which replica gets a request, and whether a failed try is made again.

choose = those this router reaches → not tried yet → without a penalty → fewest in flight → longest not chosen → by id

Choosing is apart from claiming: whoever asked counts the request in, and out again when it ends.
"""

from collections.abc import Container, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Protocol, TypeVar

from llmgw.core.hosts import stays_here
from llmgw.core.names import ModelName, NodeName
from llmgw.core.routes import Route, RouteReplica
from llmgw.core.views import ModelState


class Load(Protocol):
    """What a router knows of one replica that it reaches."""

    @property
    def replica(self) -> RouteReplica:
        """Where it serves."""

    @property
    def in_flight(self) -> int:
        """Requests of this router that it works on."""

    @property
    def chosen(self) -> int:
        """A count that grew with every choice when this one was last chosen; 0 for never."""

    @property
    def until(self) -> float:
        """When the penalty for its last failure ends."""


AnyLoad = TypeVar("AnyLoad", bound=Load)


class Reason(Enum):
    """Why no replica can be asked."""

    NONE_READY = "none_ready"
    ELSEWHERE = "elsewhere"
    """There are some, all on other machines and listening on loopback only."""
    ALL_TRIED = "all_tried"


_WORDS = {
    ModelState.STOPPED: "is scaled to 0",
    ModelState.REFUSED: "is refused by all nodes",
    ModelState.STARTING: "is starting; no replica serves yet",
    ModelState.FAILED: "has failed; no replica serves",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class NoReplica:
    """No replica of a model can be asked; `str()` names nodes, `public` does not."""

    model: ModelName
    reason: Reason
    state: ModelState
    not_now: int
    never: int
    elsewhere: tuple[NodeName, ...] = ()
    """Nodes whose engines for this model are out of reach from here, sorted."""

    @property
    def public(self) -> str:
        """One line for any client: names no node."""
        if self.reason is Reason.ELSEWHERE:
            return f"model {self.model} runs where this router cannot reach it"
        if self.reason is Reason.ALL_TRIED:
            return f"model {self.model}: every replica was tried and none answered"
        return f"model {self.model} {_WORDS.get(self.state, 'has no replica that can serve now')}{self._refusals}"

    @property
    def _refusals(self) -> str:
        """What the nodes say of one more replica, where that is why."""
        if self.state in (ModelState.STOPPED, ModelState.STARTING, ModelState.FAILED):
            return ""
        told = [f"{count} {when}" for count, when in ((self.not_now, "not now"), (self.never, "never")) if count]
        return f"; nodes: {', '.join(told)}" if told else ""

    def __str__(self) -> str:
        if self.reason is not Reason.ELSEWHERE:
            return self.public
        return f"model {self.model}: {out_of_reach(self.elsewhere)}"


def out_of_reach(nodes: Sequence[NodeName]) -> str:
    """Say, with the way out, that the engines of these nodes cannot be reached from here."""
    return f"engines on {', '.join(nodes)} listen on loopback; set exposure: direct or run a router there"


def reachable(route: Route, machine: str) -> tuple[tuple[RouteReplica, ...], tuple[NodeName, ...]]:
    """Split a route: the replicas that a router on `machine` reaches, and the nodes of those it does not."""
    near = tuple(r for r in route.replicas if (machine and r.machine == machine) or not stays_here(r.host))
    far = sorted({r.node for r in route.replicas} - {r.node for r in near})
    return near, tuple(far)


def choose(
    route: Route,
    loads: Sequence[AnyLoad],
    *,
    now: float,
    elsewhere: tuple[NodeName, ...] = (),
    tried: Container[RouteReplica] = (),
) -> AnyLoad | NoReplica:
    """Return the replica to ask, of `loads` (those within reach), or why there is none.

    A replica under a penalty is asked only when there is no other, the one whose penalty ends first: a wrong guess
    costs one refused connection, where not asking would turn a client away for sure.
    """
    open_ones = [load for load in loads if load.replica not in tried] if tried else loads
    if len(open_ones) == 1:
        return open_ones[0]
    if open_ones:
        return min(open_ones, key=lambda load: _rank(load, now))
    reason = Reason.ALL_TRIED if loads else Reason.ELSEWHERE if elsewhere else Reason.NONE_READY
    return NoReplica(
        model=route.model,
        reason=reason,
        state=route.state,
        not_now=route.not_now,
        never=route.never,
        elsewhere=elsewhere,
    )


def _rank(load: Load, now: float) -> tuple[float, int, int, str]:
    return (load.until if load.until > now else 0.0, load.in_flight, load.chosen, load.replica.id)


def penalty(failures: int) -> float:
    """Seconds that a replica is passed over after so many failures in a row: 0.5, 1, 2, 4, then 8."""
    return float(min(0.5 * 2.0 ** (min(failures, 8) - 1), 8.0)) if failures > 0 else 0.0


class Fault(Enum):
    """How a try ended before the first byte of an answer."""

    CONNECT = "engine_unreachable"
    """No connection: nothing reached the engine."""
    STALE = "engine_closed"
    """A kept connection had been closed by the engine when it was used again."""
    CLOSED = "engine_died"
    """A fresh connection ended without an answer: the engine may have begun to work."""
    LOADING = "engine_loading"
    KEY = "engine_refused_key"
    """The route is older than the engine: another launch listens there now."""
    BROKEN = "engine_answer_broken"
    SILENT = "engine_silent"
    WITHDRAWN = "engine_withdrawn"
    """It left the route table while it worked on the request: it may hang, or end soon."""


TRIES = 6
"""At most so many for one request, whatever happens."""


def again(fault: Fault, tries: int, deaths: int) -> bool:
    """Whether a request whose try number `tries` ended so may go to another replica.

    `deaths` counts CLOSED, this one included: a request that kills engines must not walk through all of them.
    """
    if tries >= TRIES or fault in (Fault.BROKEN, Fault.SILENT):
        return False
    return fault is not Fault.CLOSED or deaths <= 1
