"""How are engines launched without systemd? Each in a session of its own, with a waiter that keeps its exit status."""

import asyncio
import contextlib
import json
import sys
from pathlib import Path

from llmgw.agent.launch import files, pids
from llmgw.agent.launch.launcher import MARK, Alive, Exit, LaunchFailed, Owner, Task
from llmgw.core.names import ShardId

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
        files.remove(task.directory)
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
        if word != "ok":
            raise LaunchFailed(words or "the waiter gave no answer")
        found = await self.find(task.shard, task.launch, task.directory)
        if isinstance(found, _Session):
            return found
        # It ended faster than we looked: it is as if it had been seen alive.
        said = files.read(task.directory, files.PROCESS)
        return _Session(mark, task.directory, said)

    async def _end_strays(self, shard: ShardId) -> None:
        """End earlier launches that nobody knows of any more, as after an agent that died while it launched, or a
        directory that was lost: two engines of one shard would share its memory and fight for its devices."""
        for pid in pids.carrying(f"{MARK}={self._owner.marks(shard)}"):
            await pids.end_session(pids.session(pid), grace=2.0)

    async def find(self, shard: ShardId, launch: int, directory: Path) -> Alive | Exit | None:
        """Return what became of a launch."""
        mark = self._owner.mark(shard, launch)
        said = files.read(directory, files.PROCESS)
        if said.get("form") != FORM or said.get("mark") != mark or said.get("boot") != self._boot:
            return None
        session = _Session(mark, directory, said)
        if pids.started_at(session.pid) != files.number(said, "started"):
            return await session.ended()
        return session if _carries(session.pid, mark) else None

    async def clear(self, shard: ShardId, directory: Path) -> None:
        """Drop what is kept of an ended launch."""
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
        """End the whole session."""
        if pids.started_at(self.pid) == self._started:
            await pids.end_session(self.pid, grace)

    async def _end_rest(self) -> None:
        """What the engine started may live on and hold its port or memory. Only members that carry this launch's mark
        prove that the session is still the engine's: its number may be another's by now."""
        if any(f"{MARK}={self._mark}" in pids.environment(pid) for pid in pids.members(self.pid)):
            await pids.end_session(self.pid, grace=2.0)


def _carries(pid: int, mark: str) -> bool:
    """Whether a process of the right pid and start time is no other's engine. A program may overwrite the memory that
    shows its environment: then those two alone must do."""
    marks = [word for word in pids.environment(pid) if word.startswith(f"{MARK}=")]
    return not marks or f"{MARK}={mark}" in marks


async def _run_waiter(spec: bytes) -> str:
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
        raise LaunchFailed(f"its waiter did not answer within {_START_TIMEOUT:.0f}s") from None
    return out.decode("utf-8", "replace").strip()
