"""What does this node have now? Looks at the machine and at its engines at the start and each minute.

Engines are those that agent.yaml names, probed here, and those that were installed, as the stock has them.

How much memory there is shows at each heartbeat, and another amount makes it look at the machine at once. The machine
and the engines do not wait for each other: a driver that hangs holds up one look only.
"""

import asyncio
import logging
from collections.abc import Collection
from dataclasses import replace

from llmgw.agent.discovery import memory
from llmgw.agent.discovery import usage as now
from llmgw.agent.discovery.inventory import Ours, look
from llmgw.agent.discovery.root import root_of
from llmgw.agent.engines.probe import Engine, probe
from llmgw.agent.engines.stock import Stock, newest_first
from llmgw.agent.environment import engine_environment
from llmgw.agent.news import News
from llmgw.agent.patience import PAUSE, Grievance
from llmgw.agent.worth_telling import worth_telling
from llmgw.config.agent import AgentConfig
from llmgw.core.facts import EngineReport, Engines
from llmgw.core.inventory import Inventory, Usage
from llmgw.host import clock

_log = logging.getLogger(__name__)

EVERY = 60.0
"""Seconds between looks."""
TELL_EVERY = 600.0
"""Seconds after which a look that found nothing new is told all the same: its time is news, too."""
MEMORY = 0.01
"""The share by which the memory must change to be looked at before the minute is over: the host of a virtual machine
may take and give a little all the time."""
MEMORY_EVERY = 10.0
"""Seconds between looks for another amount of memory: where it goes up and down with each heartbeat, its last amount
is looked at all the same."""


