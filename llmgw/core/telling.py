"""How often is it told that a node is another than before? A few times at once, then once in a while, summed up.

    a change ─▶ told, while there is credit ─▶ held, with the node as it was last told ─▶ summed up when there is credit

What follows from a change (placement, warnings, views) follows at once, whether it was told or not.
"""

from dataclasses import dataclass, replace

from llmgw.core.state import Node

BURST, EACH = 3, 30.0
"""Changes of one node that are told at once, and seconds after which one more may be."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Telling:
    """What was told of one node lately, and what was not."""

    credit: float = float(BURST)
    """Changes that may be told, as of `at`."""
    at: float
    last: int = 0
    """The event that told the last change: it stands for those that are held."""
    before: Node | None = None
    """The node as it was when the first change was held; None while nothing is."""
    since: float = 0.0
    held: int = 0
    """Changes that are held."""

    @property
    def due(self) -> float | None:
        """When what is held is to be told; None while nothing is."""
        return None if self.before is None else self.at + max(0.0, 1.0 - self.credit) * EACH


def refilled(telling: Telling, now: float) -> Telling:
    """The credit as it is now."""
    return replace(telling, at=now, credit=min(float(BURST), telling.credit + max(0.0, now - telling.at) / EACH))


def may_tell(telling: Telling) -> bool:
    """Whether a change may be told now (of one that is `refilled`); one after those that are held waits with them."""
    return telling.before is None and telling.credit >= 1.0


def told(telling: Telling, event: int) -> Telling:
    """A change was told, with all that was held."""
    return replace(telling, credit=max(0.0, telling.credit - 1.0), last=event, before=None, held=0)


def holding(telling: Telling, before: Node, *, counts: bool) -> Telling:
    """A change is held; `counts` when it is one that an operator would be told in words."""
    first = telling.before is None
    return replace(
        telling,
        before=before if first else telling.before,
        since=telling.at if first else telling.since,
        held=telling.held + counts,
    )
