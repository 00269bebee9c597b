"""What does this node have now? Looks at the machine and at its engines at the start and each minute."""

import asyncio
import logging

from llmgw.agent.discovery.inventory import inventory
from llmgw.agent.engines.probe import Engine, probe
from llmgw.agent.environment import engine_environment
from llmgw.agent.news import News
from llmgw.agent.patience import PAUSE, Grievance
from llmgw.config.agent import AgentConfig
from llmgw.core.facts import Engines, Inventory
from llmgw.host import clock

_log = logging.getLogger(__name__)

EVERY = 60.0
"""Seconds between looks."""
TELL_EVERY = 600.0
"""Seconds after which a look that found nothing new is told all the same: its time is news, too."""


class Survey:
    """What was last seen. `engines` is None until the first probe ended, and says when the last one did."""

    def __init__(self, config: AgentConfig, news: News) -> None:
        self._config, self._news = config, news
        self.inventory: Inventory | None = None
        self.engines: Engines | None = None
        self._known = dict[str, Engine]()
        self._told_at = 0.0
        self._looking = Grievance(_log, "the machine cannot be looked at")
        self.described, self.probed = asyncio.Event(), asyncio.Event()
        """Set when the machine, and when its engines, were looked at for the first time."""

    def engine(self, name: str) -> Engine | None:
        """An engine as it was last seen, None when the node has none of this name."""
        return self._known.get(name)

    async def look(self) -> None:
        """Look once; rings when something is not as it was."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._machine())
            group.create_task(self._engines())

    async def run(self) -> None:
        """Look now and again each minute, for ever."""
        while True:
            await self.look()
            await asyncio.sleep(EVERY if self.described.is_set() else PAUSE)

    async def _machine(self) -> None:
        try:
            found = await inventory(self._config)
        except OSError as error:
            self._looking.tell(error)
            return
        self._looking.over()
        if found != self.inventory:
            self.inventory = found
            if found.gpu_problem:
                _log.warning("GPUs: %s", found.gpu_problem)
            self._news.ring()
        self.described.set()

    async def _engines(self) -> None:
        known = await probe(self._config.engines, engine_environment())
        reports = tuple(known[name].report for name in sorted(known))
        changed = self.engines is None or self.engines.engines != reports
        self._known = known
        self.engines = Engines(probed_at=clock.now(), engines=reports)
        if changed:
            self._log_engines()
        if changed or self.engines.probed_at - self._told_at >= TELL_EVERY:
            self._told_at = self.engines.probed_at
            self._news.ring()
        self.probed.set()

    def _log_engines(self) -> None:
        for engine in self._known.values():
            report = engine.report
            if report.problem:
                _log.warning("engine %s cannot be used: %s", report.engine, report.problem)
            else:
                _log.info("engine %s %s at %s", report.engine, report.version, report.path)
