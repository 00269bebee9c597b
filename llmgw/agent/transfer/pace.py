"""How far is a file, and how fast does it come?"""

from collections.abc import Callable
from dataclasses import dataclass

from llmgw.agent.rate import Rate
from llmgw.core.units import Bytes

EVERY = 0.5
"""Seconds between two words about it."""


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
        self._rate = Rate()
        self._told: float | None = None

    def begins(self, done: int, now: float) -> None:
        """So many bytes are there that have no part in the rate."""
        self._rate.begins(done, now)
        if self._is_due(now):
            self._say(done, 0.0, now)

    def at(self, done: int, now: float, *, last: bool = False) -> None:
        """So many bytes are there now."""
        if last or self._is_due(now):
            self._say(done, self._rate.at(done, now), now)

    def _is_due(self, now: float) -> bool:
        return self._told is None or now - self._told >= EVERY

    def _say(self, done: int, rate: float, now: float) -> None:
        self._told = now
        self._tell(Moved(done=Bytes(done), total=self._total, rate=rate))
