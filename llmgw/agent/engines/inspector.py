"""Are the installed engines whole still? Looked at when the agent starts, now and then, and when one is doubted.

What is found broken is told at once and is not started any more; what runs is left alone.
"""

import asyncio
import contextlib
import logging

from llmgw.agent.engines.apart import end_left
from llmgw.agent.engines.shelf import Shelf
from llmgw.agent.engines.steps import Parts, StepFailed
from llmgw.agent.engines.stock import Stock
from llmgw.agent.patience import Grievance, until_done
from llmgw.core.brief import some
from llmgw.core.engines.installing import Made
from llmgw.host import clock
from llmgw.host.threads import aside

_log = logging.getLogger(__name__)

_SHOWN = 3
_REST = 5.0
"""Seconds between looks: a shard that fails again and again doubts its engine each time."""


class Inspector:
    """Keeps `stock` true of what is on the shelf."""

    def __init__(
        self, shelf: Shelf, parts: Parts, stock: Stock, described: asyncio.Event, every: float = 600.0
    ) -> None:
        """`described` is set once it is known what the machine has: a build for GPUs is looked at with them. `every`:
        seconds between looks."""
        self._every, self._rest = every, min(every, _REST)
        self._shelf, self._parts, self._stock, self._described = shelf, parts, stock, described
        self._opening = Grievance(_log, "what is installed cannot be read, so no installed engine is used yet")
        self._looking = Grievance(_log, "installed engines cannot be looked at")

    async def run(self) -> None:
        """Take up what is there, then look at it for ever."""
        await until_done(self._open, self._opening)
        await self._described.wait()
        while True:
            self._stock.doubted.clear()
            await self.look()
            self._stock.inspected.set()
            await asyncio.sleep(self._rest)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._every - self._rest):
                    await self._stock.doubted.wait()

    async def look(self) -> None:
        """Look at all of them once, one after another: none of that is urgent enough to load the node with."""
        for made in self._stock.made():
            await self.look_at(made)

    async def look_at(self, made: Made) -> None:
        """Look at one; what cannot be told now stays as it was."""
        try:
            await self.is_whole(made)
        except OSError as error:
            self._looking.tell(error)
        except Exception:  # the supervisor of looks: a fault over one engine must not take the node along
            _log.exception("engine %s %s: looking at it met a fault of ours", made.engine, made.version)
        else:
            self._looking.over()

    async def is_whole(self, made: Made) -> bool:
        """Look at one, and return what was found. Raises OSError where that cannot be told now."""
        try:
            await self._look_at(made)
        except StepFailed as error:
            if self._stock.saw(made, str(error), clock.now()):
                _log.error("engine %s %s is broken: %s", made.engine, made.version, error)
            return False
        if self._stock.saw(made, "", clock.now()):
            _log.info("engine %s %s is whole again", made.engine, made.version)
        return True

    async def _look_at(self, made: Made) -> None:
        if changed := await aside(self._shelf.changed, made):
            are = "is" if len(changed) == 1 else "are"
            raise StepFailed(f"{some(changed, _SHOWN)} {are} gone or changed since it was installed")
        await self._parts.recheck(made, self._shelf.tree(made))

    async def take(self, made: Made, *, checked_at: float | None) -> None:
        """Take up one that is on the shelf."""
        tree = self._shelf.tree(made)
        environment = await aside(self._parts.environment_of, made, tree)
        self._stock.put(made, self._shelf.directory(made), environment, checked_at)

    async def _open(self) -> None:
        await end_left(self._shelf.root)  # it would go on writing into what is cleared
        await aside(self._shelf.open)
        for made in await aside(self._shelf.made):
            await self.take(made, checked_at=None)
