"""How fast does something go? Bytes per second, over the last seconds."""

from collections import deque

WINDOW = 5.0
"""Seconds over which a rate is taken: shorter ones jump, longer ones hide that it hangs."""


class Rate:
    """Of what is counted up. `now` is of a clock that only goes forward."""

    def __init__(self) -> None:
        self._seen = deque[tuple[float, int]]()

    def begins(self, done: int, now: float) -> None:
        """So much is there that has no part in it."""
        self._seen.clear()
        self._seen.append((now, done))

    def at(self, done: int, now: float) -> float:
        """The rate now that so much is there; 0.0 at first."""
        while len(self._seen) > 1 and now - self._seen[0][0] > WINDOW:
            self._seen.popleft()
        self._seen.append((now, done))
        began, first = self._seen[0]
        return (done - first) / (now - began) if now > began else 0.0
