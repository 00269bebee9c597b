"""How ctl is stopped: the first SIGINT or SIGTERM ends the work, whatever it waits for."""

import asyncio
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from llmgw.ctl.output import Output

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Interrupted(BaseException):
    """Raised out of a write to stdout that nobody reads."""


@contextmanager
def interruptible(out: Output) -> Iterator[list[int]]:
    """Cancel the current task at a signal and yield the list that tells which came; the old handlers come back after.

    The loop's own signal handlers run between two callbacks, and a write to a full pipe is inside one. So these are
    plain handlers, which run at once and break such a write off.
    """
    task, loop = asyncio.current_task(), asyncio.get_running_loop()
    assert task is not None
    came: list[int] = []

    def stop(number: int, frame: FrameType | None) -> None:
        del frame
        came.append(number)
        if out.writing:
            raise Interrupted
        loop.call_soon_threadsafe(task.cancel)

    before = {number: signal.signal(number, stop) for number in _SIGNALS}
    try:
        yield came
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
