"""What time is it? Wall time at the start, and from there the clock that never runs backwards."""

import time

_OFFSET = time.time() - time.monotonic()


def now() -> float:
    """Seconds since 1970 that only grow: setting the host's clock expires nothing and calls no node lost."""
    return _OFFSET + time.monotonic()
