"""How do routers hear which nodes to try? Each router that is there, each attempt, of one node only the newest.

A router answers in a call of its own, and two may have one certificate. So each stream has a name that only its reader
hears: an attempt has it, and the answer gives it back.
"""

import asyncio
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from llmgw.core.names import NodeName
from llmgw.core.routes import Attempt
from llmgw.daemon.watch import Send
from llmgw.wire.convert import to_wire
from llmgw.wire.operator import v1


class Attempts:
    """What one router has still to be sent; at most one attempt a node."""

    def __init__(self) -> None:
        self.stream = secrets.token_hex(16)
        self._waiting: dict[NodeName, bytes] = {}
        self._more = asyncio.Event()

    def put(self, attempt: Attempt) -> None:
        """Goes out after those that wait, in the place of an older one of its node."""
        self._waiting.pop(attempt.node, None)
        self._waiting[attempt.node] = bytes(to_wire(replace(attempt, stream=self.stream), v1.Attempt))
        self._more.set()

    async def send_each(self, send: Send) -> None:
        """Send attempts as they come until cancelled."""
        while True:
            await self._more.wait()
            self._more.clear()
            while self._waiting:
                await send(self._waiting.pop(next(iter(self._waiting))))


class AttemptFeed:
    """All routers that are there."""

    def __init__(self) -> None:
        self._readers: set[Attempts] = set()

    def publish(self, attempt: Attempt) -> None:
        """Let every router that is there try this."""
        for reader in self._readers:
            reader.put(attempt)

    @contextmanager
    def reading(self) -> Iterator[Attempts]:
        """A router is there for the time of the block; it misses no attempt that is published meanwhile."""
        reader = Attempts()
        self._readers.add(reader)
        try:
            yield reader
        finally:
            self._readers.discard(reader)
