"""How is an engine that runs? Asks for its health, sees its end, and tells what changed.

An engine that was ready and does not answer for its health is at work when its metrics answer, or when its processes
used a hundredth of the time since the last question: waiting alone takes less, and serving takes more.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable
from pathlib import Path

from llmgw.agent.engines import ask
from llmgw.agent.engines.adapter import Adapter, Ready
from llmgw.agent.launch import log, pids
from llmgw.agent.launch.launcher import Alive
from llmgw.agent.patience import Grievance, until_done
from llmgw.core.local_shard import Ended, Healthy, Idle, Outcome, Process, Unhealthy, Working
from llmgw.core.shard import ShardState
from llmgw.host.threads import aside

_log = logging.getLogger(__name__)

STARTING, READY, DRAINING = 0.25, 2.0, 0.5
"""Seconds between questions in each state."""
SILENCES = 3
"""Questions in a row without a good answer before a ready engine counts as not ready: a busy one may miss one."""
_LOG_EVERY = 30
"""Questions between looks at the length of the log."""
_LEAST_WORK = 0.01
"""Of one processor's time: who uses less does nothing."""


class Watch:
    """Watches one launch of one shard. `tell` takes outcomes; `turn` must be called when the shard's state changed."""

    def __init__(
        self,
        launch: int,
        alive: Alive,
        process: Process,
        adapter: Adapter,
        log_file: Path,
        tell: Callable[[Outcome], None],
    ) -> None:
        self.launch, self.alive = launch, alive
        self._process, self._adapter, self._log, self._tell = process, adapter, log_file, tell
        self.over = asyncio.Event()
        """Set when the engine is gone."""
        self._state = ShardState.STARTING
        self._turned = asyncio.Event()
        self._silences = 0
        self._proven = False
        self._was_ready = False
        self._used: tuple[float, float] | None = None  # when last looked, and seconds of CPU by then
        self._asked = 0
        self._bounding = Grievance(_log, f"{log_file} cannot be kept short")
        self._waiting = Grievance(_log, f"pid {process.pid} is not known to run or not")

    @property
    def port(self) -> int:
        """Where the engine listens."""
        return self._process.port

    def turn(self, state: ShardState, was_ready: bool = False) -> None:
        """The shard is in this state now, and its engine was ready before or not: ask about what matters in it."""
        self._was_ready = was_ready
        if state is not self._state:
            self._state = state
            self._silences, self._used = 0, None
            self._turned.set()

    async def run(self, launched_at: float) -> None:
        """Watch until the engine is gone and its end was told."""
        async with asyncio.TaskGroup() as group:
            asking = group.create_task(self._ask_on(), name=f"health of pid {self._process.pid}")
            exit = await until_done(self.alive.ended, self._waiting)
            asking.cancel()
        self.over.set()
        last_lines = await aside(log.tail, self._log, launched_at)
        self._tell(Ended(launch=self.launch, exit_status=exit.status, signal=exit.signal, last_lines=last_lines))

    async def _ask_on(self) -> None:
        while True:
            self._turned.clear()
            await self._ask()
            if self._asked % _LOG_EVERY == 0:
                await self._bound_log()
            self._asked += 1
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._pause()):
                    await self._turned.wait()

    async def _bound_log(self) -> None:
        try:
            await aside(log.bound, self._log)
        except OSError as error:
            self._bounding.tell(error)
        else:
            self._bounding.over()

    def _pause(self) -> float:
        if self._state is ShardState.STARTING and not self._was_ready:
            return STARTING
        return DRAINING if self._state is ShardState.DRAINING else READY

    async def _ask(self) -> None:
        match self._state:
            case ShardState.STARTING:
                if await self.ready():
                    self._tell(Healthy(launch=self.launch))
                elif self._was_ready and await self._works():
                    self._tell(Working(launch=self.launch))
            case ShardState.READY:
                await self._still_ready()
            case ShardState.DRAINING:
                if await ask.idle(self._adapter, self._process):
                    self._tell(Idle(launch=self.launch))
            case _:
                pass

    async def ready(self) -> bool:
        """Whether the engine can serve, and is ours: something else might answer on its port."""
        if await ask.ready(self._adapter, self._process) is not Ready.READY:
            return False
        if not self._proven:
            self._proven = await ask.ours(self._adapter, self._process)
        return self._proven

    async def _works(self) -> bool:
        """Whether it does something though it is not ready. What cannot be found out counts as work."""
        try:
            used = pids.cpu_time(self._process.pid)
        except OSError:
            return True
        now = asyncio.get_running_loop().time()
        before, self._used = self._used, (now, used)
        if before is not None and used - before[1] >= _LEAST_WORK * (now - before[0]):
            return True
        return (await ask.get(self._process, self._adapter.METRICS)).status == 200

    async def _still_ready(self) -> None:
        answer = await ask.ready(self._adapter, self._process)
        if answer is Ready.READY:
            self._silences = 0
            return
        self._silences += 1
        if answer is Ready.LOADING or self._silences >= SILENCES:
            self._tell(Unhealthy(launch=self.launch))
