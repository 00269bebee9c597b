"""How do routers get the route table? Whole, the newest only, encoded once for all of them.

Before the cluster is settled there is none: a router keeps the table it has.
"""

import asyncio

from llmgw.core.routes import Routes
from llmgw.daemon.pages import encode_routes
from llmgw.daemon.watch import Send


class RouteFeed:
    """The table as routers see it: what `publish` was given last, and nothing that came about since."""

    def __init__(self) -> None:
        self._table: Routes | None = None
        self._encoded: bytes | None = None
        self._readers: set[asyncio.Event] = set()

    def publish(self, table: Routes) -> None:
        """Routers get this one from now on."""
        self._table, self._encoded = table, None
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
                if (table := self._bytes()) is not None:
                    await send(table)
        finally:
            self._readers.discard(changed)

    def _bytes(self) -> bytes | None:
        if self._encoded is None and self._table is not None:
            self._encoded = encode_routes(self._table)
        return self._encoded
