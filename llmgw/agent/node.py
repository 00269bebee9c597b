"""How is Desired made so? One task owns the node's shards: it takes what happened, decides, and starts the work.

```text
 link ─ Desired ─┐                          ┌─▶ launch, stop, forget (a task each)
                 ├─▶ inbox ─▶ core.converge ─┤
 jobs, watches ──┘   (one writer)           └─▶ records on disk, news for the link
```
"""

import asyncio
import contextlib
import logging
from collections import deque
from functools import partial

from llmgw.agent.engines.probe import ADAPTERS
from llmgw.agent.launch import log
from llmgw.agent.launch.launcher import Alive, Exit, Launcher
from llmgw.agent.news import News
from llmgw.agent.patience import PAUSE, TROUBLE, Grievance, until_done, words
from llmgw.agent.records import Records
from llmgw.agent.start import CannotStart, Starter
from llmgw.agent.watch import Watch
from llmgw.core import converge, local_shard
from llmgw.core.converge import Forget, Launch, Stop
from llmgw.core.facts import ShardOrder, ShardReport
from llmgw.core.link import Desired
from llmgw.core.local_shard import (
    Doing,
    Ended,
    Forgotten,
    Launched,
    LocalShard,
    NotStarted,
    OtherEngines,
    Outcome,
    Process,
)
from llmgw.core.names import ShardId
from llmgw.core.shard import ShardState
from llmgw.host import clock
from llmgw.host.threads import aside

_log = logging.getLogger(__name__)

_STOP_GRACE = 10.0
"""Seconds between SIGTERM and SIGKILL."""
_STOP_AGAIN = 30.0
"""Seconds after which an engine that the kernel holds is killed again."""


