"""Do routers reach a node where its engines would listen? What is known of it, and what follows; values only.

    the node listens for a while ─▶ every router tries ─▶ results, by router ─▶ a refusal, or none

One router that reaches a node is enough to place there: which replica a request can be sent to is each router's own
choice. `trials.py` asks and hears.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from llmgw.core.names import ModelName, NodeName
from llmgw.core.refusals import AddressNotTried, UnreachableAddress, Unreached
from llmgw.core.views import Reach
from llmgw.core.warnings import RouterCannotReach

HOLD = 10.0
"""Seconds that a node without a result is held back at most: a router that hangs must not hold a fleet."""

TRIAL = 10.0
"""Seconds until a trial is judged by those who have answered."""

LISTEN = 15.0
"""Seconds that a node listens: longer than a trial, so that a slow router does not meet a closed port."""

AT_ONCE = 32
"""Nodes that are tried at a time, so that each is tried while it listens and a restart is no flood."""

AGAIN, FAILING_AGAIN = 600.0, 60.0
"""Seconds from the end of a trial to the next one, where routers reach the node and where they do not."""

REASONS = 1.0
"""Seconds after which reasons that changed are seen with a model that has no node."""

_WARNED = 3
"""Routers that a node is warned of; `reach` has all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """A question that is out."""

    token: str
    ends: float
    asked: frozenset[int] = frozenset()
    """The routers that try, by session; none while the node has not said where it listens."""
    routers: frozenset[str] = frozenset()
    """Their names."""
    heard: frozenset[int] = frozenset()
    """Those of them that have answered."""
    reached: frozenset[str] = frozenset()
    """The names under which one of them reached it."""
    host: str = ""
    port: int = 0
    problem: str = ""
    """The node's own words why nothing can listen there."""

    @property
    def answered(self) -> bool:
        """Nobody is waited for any more."""
        return bool(self.asked) and self.asked <= self.heard


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """What is known of one node at one address."""

    session: int | None
    """The session that is asked; None while the node has none."""
    machine: str
    address: str
    since: float
    """From when its first result is waited for."""
    results: tuple[Reach, ...] = ()
    """By router."""
    trial: Trial | None = None
    again: float | None = None
    """When it is to be tried next."""
    refusal: Unreached | None = None
    event: int = 0
    """The event of its coming: what is placed there once it was tried is placed because of that."""
    because: Mapping[ModelName, int] = field(default_factory=dict)
    """By model the event that made the node qualify for it, where that came after."""
    told: bool = False
    """That nobody reaches it was an event, and nothing better was since."""

    @property
    def reached(self) -> Reach | None:
        """The first result of a router that reaches it."""
        return next((one for one in self.results if not one.error), None)


@dataclass(slots=True, kw_only=True)
class Reachability:
    """All nodes' standings, and the routers that try."""

    routers: dict[int, str] = field(default_factory=dict)
    """Those that are connected, by session: a certificate that was copied makes two of one name."""
    left: set[str] = field(default_factory=set)
    """Those that went a short while ago: what they said still counts, a restart must change no verdict."""
    standings: dict[NodeName, Standing] = field(default_factory=dict)
    trials: dict[str, NodeName] = field(default_factory=dict)
    """By token."""
    waiting: dict[NodeName, None] = field(default_factory=dict)
    """Nodes whose turn has not come, in order."""
    count: int = 0
    """Of questions so far."""
    stale: bool = False
    """Models are refused for reasons that are others by now."""

    @property
    def connected(self) -> frozenset[str]:
        """The routers that can be asked."""
        return frozenset(self.routers.values())

    def refusal(self, node: NodeName) -> Unreached | None:
        """Why nothing new is placed on a node, as far as its address goes."""
        standing = self.standings.get(node)
        return standing.refusal if standing else None

    def results(self, node: NodeName) -> tuple[Reach, ...]:
        """What routers said of a node, by router."""
        standing = self.standings.get(node)
        return standing.results if standing else ()

    def copy(self) -> "Reachability":
        """An independent copy; the records in it are frozen and shared."""
        return Reachability(
            routers=dict(self.routers),
            left=set(self.left),
            standings=dict(self.standings),
            trials=dict(self.trials),
            waiting=dict(self.waiting),
            count=self.count,
            stale=self.stale,
        )


def refusal_of(node: NodeName, standing: Standing, now: float, *, pending: bool) -> Unreached | None:
    """What follows from the results.

    `pending`: the node is being tried, or is to be soon. While it is, nothing gets worse: of two routers the one that
    fails may just have been the faster. Nor does it while the node is away.
    """
    if standing.session is None:
        return standing.refusal if isinstance(standing.refusal, UnreachableAddress) else None
    if standing.reached is not None:
        return None
    if standing.results and not standing.trial:
        worst = standing.results[0]
        return UnreachableAddress(
            node=node, router=worst.router, address=worst.host, port=worst.port, error=worst.error
        )
    if isinstance(standing.refusal, UnreachableAddress) and standing.results:
        return standing.refusal
    return AddressNotTried(node=node) if pending and now < standing.since + HOLD else None


def with_result(results: Iterable[Reach], one: Reach) -> tuple[Reach, ...]:
    """The results with `one` in the place of what its router said before."""
    kept = [other for other in results if other.router != one.router]
    return tuple(sorted([*kept, one], key=lambda result: result.router))


def pause(standing: Standing, *, loopback: bool) -> float:
    """Seconds until a node is tried again after a trial.

    On loopback only routers on the machine itself reach an engine, so that others do not is nothing that mends itself.
    """
    failing = any(one.error for one in standing.results)
    good = standing.reached is not None and (loopback or not failing)
    return AGAIN if good else FAILING_AGAIN


def warnings(results: Iterable[Reach]) -> list[RouterCannotReach]:
    """Of the routers that do not reach a node, the first few."""
    failing = [one for one in results if one.error][:_WARNED]
    return [RouterCannotReach(router=one.router, address=one.host, port=one.port, error=one.error) for one in failing]
