"""Where does the route table come from? From the control plane, for ever; from disk until it is reached.

A table stays in use while the control plane is away: an engine is dropped when the control plane says so, not when
the control plane is silent.
"""

import asyncio
import contextlib
import logging
import random
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from pathlib import Path

from llmgw.core.errors import LlmgwError
from llmgw.core.routes import Routes
from llmgw.core.routing import out_of_reach
from llmgw.core.units import several
from llmgw.router import remember
from llmgw.router.complaint import Complaint
from llmgw.router.table import Table

log = logging.getLogger(__name__)

Watch = Callable[[], AsyncGenerator[Routes, None]]
"""Opens one watch: yields whole tables, newest last, and raises LlmgwError or ends when the control plane is gone."""

_FIRST, _LONGEST = 0.2, 10.0


class Feed:
    """Keeps the table up to date and its copy on disk."""

    def __init__(
        self,
        table: Table,
        watch: Watch,
        state: Path,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._table, self._watch, self._state, self._sleep = table, watch, state, sleep
        self.live = False
        """The control plane is connected and has sent a table."""
        self._unsaved: Routes | None = None
        self._more = asyncio.Event()
        self._saving = asyncio.Lock()
        self._far: tuple[str, ...] = ()
        self._complaint = Complaint(log, "no routes from control", clock)

    def recall(self) -> None:
        """Take the table that was kept on disk, if there is one."""
        try:
            routes = remember.load(self._state)
        except remember.BadMemory as error:
            log.warning("%s; starting without routes until the control plane is reached", error)
            return
        if routes is not None:
            self._take(routes)
            log.info("routes %s from disk: %s", routes.revision, several(len(routes.routes), "model"))

    async def run(self) -> None:
        """Follow the control plane for ever."""
        pause = _FIRST
        while True:
            why, fault = "it ended the stream", None
            try:
                async with contextlib.aclosing(self._watch()) as watch:
                    async for routes in watch:
                        pause = _FIRST
                        self._live(routes)
            except LlmgwError as error:
                why = str(error)
            except Exception as error:
                # The one supervisor: a fault in reading routes must not end the requests that have some.
                why, fault = f"a fault of ours, {error!r}", error
            self.live = False
            self._complaint.tell(why, fault)
            await self._sleep(pause * random.uniform(0.5, 1.0))
            pause = min(pause * 2, _LONGEST)

    def _live(self, routes: Routes) -> None:
        if not self.live:
            log.info("routes %s: %s, live", routes.revision, several(len(routes.routes), "model"))
        self.live = True
        self._complaint.over()
        self._take(routes)
        self._unsaved = routes
        self._more.set()

    def _take(self, routes: Routes) -> None:
        self._table.update(routes)
        far = self._table.elsewhere
        if far and far != self._far:
            log.warning(out_of_reach(far))
        self._far = far

    async def keep(self) -> None:
        """Write each new table to disk; one that was overtaken before it was written is passed over."""
        while True:
            await self._more.wait()
            self._more.clear()
            await self.save()

    async def save(self) -> None:
        """Write the newest table to disk, unless it is there."""
        async with self._saving:
            routes, self._unsaved = self._unsaved, None
            if routes is None:
                return
            try:
                await asyncio.to_thread(remember.save, self._state, routes)
            except OSError as error:
                log.warning("%s: the route table is not kept: %s", self._state, error.strerror)
