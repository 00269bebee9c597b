"""What time is it for the cluster? Wall time at the start, and from there the clock that never runs backwards."""

import time


class Clock:
    """Seconds since 1970 that only grow: setting the host's clock expires nothing and calls no node lost."""

    def __init__(self) -> None:
        self._offset = time.time() - time.monotonic()

    def now(self) -> float:
        """The time now."""
        return self._offset + time.monotonic()
