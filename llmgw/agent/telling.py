"""What is new of this node since it was told in this session, and when may it be told?

Installs move all the time while something is downloaded: they are told at most twice a second.
"""

from collections.abc import Callable, Iterator
from typing import Protocol

from llmgw.core.engines.terms import Install, Installs
from llmgw.core.facts import Engines, ShardReport
from llmgw.core.inventory import Inventory
from llmgw.core.link import AgentMessage, Listening, Registration, Report

INSTALLS_EVERY = 0.5
"""Seconds between tellings of installs."""


class Shards(Protocol):
    """Who knows the node's shards."""

    def reports(self) -> tuple[ShardReport, ...]:
        """Every shard as it is now."""


class Sight(Protocol):
    """Who knows the node and its engines."""

    inventory: Inventory | None
    engines: Engines | None


class Installing(Protocol):
    """Who knows how far installs are."""

    def installs(self) -> tuple[Install, ...]:
        """All installs as they are now."""


class Telling:
    """What one session was told; starts with its registration."""

    def __init__(
        self,
        told: Registration,
        shards: Shards,
        sight: Sight,
        installing: Installing,
        answer: Callable[[], Listening | None],
        now: float,
    ) -> None:
        """`answer` gives, once each, what the control plane is to be answered. `now` is on the loop's clock, as all
        times here."""
        self._shards, self._sight, self._installing, self._answer = shards, sight, installing, answer
        self._inventory, self._engines, self._reports = told.inventory, told.engines, told.shards
        self._installs, self._installs_at = told.installs, now

    def due(self) -> float | None:
        """When installs that are not told yet may be told; None when there are none."""
        return None if self._installing.installs() == self._installs else self._installs_at + INSTALLS_EVERY

    def new(self, now: float) -> Iterator[AgentMessage]:
        """Yield what is to be sent now; whoever takes it sends it."""
        if (listening := self._answer()) is not None:
            yield listening
        if (report := self._report()) is not None:
            yield report
        if now >= self._installs_at + INSTALLS_EVERY and (found := self._installing.installs()) != self._installs:
            self._installs, self._installs_at = found, now
            yield Installs(installs=found)

    def _report(self) -> Report | None:
        """Shards each time, the others when they are new."""
        shards, inventory, engines = self._shards.reports(), self._sight.inventory, self._sight.engines
        report = Report(
            shards=shards,
            engines=None if engines is self._engines else engines,
            inventory=None if inventory == self._inventory else inventory,
        )
        if report == Report(shards=self._reports):
            return None
        self._inventory, self._engines, self._reports = inventory or self._inventory, engines, shards
        return report
