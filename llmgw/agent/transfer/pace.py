"""How far is a file, and how fast does it come?"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from llmgw.core.units import Bytes

EVERY = 0.5
"""Seconds between two words about it."""
WINDOW = 5.0
"""Seconds over which the rate is taken: shorter ones jump, longer ones hide that it hangs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Moved:
    """Progress of one file. `rate` is in bytes per second over the last seconds."""

    done: Bytes
    total: Bytes
    rate: float


class Pace:
    """Tells how far it is, at most twice a second, and once at the end. `now` is of a clock that only goes forward."""

    def __init__(self, total: Bytes, tell: Callable[[Moved], None]) -> None:
        self._total, self._tell = total, tell
        self._seen = deque[tuple[float, int]]()
        self._told: float | None = None

    def begins(self, done: int, now: float) -> None:
        """So many bytes are there that have no part in the rate."""
        self._seen.clear()
        self._seen.append((now, done))
        self._say(now)

    def at(self, done: int, now: float, *, last: bool = False) -> None:
        """So many bytes are there now."""
        if self._told is not None and now - self._told < EVERY and not last:
            return
        while len(self._seen) > 1 and now - self._seen[0][0] > WINDOW:
            self._seen.popleft()
        self._seen.append((now, done))
        self._say(now, last=last)

    def _say(self, now: float, *, last: bool = False) -> None:
        if self._told is not None and now - self._told < EVERY and not last:
            return
        self._told = now
        (began, first), (ended, done) = self._seen[0], self._seen[-1]
        rate = (done - first) / (ended - began) if ended > began else 0.0
        self._tell(Moved(done=Bytes(done), total=self._total, rate=rate))
