"""When is trouble with the control plane told? A cause once, and again after a while: one that lasts for days must not
fill a disk."""

import logging
from collections.abc import Callable

_SAY_AGAIN = 600.0


class Complaint:
    """One kind of trouble; `what` is said before its cause."""

    def __init__(self, log: logging.Logger, what: str, clock: Callable[[], float]) -> None:
        self._log, self._what, self._clock = log, what, clock
        self._told, self._told_at = "", 0.0

    def tell(self, why: str, fault: Exception | None) -> None:
        """It is in trouble; `fault` is one of ours, if that is why."""
        now = self._clock()
        if why != self._told or now >= self._told_at + _SAY_AGAIN:
            self._told, self._told_at = why, now
            self._log.log(logging.ERROR if fault else logging.WARNING, "%s: %s", self._what, why, exc_info=fault)

    def over(self) -> None:
        """It is not: the same cause would be news."""
        self._told = ""
