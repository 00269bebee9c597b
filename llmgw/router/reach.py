"""Does this router reach a node where its engines would listen? The control plane asks, for as long as it is there.

    WatchAttempts ─▶ connect, read one line, compare the token (AT_ONCE at a time) ─▶ ReportAttempt

Whatever happens here, requests go on: a router that cannot be asked serves what the route table has.
"""

import asyncio
import contextlib
import logging
import random
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import Protocol

from llmgw.core.errors import BadName, LlmgwError, Rejected
from llmgw.core.hosts import host_name, stays_here
from llmgw.core.link import greeting
from llmgw.core.routes import Attempt, Noted, Tried
from llmgw.host.reason import reason
from llmgw.router.complaint import Complaint

log = logging.getLogger(__name__)

LIMIT = 3.0
"""Seconds that a node may take to say its line."""
AT_ONCE = 32
"""Attempts that run at a time; more wait where they come from."""

ELSEWHERE = "engines listen on loopback there, and this router is on another machine"
_OTHER = "another program answers there"
_LONGEST_LINE = 200
_LONGEST_WORDS = 200

_FIRST, _LONGEST = 0.2, 10.0
_UNKNOWN = 600.0
"""Seconds until a control plane that does not take the call is asked again: it may be a newer one by then."""


class Control(Protocol):
    """What asks, and hears the answers: `llmgw.client.ControlClient`."""

    def watch_attempts(self) -> AsyncGenerator[Attempt, None]:
        """The nodes to try; raises LlmgwError or ends when the control plane is gone."""

    async def report_attempt(self, tried: Tried) -> Noted:
        """Say whether a node was reached; raises LlmgwError."""


Dial = Callable[[], AbstractAsyncContextManager[Control]]


class Reaching:
    """Answers the control plane; `run` it in one task."""

    def __init__(
        self,
        machine: str,
        dial: Dial,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`machine` is this machine's id."""
        self._machine, self._dial, self._sleep, self._clock = machine, dial, sleep, clock
        self._complaint = Complaint(log, "control does not ask whether nodes are reached", clock)

    async def run(self) -> None:
        """Answer for ever."""
        pause = _FIRST
        while True:
            begun, why, fault, least = self._clock(), "it ended the stream", None, 0.0
            try:
                await self._session()
            except Rejected as error:
                why, least = str(error), _UNKNOWN
            except LlmgwError as error:
                why = str(error)
            except Exception as error:
                # The one supervisor: a fault in trying nodes must not end the requests of clients.
                why, fault = f"a fault of ours, {error!r}", error
            self._complaint.tell(why, fault)
            if self._clock() - begun > _LONGEST:
                pause = _FIRST
            await self._sleep(max(least, pause * random.uniform(0.5, 1.0)))
            pause = min(pause * 2, _LONGEST)

    async def _session(self) -> None:
        ended: LlmgwError | None = None
        running, free = set[asyncio.Task[None]](), asyncio.Semaphore(AT_ONCE)
        async with self._dial() as control, asyncio.TaskGroup() as group:
            try:
                async with contextlib.aclosing(control.watch_attempts()) as attempts:
                    async for attempt in attempts:
                        await free.acquire()
                        task = group.create_task(self._answer(control, attempt, free))
                        running.add(task)
                        task.add_done_callback(running.discard)
            except LlmgwError as error:  # within the group, which would wrap it
                ended = error
            for task in list(running):
                task.cancel()  # nobody waits for their answers any more
        if ended is not None:
            raise ended

    async def _answer(self, control: Control, attempt: Attempt, free: asyncio.Semaphore) -> None:
        try:
            error = await reach(attempt, self._machine)
            with contextlib.suppress(LlmgwError):  # then the stream ends as well, and that is told
                await control.report_attempt(Tried(token=attempt.token, error=error, stream=attempt.stream))
        finally:
            free.release()


async def reach(attempt: Attempt, machine: str) -> str:
    """Why a router on `machine` does not reach the node's listener, in one line; empty when it does."""
    if stays_here(attempt.host) and not (machine and attempt.machine == machine):
        return ELSEWHERE
    try:
        host_name(attempt.host)
    except BadName as error:
        return str(error)
    ends = asyncio.get_running_loop().time() + LIMIT
    try:
        async with asyncio.timeout_at(ends):
            reader, writer = await asyncio.open_connection(attempt.host, attempt.port, limit=_LONGEST_LINE)
    except TimeoutError:
        return f"no answer within {LIMIT:g} s"
    except OSError as error:
        return reason(error)[:_LONGEST_WORDS]
    try:
        async with asyncio.timeout_at(ends):
            line = await reader.readuntil(b"\n")
    except TimeoutError:
        return f"{_OTHER}: it says nothing within {LIMIT:g} s"
    except (OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
        return _OTHER
    finally:
        writer.transport.abort()
    return "" if line == greeting(attempt.token) else _OTHER