class Node:
    """The shards of this node."""

    def __init__(
        self, cluster: str, start_timeout: float, records: Records, starter: Starter, launcher: Launcher, news: News
    ) -> None:
        self._cluster, self._start_timeout = cluster, start_timeout
        self._records, self._starter, self._launcher, self._news = records, starter, launcher, news
        self._shards = dict[ShardId, LocalShard]()
        self._watches = dict[ShardId, Watch]()
        self._inbox = deque[Desired | tuple[ShardId, Outcome]]()
        self._arrived = asyncio.Event()
        self._objections = set[str]()
        self._untaken: Desired | None = None
        self._unsaved = set[ShardId]()
        self._obeying = Grievance(_log, "what to run cannot be kept, so it is not done yet")
        self._keeping = Grievance(_log, "what is known of the shards cannot be kept")
        self.obeyed: Desired | None = None
        self.epoch = 0
        """The highest that was ever obeyed, 0 for none."""

    # --- for the link -------------------------------------------------------------------------------------------

    def receive(self, desired: Desired) -> None:
        """Take what the control plane wants; it is made so in its turn."""
        self._put(desired)

    def reports(self) -> tuple[ShardReport, ...]:
        """Every shard as it is now."""
        return local_shard.reports(self._shards[name] for name in sorted(self._shards))

    async def running(self) -> frozenset[str]:
        """The directories of installed engines that shards run with, or are about to. Raises OSError."""
        names = tuple(self._shards)
        return await aside(lambda: frozenset(filter(None, map(self._records.install, names))))

    def ports(self) -> set[int]:
        """Of the engines that run."""
        return {watch.port for watch in self._watches.values()}

    # --- starting -----------------------------------------------------------------------------------------------

    async def open(self) -> None:
        """Read what was kept and find the engines that run, however long that takes: a registration without an engine
        would say that there is none. Nothing is started or stopped yet. Raises OSError."""
        self._records.make()
        self.epoch, desired = self._records.epoch(), self._records.desired()
        if desired is not None and (objection := converge.objection(desired, self.epoch, self._cluster)):
            _log.warning("the kept list of what to run is not obeyed: %s", objection)
            desired = None
        self.obeyed = desired
        self.epoch = max(self.epoch, desired.epoch if desired else 0)
        async with asyncio.TaskGroup() as group:
            for record in self._records.shards():
                group.create_task(self._adopt(record), name=f"adopt {record.shard}")

    async def _adopt(self, record: ShardReport) -> None:
        """Take up a shard that was kept: with its engine, with that engine's end, or with neither after a power cut."""
        order, name = record.order, record.shard
        if order is None or order.profile.engine not in ADAPTERS:
            _log.warning("shard %s: this agent does not know how to run its engine; it is left alone", name)
            return
        directory = self._records.directory(name)
        found = None
        if record.launch:
            grievance = Grievance(_log, f"shard {name}: whether its engine runs is not known")
            found = await until_done(lambda: self._launcher.find(name, record.launch, directory), grievance)
        process, ready = None, False
        # A record with a port is of an engine whose end was not told yet.
        if found is not None and record.port is not None:
            pid = (record.pid or 0) if isinstance(found, Exit) else found.pid
            process = Process(pid=pid, host=record.host, port=record.port, key=self._records.key(name))
            if not isinstance(found, Exit):
                ready = await self._watched(order, record.launch, found, process).ready()
                _log.info("shard %s: adopted pid %d, launch %d", name, process.pid, record.launch)
        now = clock.now()
        shard = local_shard.recalled(record, order, process, ready=ready, now=now, start_timeout=self._start_timeout)
        self._shards[name] = shard
        if watch := self._watches.get(name):
            watch.turn(shard.state, shard.was_ready)
        if process is not None and isinstance(found, Exit):
            lines = log.tail(self._records.log(name))
            end = Ended(launch=shard.launch, exit_status=found.status, signal=found.signal, last_lines=lines)
            self._apply(name, end)

    def _watched(self, order: ShardOrder, launch: int, alive: Alive, process: Process) -> Watch:
        name = order.shard
        adapter = ADAPTERS[order.profile.engine]
        tell = partial(self._put_outcome, name)
        watch = Watch(launch, alive, process, adapter, self._records.log(name), tell)
        self._watches[name] = watch
        return watch

    # --- the writer ---------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Make Desired so, for ever. When this is cancelled, engines run on."""
        async with asyncio.TaskGroup() as group:
            for name, watch in self._watches.items():
                group.create_task(watch.run(self._shards[name].since), name=f"watch {name}")
            group.create_task(self._watch_engines(), name="refused for want of an engine")
            while True:
                await self._decide(group)
                await self._flush()
                await self._next()
                while self._inbox:
                    await self._take(self._inbox.popleft())

    async def _watch_engines(self) -> None:
        """Look again at what was refused, by an earlier agent too, when there are other engines; for ever."""
        while True:
            for name, shard in self._shards.items():
                self._put_outcome(name, OtherEngines(launch=shard.launch))
            await self._starter.engines.after(self._starter.engines.count)

    def _put_outcome(self, name: ShardId, outcome: Outcome) -> None:
        self._put((name, outcome))

    def _put(self, item: Desired | tuple[ShardId, Outcome]) -> None:
        self._inbox.append(item)
        self._arrived.set()

    async def _next(self) -> None:
        due = converge.next_due(self._shards.values())
        if self._untaken is not None or self._unsaved:
            due = min(due or float("inf"), clock.now() + PAUSE)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(None if due is None else max(0.0, due - clock.now())):
                await self._arrived.wait()
        self._arrived.clear()
        if self._untaken is not None and not any(isinstance(item, Desired) for item in self._inbox):
            self._inbox.append(self._untaken)

    async def _take(self, item: Desired | tuple[ShardId, Outcome]) -> None:
        if isinstance(item, Desired):
            await self._obey(item)
        else:
            self._apply(*item)

    async def _obey(self, desired: Desired) -> None:
        objection = converge.objection(desired, self.epoch, self._cluster)
        if objection is not None:
            if objection not in self._objections:
                self._objections.add(objection)
                _log.error("what the control plane wants is not obeyed: %s", objection)
            return
        try:
            if desired.epoch > self.epoch:
                await aside(self._records.save_epoch, desired.epoch)
                self.epoch = desired.epoch
            await aside(self._records.save_desired, desired)
        except OSError as error:
            self._obeying.tell(error)
            self._untaken = desired
            return
        self._obeying.over()
        self._untaken = None
        self.obeyed = desired
        self._news.ring()

    def _apply(self, name: ShardId, outcome: Outcome) -> None:
        before = self._shards.get(name)
        if before is None:
            return
        if isinstance(outcome, Ended) and outcome.launch == before.launch:
            self._watches.pop(name, None)
            if before.state is ShardState.STARTING:
                self._starter.doubt()
        after = local_shard.happened(before, outcome, clock.now(), self._start_timeout)
        if after is not None:
            self._change(name, before, after)
            return
        del self._shards[name]
        _log.info("shard %s: nothing of it is left", name)
        self._news.ring()

    def _change(self, name: ShardId, before: LocalShard | None, after: LocalShard) -> None:
        self._shards[name] = after
        if before is None or local_shard.report(before) != local_shard.report(after):
            _tell(name, before, after)
            self._unsaved.add(name)
            self._news.ring()
        if watch := self._watches.get(name):
            watch.turn(after.state, after.was_ready)

    async def _flush(self) -> None:
        """Keep what changed; what the disk does not take is kept later. While a shard is launched its record is the
        starter's, and one that is being forgotten needs none."""
        for name in sorted(self._unsaved):
            shard = self._shards.get(name)
            if shard is not None and shard.doing not in (Doing.LAUNCHING, Doing.FORGETTING):
                try:
                    await aside(self._records.save, local_shard.report(shard))
                except OSError as error:
                    self._keeping.tell(error)
                    continue
            self._unsaved.discard(name)
        if not self._unsaved:
            self._keeping.over()

    async def _decide(self, group: asyncio.TaskGroup) -> None:
        now = clock.now()
        known = converge.admit(self.obeyed, self._shards, now) if self.obeyed else self._shards
        decision = converge.decide(self.obeyed, known, now, self._start_timeout)
        before = dict(self._shards)
        for name, shard in decision.shards.items():
            self._change(name, before.get(name), shard)
        for step in decision.steps:
            match step:
                case Launch():
                    group.create_task(
                        self._launch(step, known[step.order.shard].attempts), name=f"launch {step.order.shard}"
                    )
                case Stop():
                    group.create_task(self._stop(step), name=f"stop {step.shard}")
                case Forget():
                    group.create_task(self._forget(step), name=f"forget {step.shard}")

    # --- jobs ---------------------------------------------------------------------------------------------------

    async def _launch(self, step: Launch, attempts: int) -> None:
        name, engines = step.order.shard, self._starter.engines.count
        try:
            started = await self._starter.start(step, attempts, self.ports)
        except CannotStart as error:
            self._put_outcome(name, NotStarted(launch=step.launch, text=str(error)))
            if self._starter.engines.count != engines:
                self._put_outcome(name, OtherEngines(launch=step.launch))
            return
        except Exception:  # the supervisor of launches: a fault over one order must not take the node's others along
            _log.exception("shard %s: the launch met a fault of ours", name)
            text = "the agent met a fault of its own; its log on the node says which"
            self._put_outcome(name, NotStarted(launch=step.launch, text=text))
            return
        watch = self._watched(step.order, step.launch, started.alive, started.process)
        self._put_outcome(name, Launched(launch=step.launch, process=started.process))
        await watch.run(clock.now())

    async def _stop(self, step: Stop) -> None:
        watch = self._watches.get(step.shard)
        if watch is None or watch.launch != step.launch:
            return
        _log.info("shard %s: stopped, because %s", step.shard, step.why)
        while not watch.over.is_set():
            try:
                await watch.alive.stop(_STOP_GRACE)
            except TROUBLE as error:
                _log.error("shard %s: pid %d cannot be stopped: %s", step.shard, watch.alive.pid, words(error))
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_STOP_AGAIN):
                    await watch.over.wait()
                    return
            _log.warning("shard %s: pid %d does not end; tried again", step.shard, watch.alive.pid)

    async def _forget(self, step: Forget) -> None:
        """Remove all of a shard, however long that takes: it is told as gone when nothing of it is left, not before."""

        async def remove() -> None:
            await self._launcher.clear(step.shard, self._records.directory(step.shard))
            await aside(self._records.forget, step.shard)

        await until_done(remove, Grievance(_log, f"shard {step.shard}: what is left of it cannot be removed"))
        self._put_outcome(step.shard, Forgotten(launch=step.launch))


def _tell(name: ShardId, before: LocalShard | None, after: LocalShard) -> None:
    """One line for each change of state."""
    if before is not None and before.state is after.state and before.failure == after.failure:
        return
    if after.state is ShardState.FAILED and after.failure is not None:
        last = after.failure.last_lines[-1:]
        again = "" if after.retry_at is None else f"; again in {max(0.0, after.retry_at - clock.now()):.0f}s"
        words = f" (its last line: {last[0]})" if last else ""
        _log.warning("shard %s: failed: %s%s%s", name, after.failure.text, words, again)
        return
    process = f", pid {after.process.pid} on {after.process.host}:{after.process.port}" if after.process else ""
    _log.info("shard %s: %s%s", name, after.state.value, process)
