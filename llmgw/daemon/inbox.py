"""What is taken next, in which order, and was anybody deaf meanwhile?

What came in is taken before time passes: a sign of life that waits here must count before its node is called silent.

The reader looks here several times in a beat. When it did not for longer (the process was stopped, the machine slept,
or the disk took its time) signs of life lie unread in sockets, and not only here; then `Overslept` is taken first.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field

from llmgw.core.inputs import Input, Overslept, Tick
from llmgw.core.views import Done

BATCH = 256
"""Inputs taken at once."""


@dataclass(slots=True, eq=False)
class Waiting:
    """An input, when it came in, and whoever waits until it is dealt with."""

    happened: Input
    at: float
    answer: asyncio.Future[Done | None] = field(default_factory=lambda: asyncio.get_running_loop().create_future())


class Inbox:
    """Inputs on their way to one reader. `beat`: seconds between signs of life of a node."""

    def __init__(self, now: Callable[[], float], beat: float) -> None:
        self._now, self._beat = now, beat
        self._waiting: deque[Waiting] = deque()
        self._changed = asyncio.Event()
        self._looked = now()
        self.closed = False

    def put(self, happened: Input) -> asyncio.Future[Done | None]:
        """Queue an input; the future is for the reader to resolve."""
        one = Waiting(happened, self._now())
        self._waiting.append(one)
        self._changed.set()
        return one.answer

    def close(self) -> None:
        """Let the reader know that it should end when nothing waits any more."""
        self.closed = True
        self._changed.set()

    async def take(self, due: float | None) -> list[Waiting]:
        """Wait for inputs, or until `due`, and return them, oldest first. Only a closed inbox returns nothing.

        A Tick is last, once all that came in before `due` is taken.
        """
        slept = await self._wait(due)
        now = self._now()
        taken = [Waiting(Overslept(seconds=slept), now)] if slept else []
        while self._waiting and len(taken) < BATCH:
            taken.append(self._waiting.popleft())
        if due is not None and due <= now and not (self._waiting and self._waiting[0].at < due):
            taken.append(Waiting(Tick(), now))
        return taken

    async def _wait(self, due: float | None) -> float:
        """Wait for something to take; return how long nobody looked, if that was longer than a beat, else 0."""
        while True:
            now = self._now()
            since, self._looked = now - self._looked, now
            if since > self._beat:
                return since
            if self._waiting or self.closed or (due is not None and due <= now):
                return 0.0
            self._changed.clear()
            nap = self._beat / 2 if due is None else min(self._beat / 2, due - now)
            with suppress(TimeoutError):
                async with asyncio.timeout(nap):
                    await self._changed.wait()
