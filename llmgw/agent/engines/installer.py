"""How does the node come to the engines that it should have? One task: it plans, installs one at a time, tidies up.

```text
 Desired ─┐                        ┌─▶ an attempt (steps) ─▶ stock ─▶ survey, starter
 machine ─┼─▶ plans ─▶ due ────────┤        │ failed: again later
 stock ───┘   (core.installing)    └─▶ tidy: what nobody needs goes
```
What agent.yaml names by hand is not installed. Nothing here stops a shard: what one runs with stays until it is gone.
"""

import asyncio
import contextlib
import logging
import time
from pathlib import Path
from typing import Protocol

from llmgw.agent.engines.inspector import Inspector
from llmgw.agent.engines.planner import FAULT, Planner
from llmgw.agent.engines.python.interpreter import prune as prune_interpreters
from llmgw.agent.engines.releases import Releases
from llmgw.agent.engines.shelf import Shelf, Unfit
from llmgw.agent.engines.steps import FULL, RESERVE, Attempt, Parts, StepFailed
from llmgw.agent.engines.stock import Stock
from llmgw.agent.news import News
from llmgw.agent.patience import PAUSE, Grievance, words
from llmgw.core.engines import installed, installing
from llmgw.core.engines.installed import Progress
from llmgw.core.engines.installing import Made, Plan, Target, Trial
from llmgw.core.engines.orders import Release
from llmgw.core.engines.terms import Install, InstallStep
from llmgw.core.errors import LlmgwError
from llmgw.core.link import Desired
from llmgw.core.units import size
from llmgw.host import clock
from llmgw.host.threads import aside

_log = logging.getLogger(__name__)

_TELL_EVERY = 0.5
"""Seconds between tellings of bytes."""


class Wants(Protocol):
    """What the node should run, and what it runs."""

    obeyed: Desired | None

    async def running(self) -> frozenset[str]:
        """The directories of installed engines that its shards run with, or may be about to."""


