"""What is kept of the engines that nodes should have? It decides nothing.

The ledger has one. In `provision/`, `wishing` and `following` write who should have what, `resolving` what it is made
of, `events` what was told, `views` what was shown.
"""

from dataclasses import dataclass, field

from llmgw.core.engines.orders import EngineWish, Release, ReleaseRef
from llmgw.core.engines.turns import Turns
from llmgw.core.names import NodeName
from llmgw.core.views import EngineView


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """A release whose files are known, with its name."""

    ref: ReleaseRef
    release: Release


@dataclass(frozen=True, slots=True, kw_only=True)
class Search:
    """How far it is found out what an engine is made of."""

    asking: bool = False
    """The shell was asked and has not answered."""
    stale: bool = False
    """What is known was found for another entry in server.yaml: it is used until there is better."""
    problem: str = ""
    """Why it was not found, the last time."""
    failures: int = 0
    """In a row."""
    again: float | None = None
    """It is not asked before."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """What was told of one version of an engine on a node."""

    begun: bool = False
    broken: bool = False
    problem: str = ""
    """The last one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Credit:
    """How much may be told of a node's engines, as of `at`."""

    left: float
    at: float


Have = tuple[str, str, str]
"""A fabric, an engine and its version."""


@dataclass(slots=True, kw_only=True)
class EngineBook:
    """The records by engine, by node, or by both. Those in it are frozen; what holds them is copied by `copy`."""

    turns: Turns
    wishes: dict[str, EngineWish] = field(default_factory=dict)
    """By engine, sorted."""
    since: dict[str, float] = field(default_factory=dict)
    """From when an engine is wanted as it is."""
    known: dict[tuple[str, str], tuple[Known, ...]] = field(default_factory=dict)
    """By engine and the version that led to it, one of each variant, sorted by that."""
    searches: dict[str, Search] = field(default_factory=dict)
    wanting: dict[str, set[NodeName]] = field(default_factory=dict)
    """The nodes that should have an engine, with those that have it."""
    asked: dict[tuple[NodeName, str], int] = field(default_factory=dict)
    """How often an operator asked a node to try again."""
    having: dict[Have, set[NodeName]] = field(default_factory=dict)
    """The nodes on a fabric that can give others the files."""
    gives: dict[NodeName, frozenset[Have]] = field(default_factory=dict)
    """The same, by node."""
    led: dict[str, int] = field(default_factory=dict)
    """By engine the event that led to what nodes do about it."""
    led_on: dict[tuple[NodeName, str], int] = field(default_factory=dict)
    """By node and engine, where that is another one."""
    told: dict[str, Told] = field(default_factory=dict)
    """By `engine_id`."""
    credits: dict[NodeName, Credit] = field(default_factory=dict)
    to_report: dict[NodeName, int] = field(default_factory=dict)
    """The event of an install that the node's next report of its engines follows from."""
    reworded: set[NodeName] = field(default_factory=set)
    """Nodes that say something else about an install, which refusals of models do not say yet."""
    shown: dict[NodeName, dict[str, EngineView]] = field(default_factory=dict)
    """By `engine_id`, as it was published; the inner ones are replaced, never changed."""

    def copy(self) -> "EngineBook":
        """An independent copy."""
        return EngineBook(
            turns=self.turns.copy(),
            wishes=dict(self.wishes),
            since=dict(self.since),
            known=dict(self.known),
            searches=dict(self.searches),
            wanting={engine: set(nodes) for engine, nodes in self.wanting.items()},
            asked=dict(self.asked),
            having={have: set(nodes) for have, nodes in self.having.items()},
            gives=dict(self.gives),
            led=dict(self.led),
            led_on=dict(self.led_on),
            told=dict(self.told),
            credits=dict(self.credits),
            to_report=dict(self.to_report),
            reworded=set(self.reworded),
            shown=dict(self.shown),
        )
