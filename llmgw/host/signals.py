"""What is a program told by signals?

SIGTERM or SIGINT: stop; the first asks, the second has its usual effect. SIGHUP: read your configuration again.
"""

import asyncio
import logging
import signal

_log = logging.getLogger(__name__)

_ASKING = (signal.SIGTERM, signal.SIGINT)


def stop_signal() -> asyncio.Event:
    """Return an event that the first signal sets. The handlers come off then, so that a second one kills."""
    stop, loop = asyncio.Event(), asyncio.get_running_loop()

    def first(number: signal.Signals) -> None:
        _log.info("%s: stopping", number.name)
        for each in _ASKING:
            loop.remove_signal_handler(each)
            signal.signal(each, signal.SIG_DFL)
        stop.set()

    for each in _ASKING:
        loop.add_signal_handler(each, first, each)
    return stop


def hangup_signal() -> asyncio.Event:
    """Return an event that each SIGHUP sets; whoever acts on it clears it."""
    hangup = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, hangup.set)
    return hangup