class Installer:
    """Installs what `wants` says, by the plans that `planner` makes of it."""

    def __init__(
        self,
        planner: Planner,
        shelf: Shelf,
        parts: Parts,
        releases: Releases,
        stock: Stock,
        inspector: Inspector,
        wants: Wants,
        news: News,
    ) -> None:
        self._planner, self._shelf, self._parts, self._releases = planner, shelf, parts, releases
        self._stock, self._inspector, self._wants, self._news = stock, inspector, wants, news
        self._plans = list[Plan]()
        self._look_at = float("inf")
        """When to look again though nothing happened: the disk did not answer."""
        self._trials = dict[str, Trial]()
        self._attempt: tuple[Plan, Progress] | None = None
        self._rang = 0.0
        self._running = frozenset[str]()
        self._planning = Grievance(_log, "what is to be installed cannot be told")
        self._tidying = Grievance(_log, "what nobody needs any more cannot be removed")

    def installs(self) -> tuple[Install, ...]:
        """All installs as they are now."""
        used = {seen.key for seen in self._stock.seen() if str(self._shelf.directory(seen.made)) in self._running}
        return installed.installs(self._stock.seen(), self._plans, self._attempt, self._trials, used)

    async def run(self) -> None:
        """Install for ever. To be started once the node and its machine are known."""
        await self._stock.inspected.wait()
        while True:
            seen = self._news.count
            plan = await self._due()
            if plan is not None:
                await self._work(plan)
                continue
            await self._tidy()
            await self._rest(seen)

    async def _rest(self, seen: int) -> None:
        """Wait until something changed or is due."""
        due = min(installing.next_due(self._plans, self._trials) or float("inf"), self._look_at)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(None if due == float("inf") else max(0.0, due - clock.now())):
                await self._news.after(seen)

    # --- what to do ---------------------------------------------------------------------------------------------

    async def _due(self) -> Plan | None:
        await self._plan()
        return installing.due(self._plans, self._trials, clock.now())

    async def _plan(self) -> None:
        """See how things are."""
        try:
            running = await self._wants.running()
            plans = await self._planner.plans(self._wants.obeyed)
        except OSError as error:
            self._planning.tell(error)
            self._look_at = clock.now() + PAUSE
            return
        self._planning.over()
        self._look_at = float("inf")
        if (plans, running) != (self._plans, self._running):
            self._plans, self._running = plans, running
            self._stock.plan(plans)
            self._news.ring()

    # --- doing it -----------------------------------------------------------------------------------------------

    async def _work(self, plan: Plan) -> None:
        """Try once, unless what is wanted changes meanwhile."""
        async with asyncio.TaskGroup() as group:
            trying = group.create_task(self._try(plan), name=f"install {plan.order.engine} {plan.order.version}")
            minding = group.create_task(self._mind(plan), name=f"is {plan.order.engine} still meant")
            await asyncio.wait([trying, minding], return_when=asyncio.FIRST_COMPLETED)
            trying.cancel()
            minding.cancel()
        self._attempt = None
        await self._clear()
        await self._plan()
        self._news.ring()

    async def _clear(self) -> None:
        """Remove what the try left half-made."""
        try:
            await aside(self._shelf.clear)
        except OSError as error:
            self._tidying.tell(error)

    async def _mind(self, plan: Plan) -> None:
        """Return when the plan is of no use any more."""
        seen = self._news.count
        while True:
            await self._news.after(seen)
            seen = self._news.count
            try:
                plans = await self._planner.plans(self._wants.obeyed)
            except OSError:
                continue  # what cannot be told now ends nothing
            if not installing.still_meant(plan, plans):
                return

    async def _try(self, plan: Plan) -> None:
        """One try, with its end; whatever that is, the node goes on."""
        began = clock.now()
        self._tell(plan, Progress(step=InstallStep.RESOLVE, since=began))
        try:
            await self._step(plan)
        except StepFailed as error:
            self._failed(plan, str(error), full=error.full, asked_for=error.retry_after)
        except OSError as error:
            full = error.errno in FULL
            self._failed(plan, await self._no_room(error) if full else words(error), full=full)
        except (LlmgwError, Unfit) as error:
            self._failed(plan, str(error))
        except Exception:  # the supervisor of installs: a fault over one engine must not take the others along
            _log.exception("engine %s %s: its install met a fault of ours", plan.order.engine, plan.order.version)
            self._failed(plan, FAULT)
        else:
            self._trials.pop(plan.order.engine, None)

    async def _no_room(self, error: OSError) -> str:
        """Which room there is none of: bytes, or what is counted beside them."""
        try:
            free = await aside(self._shelf.free)
        except OSError:
            return words(error)
        why = ": are its inodes or a quota used up?" if free > RESERVE else ""
        return f"{error.filename or self._shelf.root}: no space left, {size(free)} are free{why or '; make room there'}"

    async def _step(self, plan: Plan) -> None:
        """Find out what the order consists of, mend what is there, or make it."""
        if plan.target is None:
            await self._releases.ask(self._planner.needed(plan.order))
            return
        made = installing.current(plan.target, self._stock.made())
        if made is not None and await self._mended(plan, plan.target, made):
            return
        release = await self._releases.kept(plan.target.release)
        assert release is not None  # its files are the target's
        await self._make(plan, plan.target, release)

    async def _mended(self, plan: Plan, target: Target, made: Made) -> bool:
        """Whether an installed engine is whole with no more than libraries of the system."""
        self._tell(plan, Progress(step=InstallStep.LIBRARIES, since=clock.now()))

        def say(subject: str) -> None:
            self._tell(plan, Progress(step=InstallStep.LIBRARIES, since=clock.now(), subject=subject))

        with contextlib.suppress(StepFailed):
            await self._parts.libraries(target, self._shelf.tree(made), say)
        return await self._inspector.is_whole(made)

    async def _make(self, plan: Plan, target: Target, release: Release) -> None:
        began = time.monotonic()
        attempt = Attempt(plan, target, release, self._shelf, self._parts, lambda progress: self._tell(plan, progress))
        about = f"{target.engine} {target.version} ({target.variant or 'one variant'})"
        _log.info("engine %s: to be installed, %s", about, size(sum(file.size for file in target.files)))
        place, made = await attempt.run()
        putting = asyncio.create_task(self._put(place, made), name=f"put {made.name}")
        try:
            await asyncio.shield(putting)
        except asyncio.CancelledError:
            await asyncio.wait([putting])  # a moment: half of it would be nobody's
            raise
        _log.info("engine %s: installed in %.0fs, it says %s", about, time.monotonic() - began, made.said)

    async def _put(self, place: Path, made: Made) -> None:
        await aside(self._shelf.put, place, made)
        await self._inspector.take(made, checked_at=made.at)

    def _failed(self, plan: Plan, problem: str, *, full: bool = False, asked_for: float | None = None) -> None:
        assert self._attempt is not None
        at, now, engine = self._attempt[1], clock.now(), plan.order.engine
        trial = installing.failed(
            self._trials.get(engine), plan, at.step, problem, since=at.since, now=now, full=full, asked_for=asked_for
        )
        self._trials[engine] = trial
        again = trial.retry_at - now
        text = "engine %s %s: not installed, %s failed: %s; tried again in %.0fs"
        _log.warning(text, engine, plan.order.version, at.step.value, problem, again)

    def _tell(self, plan: Plan, progress: Progress) -> None:
        """A step at once, its bytes now and then."""
        before, self._attempt = self._attempt, (plan, progress)
        now = time.monotonic()
        if before is None or before[1].step is not progress.step or now - self._rang >= _TELL_EVERY:
            self._rang = now
            self._news.ring()

    # --- what may go --------------------------------------------------------------------------------------------

    async def _tidy(self) -> None:
        desired = self._wants.obeyed
        if desired is None:
            return
        made = self._stock.made()
        broken = {seen.made.name for seen in self._stock.seen() if seen.problem}
        in_use = {one.name for one in made if str(self._shelf.directory(one)) in self._running}
        versions = {(order.profile.engine, order.profile.version) for order in desired.shards}
        gone = installing.surplus(
            made, self._plans, broken=broken, in_use=in_use, versions=versions, settled=desired.settled
        )
        try:
            await aside(self._shelf.clear)
            for one in gone:
                _log.info("engine %s %s (%s): removed, nothing needs it", one.engine, one.version, one.variant)
                self._stock.drop(one)
                await aside(self._shelf.remove, one)
            await aside(self._shelf.remove_strays, self._running)
            await self._prune()
        except OSError as error:
            self._tidying.tell(error)
            self._look_at = clock.now() + PAUSE
        else:
            self._tidying.over()

    async def _prune(self) -> None:
        """Remove downloads of what is neither installed nor wanted, unless what is wanted is not known yet."""
        if any(plan.target is None and plan.order.releases for plan in self._plans):
            return
        targets = [plan.target for plan in self._plans if plan.target is not None]
        kept: list[Made | Target] = [*self._stock.made(), *targets]
        digests = {digest for one in kept for digest in one.digests}
        named = {ref.id for plan in self._plans for ref in plan.order.releases}
        await aside(self._shelf.prune, digests, {*named, *(one.release for one in kept)})
        await aside(prune_interpreters, self._shelf.cache, digests)
