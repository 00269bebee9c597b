"""How do routers get the route table? Whole, the newest only, encoded once for all of them.

Before the cluster is settled there is none: a router keeps the table it has.
"""

import asyncio
from typing import Protocol

from llmgw.core.views import Routes
from llmgw.daemon.pages import encode_routes
from llmgw.daemon.watch import Send


class Routed(Protocol):
    """Who knows the table: `core.cluster.Cluster`."""

    def routes(self) -> Routes | None:
        """The whole table, or None while it must not be given out."""


class RouteFeed:
    """The table as routers see it."""

    def __init__(self, routed: Routed) -> None:
        self._routed = routed
        self._table: bytes | None = None
        self._readers: set[asyncio.Event] = set()

    def publish(self) -> None:
        """The table changed."""
        self._table = None
        for changed in self._readers:
            changed.set()

    async def watch(self, send: Send) -> None:
        """Send the table now and after each change until cancelled; a slow reader misses those in between."""
        changed = asyncio.Event()
        changed.set()
        self._readers.add(changed)
        try:
            while True:
                await changed.wait()
                changed.clear()
                if (table := self._current()) is not None:
                    await send(table)
        finally:
            self._readers.discard(changed)

    def _current(self) -> bytes | None:
        if self._table is None and (routes := self._routed.routes()) is not None:
            self._table = encode_routes(routes)
        return self._table
