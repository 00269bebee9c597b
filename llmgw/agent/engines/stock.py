"""Which installed engines does the node have, as they were last seen? One list: the installer and the inspector keep
it, who starts and reports engines reads it."""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from llmgw.agent.engines.probe import Engine
from llmgw.agent.news import News
from llmgw.core.engines.installed import Seen, shown
from llmgw.core.engines.installing import Made, Plan
from llmgw.core.facts import EngineReport


@dataclass(frozen=True, slots=True, kw_only=True)
class _Kept:
    seen: Seen
    directory: Path
    environment: Mapping[str, str]


class Stock:
    """The installed engines. `inspected` is set once all that was there at the start was looked at."""

    def __init__(self, ring: Callable[[], None] = lambda: None) -> None:
        """`ring` is called when there is something to tell."""
        self._ring = ring
        self._kept = dict[tuple[str, str], _Kept]()
        self._plans: Sequence[Plan] = ()
        self.changed = News()
        """Rung when an engine came, went, broke or is whole again."""
        self.inspected, self.doubted = asyncio.Event(), asyncio.Event()
        self._told: tuple[Engine, ...] = ()

    @classmethod
    def empty(cls) -> "Stock":
        """Of a node on which nothing is installed, now or ever."""
        stock = cls()
        stock.inspected.set()
        return stock

    # --- for those who read it ----------------------------------------------------------------------------------

    def engines(self) -> tuple[Engine, ...]:
        """Of each engine and version the one that new shards are started with, by name."""
        found = []
        for seen in shown((kept.seen for kept in self._kept.values() if kept.seen.checked_at is not None), self._plans):
            kept, made = self._kept[_key(seen.made)], seen.made
            report = EngineReport(
                engine=made.engine, version=made.version, path=seen.path, problem=seen.problem, variant=made.variant
            )
            found.append(
                Engine(
                    report=report,
                    flags=frozenset(made.flags),
                    environment=kept.environment,
                    directory=str(kept.directory),
                )
            )
        return tuple(found)

    def doubt(self) -> None:
        """Somebody met an engine that does not start: look at all at once."""
        self.doubted.set()

    # --- for those who keep it ----------------------------------------------------------------------------------

    def seen(self) -> tuple[Seen, ...]:
        """All that is installed, whether or not it is shown."""
        return tuple(kept.seen for kept in self._kept.values())

    def made(self) -> list[Made]:
        """As `seen`, without how it was seen."""
        return [seen.made for seen in self.seen()]

    def plan(self, plans: Sequence[Plan]) -> None:
        """Say what is wanted: it decides which of several is shown."""
        self._plans = plans
        self._tell()

    def put(self, made: Made, directory: Path, environment: Mapping[str, str], checked_at: float | None) -> None:
        """There is one more; `checked_at`: when it was seen to be whole."""
        seen = Seen(made=made, path=str(directory / made.program), since=made.at, checked_at=checked_at)
        self._kept[_key(made)] = _Kept(seen=seen, directory=directory, environment=environment)
        self._tell()

    def saw(self, made: Made, problem: str, now: float) -> bool:
        """It was looked at; returns whether that it is broken, or whole, is new."""
        kept = self._kept.get(_key(made))
        if kept is None:
            return False
        before = kept.seen
        since = before.since if problem == before.problem else now
        whole_at = (before.checked_at or made.at) if problem else now
        after = replace(before, problem=problem, since=since, checked_at=whole_at)
        self._kept[_key(made)] = replace(kept, seen=after)
        self._tell()
        return before.problem != problem

    def drop(self, made: Made) -> None:
        """It is gone."""
        self._kept.pop(_key(made), None)
        self._tell()

    def _tell(self) -> None:
        if (engines := self.engines()) != self._told:
            self._told = engines
            self.changed.ring()
        self._ring()


def newest_first(engines: Iterable[Engine]) -> list[Engine]:
    """Sorted for whoever wants any of them: whole ones first, the newest build before older ones."""
    return sorted(engines, key=lambda engine: (not engine.report.problem, _order(engine.report.version)), reverse=True)


def _order(version: str) -> tuple[int, str]:
    digits = "".join(letter for letter in version if letter.isdecimal())
    return int(digits[:18] or "0"), version


def _key(made: Made) -> tuple[str, str]:
    return made.engine, made.name
