"""How long does an agent wait before it dials again?"""

import random

FIRST, LONGEST = 0.2, 30.0
"""Seconds of the first and of the longest wait."""


class Backoff:
    """Waits that double, each spread by half either way so that agents do not come back in step."""

    def __init__(self, dice: random.Random | None = None) -> None:
        self._dice = dice or random.Random()
        self._wait = FIRST

    def reset(self) -> None:
        """The control plane took our registration: the next trouble is a new one."""
        self._wait = FIRST

    def next(self, least: float = 0.0) -> float:
        """Seconds to wait now, `least` or more."""
        wait = max(self._wait, least) * self._dice.uniform(0.5, 1.5)
        self._wait = min(LONGEST, self._wait * 2)
        return min(LONGEST, wait)
