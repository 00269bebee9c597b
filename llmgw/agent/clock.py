"""What time is it for this node? Wall time at the start, and from there the clock that never runs backwards."""

import time

_OFFSET = time.time() - time.monotonic()


def now() -> float:
    """Seconds since 1970 that only grow: setting the host's clock neither ends nor restarts anything."""
    return _OFFSET + time.monotonic()
