"""How does an order become a process? Check the profile, lease a port, make a key, build the arguments, launch."""

import asyncio
import secrets
from collections.abc import Callable, Collection
from dataclasses import dataclass

from llmgw.agent.discovery import memory
from llmgw.agent.discovery.root import Root
from llmgw.agent.engines.adapter import Place
from llmgw.agent.engines.check import Room, check
from llmgw.agent.engines.probe import ADAPTERS, Engine
from llmgw.agent.environment import engine_environment
from llmgw.agent.launch import log
from llmgw.agent.launch.launcher import Alive, Launcher, LaunchFailed, Task
from llmgw.agent.launch.ports import NoPort
from llmgw.agent.leases import Leases, NoAddress
from llmgw.agent.patience import words
from llmgw.agent.records import Records
from llmgw.agent.survey import Survey
from llmgw.core.converge import Launch
from llmgw.core.errors import BadProfile
from llmgw.core.facts import Secret, ShardOrder, ShardReport
from llmgw.core.local_shard import Process
from llmgw.core.shard import ShardState
from llmgw.core.units import Bytes
from llmgw.host import clock
from llmgw.host.threads import aside

_STORAGE_TIMEOUT = 20.0
"""Seconds for storage to show the weights; a dead share answers never."""


class CannotStart(Exception):
    """The node does not start a shard; the text is one line for the operator."""


@dataclass(frozen=True, slots=True)
class Started:
    """An engine that was launched."""

    alive: Alive
    process: Process


class Starter:
    """Starts engines on this node."""

    def __init__(self, leases: Leases, records: Records, survey: Survey, launcher: Launcher) -> None:
        self._leases, self._records, self._survey, self._launcher = leases, records, survey, launcher
        self.engines = survey.stock.changed
        """Rung when an installed engine came, went, broke or is whole again."""

    async def start(self, step: Launch, attempts: int, in_use: Callable[[], Collection[int]]) -> Started:
        """Start what `step` says on a port that no other engine has, or raise CannotStart."""
        try:
            return await self._start(step, attempts, in_use)
        except (BadProfile, LaunchFailed, NoAddress, NoPort) as error:
            raise CannotStart(str(error)) from None
        except OSError as error:
            raise CannotStart(words(error) if error.filename else f"the node: {words(error)}") from None

    async def _start(self, step: Launch, attempts: int, in_use: Callable[[], Collection[int]]) -> Started:
        engine = await self._check(step.order)
        host = await self._leases.host(step.exposure)
        with self._leases.port(host, in_use()) as port:
            return await self._launch(step, attempts, engine, host, port)

    async def _launch(self, step: Launch, attempts: int, engine: Engine, host: str, port: int) -> Started:
        order = step.order
        place = Place(host=host, port=port, key_file=self._records.key_file(order.shard))
        key = Secret(secrets.token_urlsafe(32))
        adapter = ADAPTERS[order.profile.engine]
        await aside(self._write, step, attempts, place, key, engine.directory)
        task = Task(
            shard=order.shard,
            launch=step.launch,
            argv=adapter.argv(engine.report.path, order, place, engine.flags),
            environment={**engine_environment(), **engine.environment},
            directory=self._records.directory(order.shard),
            log=self._records.log(order.shard),
        )
        try:
            alive = await self._launcher.start(task)
        except LaunchFailed:
            self._survey.stock.doubt()
            raise
        return Started(alive, Process(pid=alive.pid, host=host, port=port, key=key))

    async def _check(self, order: ShardOrder) -> Engine:
        """Return the engine that the order is started with; raises BadProfile and OSError."""
        await self._survey.settled(order.profile.engine, order.profile.version)
        await self._survey.described.wait()
        engine = self._survey.engine(order.profile.engine, order.profile.version)
        adapter = ADAPTERS.get(order.profile.engine)
        total = self._survey.inventory.memory if self._survey.inventory else Bytes(0)
        # A recorded machine says how large it is; what can be had is bounded by this one all the same.
        available = min(memory.available(root) for root in (self._survey.root, Root()))
        room = Room(total=total, available=available)
        try:
            async with asyncio.timeout(_STORAGE_TIMEOUT):
                return await aside(check, order, engine, adapter, room)
        except TimeoutError:
            fact = f"cannot be read: its storage did not answer within {_STORAGE_TIMEOUT:.0f}s"
            raise BadProfile(f"weights {order.profile.weights}", fact) from None

    def doubt(self) -> None:
        """An engine ended before it was ready: are its files all there?"""
        self._survey.stock.doubt()

    def _write(self, step: Launch, attempts: int, place: Place, key: Secret, directory: str) -> None:
        """What is written here is enough to find the engine again, whenever this agent ends."""
        order = step.order
        record = ShardReport(
            shard=order.shard,
            state=ShardState.STARTING,
            since=clock.now(),
            launch=step.launch,
            host=place.host,
            port=place.port,
            attempts=attempts,
            order=order,
        )
        self._records.save(record)
        self._records.save_install(order.shard, directory)
        self._records.save_key(order.shard, key)
        log.fresh(self._records.log(order.shard))
