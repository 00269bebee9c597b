"""How long does an agent wait before it dials again?"""

import random

FIRST, LONGEST = 0.2, 5.0
"""Seconds of the first and of the longest wait: a network that is whole again should be noticed within seconds."""
STEADY = 60.0
"""Seconds of being registered after which the next trouble is a new one."""


class Backoff:
    """Waits that double, each anywhere up to its length so that agents do not come back in step."""

    def __init__(self, dice: random.Random | None = None) -> None:
        self._dice = dice or random.Random()
        self._wait = FIRST

    def was_registered(self, seconds: float) -> None:
        """A session ended that was registered for so long. One that was cut at once says nothing of better times: a
        control plane that takes every agent and drops it must not have them all back at once."""
        if seconds >= STEADY:
            self._wait = FIRST

    def next(self, least: float = 0.0) -> float:
        """Seconds to wait now; `least` / 2 or more."""
        wait = max(self._wait, least)
        self._wait = min(LONGEST, self._wait * 2)
        return self._dice.uniform(least / 2, wait)