class Survey:
    """What was last seen. `engines` is None until the first probe ended, and says when the last one did."""

    def __init__(self, config: AgentConfig, news: News, ours: Ours | None = None, stock: Stock | None = None) -> None:
        """`ours` knows whether a process is an engine of ours; None where there are none. `stock` as none, as well."""
        self._config, self._news, self._ours, self.root = config, news, ours, root_of(config)
        self.inventory: Inventory | None = None
        """As it was last told: what only wobbled since then is not in it."""
        self._ram: memory.Ram | None = None
        self._usage: Usage | None = None
        self.engines: Engines | None = None
        self.stock = stock or Stock.empty()
        self._by_hand: dict[str, Engine] | None = None
        self._told_at = 0.0
        self._looking = Grievance(_log, "the machine cannot be looked at")
        self._reading = Grievance(_log, "heartbeats repeat the last usage")
        self._other_ram = asyncio.Event()
        self._rested_at = 0.0
        """On the loop's clock: when another amount of memory may be looked at again."""
        self.described, self.probed = asyncio.Event(), asyncio.Event()
        """Set when the machine, and when its engines, were looked at for the first time."""

    def engine(self, name: str, version: str = "") -> Engine | None:
        """An engine as it was last seen, None when the node has none of this name.

        Without a version it is the one that agent.yaml names, else the newest that is whole; of a version that the node
        does not have it is that one, too.
        """
        engines = [engine for engine in self._all() if engine.report.engine == name]
        exact = [engine for engine in engines if version and engine.report.version == version]
        named = [engine for engine in engines if engine.report.by_hand]
        return next(iter((*exact, *named, *newest_first(engines))), None)

    async def settled(self, name: str, version: str) -> None:
        """Wait until all engines were looked at, or this very one: after a power cut an engine need not wait for
        another that takes a minute to say its version."""
        while not (self.probed.is_set() or self._has(name, version)):
            come = self.stock.changed.after(self.stock.changed.count)
            waits = [asyncio.create_task(self.probed.wait()), asyncio.create_task(come)]
            try:
                await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for task in waits:
                    task.cancel()

    def _has(self, name: str, version: str) -> bool:
        return any((one.report.engine, one.report.version) == (name, version) for one in self._all())

    def _all(self) -> list[Engine]:
        """By hand and installed, sorted; what agent.yaml names at a version stands for the installed one of it."""
        found = {(engine.report.engine, engine.report.version): engine for engine in self.stock.engines()}
        found |= {(name, engine.report.version): engine for name, engine in (self._by_hand or {}).items()}
        return [found[key] for key in sorted(found)]

    async def run(self) -> None:
        """Look now and again each minute, for ever; rings when something is not as it was."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._watch_machine(), name="machine")
            group.create_task(self._watch_engines(), name="engines")
            group.create_task(self._watch_stock(), name="installed engines")

    async def _watch_machine(self) -> None:
        while True:
            self._other_ram.clear()
            await self.look()
            await self._pause(EVERY if self.described.is_set() else PAUSE)

    async def _watch_engines(self) -> None:
        while True:
            await self.probe()
            await asyncio.sleep(EVERY)

    async def _watch_stock(self) -> None:
        await self.stock.inspected.wait()
        while True:
            seen = self.stock.changed.count
            self._tell_engines()
            await self.stock.changed.after(seen)

    def usage(self) -> Usage:
        """The node's usage now, for a heartbeat; calls for another look when there is not as much memory as there was.

        What the kernel does not say in this moment (an agent without a free descriptor cannot ask) is repeated as it
        was said last: the heartbeat says first of all that we live. To be called once `described` is set.
        """
        assert self._usage is not None
        try:
            ram, self._usage = now.usage(self.root, self._usage.gpu_used)
        except OSError as error:
            self._reading.tell(error)
            return self._usage
        self._reading.over()
        if _differs(self._ram, ram):
            self._other_ram.set()
        return self._usage

    async def _pause(self, seconds: float) -> None:
        """Wait until the next look is due; when the memory changed meanwhile, look at the machine, but not soon after
        another look for that."""
        loop = asyncio.get_running_loop()
        due = loop.time() + seconds
        while await _set_before(due, self._other_ram):
            await asyncio.sleep(min(self._rested_at, due) - loop.time())
            if self._rested_at > due:
                return
            self._rested_at = loop.time() + MEMORY_EVERY
            self._other_ram.clear()
            await self.look()

    async def look(self) -> None:
        """Look at the machine once."""
        try:
            seen = await look(self._config, self.root, ours=self._ours, before=self.inventory)
        except OSError as error:
            self._looking.tell(error)
            return
        self._looking.over()
        self._ram = seen.ram
        before = self._usage or Usage(memory_available=seen.available)
        self._usage = replace(before, gpu_used=seen.gpu_used)
        if worth_telling(self.inventory, seen.inventory):
            self._log_machine(self.inventory, seen.inventory)
            self.inventory = seen.inventory
            self._news.ring()
        self.described.set()

    @staticmethod
    def _log_machine(told: Inventory | None, found: Inventory) -> None:
        for what, before, problem in (
            ("GPUs", told.gpu_problem if told else "", found.gpu_problem),
            ("fabric adapters", told.adapter_problem if told else "", found.adapter_problem),
            ("machine", told.machine_problem if told else "", found.machine_problem),
        ):
            if problem and problem != before:
                _log.warning("%s: %s", what, problem)

    async def probe(self) -> None:
        """Look at the engines that agent.yaml names once."""
        self._by_hand = await probe(self._config.engines, engine_environment())
        self._tell_engines()

    def _tell_engines(self) -> None:
        """Say which there are, once both kinds were looked at: what was not looked at is not said to be missing."""
        if self._by_hand is None or not self.stock.inspected.is_set():
            return
        reports = tuple(engine.report for engine in self._all())
        before = self.engines.engines if self.engines else None
        changed = before != reports
        self.engines = Engines(probed_at=clock.now(), engines=reports)
        if changed:
            self._log_engines(before or ())
        if changed or self.engines.probed_at - self._told_at >= TELL_EVERY:
            self._told_at = self.engines.probed_at
            self._news.ring()
        self.probed.set()

    def _log_engines(self, before: Collection[EngineReport]) -> None:
        for engine in self._all():
            report = engine.report
            if report in before:
                continue
            if report.problem:
                _log.warning("engine %s cannot be used: %s", report.engine, report.problem)
            else:
                _log.info("engine %s %s at %s", report.engine, report.version, report.path)


async def _set_before(due: float, event: asyncio.Event) -> bool:
    try:
        async with asyncio.timeout_at(due):
            return await event.wait()
    except TimeoutError:
        return False


def _differs(before: memory.Ram | None, ram: memory.Ram) -> bool:
    return before is None or abs(before.total - ram.total) > MEMORY * before.total
