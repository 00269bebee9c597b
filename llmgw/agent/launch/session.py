"""How are engines launched without systemd? Each in a session of its own, with a waiter that keeps its exit status.

Ended is what carries the launch's exact mark, wherever it is, and with it the session of the engine: of that one are
only the engine and those whom it started, whatever they made of their environment.
"""

import asyncio
import contextlib
import json
import logging
import sys
from pathlib import Path

from llmgw.agent.launch import files, pids
from llmgw.agent.launch.launcher import MARK, MARKED, Alive, Exit, LaunchFailed, Owner, Task
from llmgw.agent.patience import Grievance, until_done
from llmgw.core.names import ShardId

_log = logging.getLogger(__name__)

FORM = "session"
_WAITER = Path(__file__).with_name("waiter.py")
_START_TIMEOUT = 20.0
_EXIT_FILE_TIMEOUT = 5.0
"""Seconds that a waiter may take to write down how its engine ended."""


class SessionLauncher:
    """Launches engines as sessions. `boot`: the id of this start of the machine."""

    def __init__(self, owner: Owner, boot: str) -> None:
        self._owner, self._boot = owner, boot

    async def start(self, task: Task) -> Alive:
        """Start the engine, or raise LaunchFailed."""
        await self._end_strays(task.shard)
        files.remove(task.directory)  # so that no earlier process is taken for this one
        mark = self._owner.mark(task.shard, task.launch)
        spec = {
            "argv": task.argv,
            "environment": {**task.environment, MARK: mark},
            "log": str(task.log),
            "directory": str(task.directory),
            "mark": mark,
            "boot": self._boot,
        }
        answer = await _run_waiter(json.dumps(spec).encode())
        word, _, words = answer.partition(" ")
        # A waiter that gave no answer may have started the engine all the same.
        if word == "failed":
            raise LaunchFailed(words)
        grievance = Grievance(_log, f"shard {task.shard}: what was started cannot be looked at")
        found = await until_done(lambda: self.find(task.shard, task.launch, task.directory), grievance)
        if isinstance(found, _Session):
            return found
        if word != "ok":
            raise LaunchFailed(words)
        # It ended faster than we looked: it is as if it had been seen alive.
        return _Session(mark, task.directory, files.read(task.directory, files.PROCESS))

    async def _end_strays(self, shard: ShardId) -> None:
        """End earlier launches that nobody knows of any more, as after an agent that died while it launched, or a
        directory that was lost: two engines of one shard would share its memory and fight for its devices."""

        def fits(word: str) -> bool:
            return word.startswith(MARKED) and self._owner.marks(shard, word.removeprefix(MARKED))

        def strays() -> set[int]:
            marked = set(pids.carrying(fits))
            led = [pids.members(pid) for pid in marked if pids.session(pid) == pid]
            return marked.union(*led)

        await pids.end(strays, grace=2.0)

    async def find(self, shard: ShardId, launch: int, directory: Path) -> Alive | Exit | None:
        """Return what became of a launch."""
        mark = self._owner.mark(shard, launch)
        said = files.read(directory, files.PROCESS) or self._marked(mark)
        if said.get("form") != FORM or said.get("mark") != mark or said.get("boot") != self._boot:
            return None
        session = _Session(mark, directory, said)
        if pids.started_at(session.pid) != files.number(said, "started"):
            return await session.ended()
        return session if _carries(session.pid, mark) else None

    def _marked(self, mark: str) -> dict[str, object]:
        """What process.json would say of an engine that runs, when that file was lost: its mark shows which it is."""
        for pid in pids.carrying(f"{MARKED}{mark}".__eq__):
            if pids.session(pid) == pid:
                return {"form": FORM, "mark": mark, "boot": self._boot, "pid": pid, "started": pids.started_at(pid)}
        return {}

    async def clear(self, shard: ShardId, directory: Path) -> None:
        """Drop what is kept of ended launches; what of them still runs, unknown to all, is ended."""
        await self._end_strays(shard)
        said = files.read(directory, files.PROCESS)
        if self._owner.owns(str(said.get("mark", ""))):
            files.remove(directory)


class _Session:
    def __init__(self, mark: str, directory: Path, said: dict[str, object]) -> None:
        self._mark, self._directory = mark, directory
        self.pid = files.number(said, "pid")
        self._started = files.number(said, "started")
        self._waiter, self._waiter_started = files.number(said, "waiter"), files.number(said, "waiter_started")

    async def ended(self) -> Exit:
        """Wait until the engine and all that it started are gone."""
        await pids.gone(self.pid, self._started)
        await self._end_rest()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_EXIT_FILE_TIMEOUT):
                await pids.gone(self._waiter, self._waiter_started)
        said = files.read(self._directory, files.EXIT)
        if said.get("mark") != self._mark:
            return Exit()
        status, signal = files.number(said, "status"), files.number(said, "signal")
        return Exit(status if status >= 0 else None, signal if signal > 0 else None)

    async def stop(self, grace: float) -> None:
        """End the engine and all that it started."""
        if pids.started_at(self.pid) == self._started:
            await pids.end(lambda: dict.fromkeys([*pids.members(self.pid), *self._marked()]), grace)

    async def _end_rest(self) -> None:
        """What the engine started may live on and hold its port or memory. Only members that carry this launch's mark
        prove that the session is still the engine's: its number may be another's by now."""

        def rest() -> set[int]:
            marked, members = set(self._marked()), set(pids.members(self.pid))
            return marked | members if marked & members else marked

        await pids.end(rest, grace=2.0)

    def _marked(self) -> tuple[int, ...]:
        return pids.carrying(f"{MARKED}{self._mark}".__eq__)


def _carries(pid: int, mark: str) -> bool:
    """Whether a process of the right pid and start time is no other's engine. A program may overwrite the memory that
    shows its environment: then those two alone must do."""
    marks = [word for word in pids.environment(pid) if word.startswith(MARKED)]
    return not marks or f"{MARKED}{mark}" in marks


async def _run_waiter(spec: bytes) -> str:
    """Return `ok PID`, `failed WORDS`, or `unknown WORDS` when it did not say."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-I",
        "-S",
        str(_WAITER),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        start_new_session=True,
    )
    try:
        async with asyncio.timeout(_START_TIMEOUT):
            out, _ = await process.communicate(spec)
    except TimeoutError:
        process.kill()
        await process.wait()
        return f"unknown its waiter did not answer within {_START_TIMEOUT:.0f}s"
    return out.decode("utf-8", "replace").strip() or "unknown its waiter gave no answer"
