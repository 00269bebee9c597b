"""Whose turn is it to download an engine? At most so many nodes at once, so that none of their sources is overrun.

    waits ─▶ holds a turn ─▶ past its download, failed, or away: the turn is the next one's

Who works at a download goes first, then who waits, then who failed and has not said when it tries again; in each by
name. Who held a turn and said nothing for long goes behind all others. Same input, same turns.
"""

from dataclasses import dataclass, field
from enum import IntEnum

from llmgw.core.engines.terms import Install, InstallStep
from llmgw.core.names import NodeName

STALL = 300.0
"""Seconds that a node may hold a turn without a word of progress while others wait."""


class Claim(IntEnum):
    """Why a node should have a turn; the lower goes first."""

    WORKS = 0
    """It downloads already, as it was told before this control plane started."""
    WAITS = 1
    FAILED = 2
    """It gives way to whoever waits."""


_DOWNLOADS = (InstallStep.DOWNLOAD, InstallStep.VERIFY)


def claim_of(install: Install | None, now: float) -> Claim | None:
    """Return why an install, or one not begun, needs a turn; None when it is past that, or rests until a retry."""
    if install is None:
        return Claim.WAITS
    if install.retry_at is not None and install.retry_at > now:
        return None
    if install.step in _DOWNLOADS and not install.problem:
        return Claim.WORKS
    if install.step is InstallStep.RESOLVE and not install.problem:
        return Claim.WAITS
    if not install.turn:
        return None
    if install.total:
        return Claim.WORKS
    return Claim.FAILED if install.problem else Claim.WAITS


@dataclass(slots=True, kw_only=True)
class Turns:
    """The turns of a cluster."""

    most: int
    holding: dict[NodeName, Claim] = field(default_factory=dict)
    waiting: dict[NodeName, Claim] = field(default_factory=dict)
    _stalls: dict[NodeName, int] = field(default_factory=dict)
    """Turns that a node held in vain, in a row."""
    _given: bool = True
    """Nothing is another since turns were given: nodes say how far they are much more often than that matters."""

    def put(self, node: NodeName, claim: Claim | None) -> bool:
        """Take what a node needs now; return whether it gave its turn back."""
        if claim is None:
            self._stalls.pop(node, None)
            self.waiting.pop(node, None)
            had = self.holding.pop(node, None) is not None
            self._given = self._given and not had
            return had
        where = self.holding if node in self.holding else self.waiting
        self._given = self._given and where.get(node) is claim
        where[node] = claim
        return False

    def stalled(self, node: NodeName) -> bool:
        """A node made no use of its turn; return whether it gave it back: while nobody waits it may as well keep it."""
        if node not in self.holding or not self.waiting:
            return False
        self._given = False
        self._stalls[node] = self._stalls.get(node, 0) + 1
        self.waiting[node] = self.holding.pop(node)
        return True

    def give(self) -> set[NodeName]:
        """Give turns to those that wait, and return the nodes that have one now, or have one no more."""
        if self._given:
            return set()
        self._given = True
        free = max(0, self.most - len(self.holding))
        failed = sorted(node for node, claim in self.holding.items() if claim is Claim.FAILED)
        if not self.waiting or not (free or failed):
            return set()
        queue = sorted(self.waiting, key=self._rank)
        given, left = queue[:free], [node for node in queue[free:] if self.waiting[node] is not Claim.FAILED]
        gave = [node for node, _ in zip(failed, left, strict=False)]
        given += left[: len(gave)]
        for node in gave:
            self.waiting[node] = self.holding.pop(node)
        for node in given:
            self.holding[node] = self.waiting.pop(node)
        return {*given, *gave}

    def copy(self) -> "Turns":
        """An independent copy."""
        return Turns(
            most=self.most,
            holding=dict(self.holding),
            waiting=dict(self.waiting),
            _stalls=dict(self._stalls),
            _given=self._given,
        )

    def _rank(self, node: NodeName) -> tuple[int, Claim, str]:
        return self._stalls.get(node, 0), self.waiting[node], node
