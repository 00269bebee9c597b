"""What does a tool say? Runs a short-lived program with bounds on time and output."""

import asyncio
import contextlib
import os
import signal
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO

from llmgw.host.threads import aside

MOST = 1 << 20
"""Bytes kept of each of its outputs; what comes after is read and dropped."""

_LINGER = 0.2
"""Seconds that its outputs may stay open once it has ended: whoever holds them then is somebody whom it left behind."""
_DYING = 0.5
"""Seconds in which a killed program is gone, unless the kernel holds it."""

_left = dict[tuple[str, ...], subprocess.Popen[bytes]]()
"""By their words, programs that the kernel held when they were killed."""


@dataclass(frozen=True, slots=True)
class Ran:
    """How a program ended. `status` is None when it could not be started or did not end in time."""

    status: int | None
    out: str
    err: str
    problem: str = ""
    """Why there is no status, as a fact about the program."""

    @property
    def ok(self) -> bool:
        """It ended with status 0."""
        return self.status == 0

    def words(self) -> str:
        """Its own words, on one line, with how it ended in front."""
        if self.problem:
            return self.problem
        said = " ".join((self.err.strip() or self.out.strip()).split())[:300]
        ended = f"exit status {self.status}" if (self.status or 0) >= 0 else f"ended by signal {-(self.status or 0)}"
        return f"{ended}: {said}" if said else f"{ended} without a word"


async def run(
    argv: Sequence[str],
    *,
    timeout: float,
    env: Mapping[str, str] | None = None,
    directory: Path | None = None,
    stop: asyncio.Event | None = None,
) -> Ran:
    """Run `argv` to its end, or kill it after `timeout` seconds or when `stop` is set; what it started and left in its
    process group is killed with it either way. Never raises OSError.

    A program that hangs inside the kernel cannot be killed: it is left behind and its problem reported in time, and it
    is not started again before it is gone.
    """
    slow = f"did not end within {timeout:.0f}s"
    if _held(tuple(argv)):
        return Ran(None, "", "", slow)
    try:
        process = _started(argv, env, directory)
    except (OSError, ValueError) as error:
        return Ran(None, "", "", problem=f"cannot be started: {_reason(error)}")
    ended = asyncio.create_task(aside(_await_end, process.pid), name=f"end of {argv[0]}")
    outputs = _Outputs(filter(None, (process.stdout, process.stderr)))
    problem = ""
    try:
        problem = slow if await _end(ended, timeout, stop) else ""
        await outputs.closed(0 if problem else _LINGER)
    finally:
        _kill_group(process.pid)
        outputs.close()
        await asyncio.wait([ended], timeout=_DYING)
        if ended.done():
            process.wait()
        else:
            ended.cancel()
            _left[tuple(argv)] = process
            problem = problem or "was killed and is not gone: the kernel holds it"
    return Ran(None if problem else process.returncode, *outputs.texts(), problem)


async def _end(ended: asyncio.Task[None], timeout: float, stop: asyncio.Event | None) -> bool:
    """Wait for its end, or for `stop`; return whether neither came in time."""
    stopped = [asyncio.create_task(stop.wait(), name="stop")] if stop else []
    try:
        done, _ = await asyncio.wait([ended, *stopped], timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in stopped:
            task.cancel()
    return not done


def _started(argv: Sequence[str], env: Mapping[str, str] | None, directory: Path | None) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        argv,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=env,
        cwd=directory,
        start_new_session=True,
    )


def _held(argv: tuple[str, ...]) -> bool:
    """Whether the kernel still holds a program of these words that was killed."""
    for words, process in list(_left.items()):
        if process.poll() is not None:
            del _left[words]
    return argv in _left


def _await_end(pid: int) -> None:
    """Wait for its end and leave it a zombie: so its number stays taken, and with it that of its group."""
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)


def _kill_group(leader: int) -> None:
    with contextlib.suppress(
        ProcessLookupError, PermissionError
    ):  # the latter for a program with more rights than ours
        os.killpg(leader, signal.SIGKILL)


class _Outputs:
    """What comes out of a program's pipes, read as it comes."""

    def __init__(self, pipes: Iterable[IO[bytes]]) -> None:
        self._loop = asyncio.get_running_loop()
        self._kept = {pipe: bytearray() for pipe in pipes}
        self._open = set(self._kept)
        self._closed = asyncio.Event()
        for pipe in self._kept:
            os.set_blocking(pipe.fileno(), False)
            self._loop.add_reader(pipe.fileno(), partial(self._read, pipe))

    def texts(self) -> tuple[str, str]:
        """What was kept of each."""
        out, err = (kept.decode("utf-8", "replace") for kept in self._kept.values())
        return out, err

    async def closed(self, seconds: float) -> None:
        """Wait until nobody holds the other ends, `seconds` at most."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._closed.wait()

    def close(self) -> None:
        """Read no more."""
        for pipe in tuple(self._open):
            self._close(pipe)

    def _read(self, pipe: IO[bytes]) -> None:
        try:
            piece = os.read(pipe.fileno(), 65536)
        except BlockingIOError:
            return
        kept = self._kept[pipe]
        kept += piece[: MOST - len(kept)]
        if not piece:
            self._close(pipe)

    def _close(self, pipe: IO[bytes]) -> None:
        self._loop.remove_reader(pipe.fileno())
        pipe.close()
        self._open.discard(pipe)
        if not self._open:
            self._closed.set()


def _reason(error: Exception) -> str:
    return (error.strerror or type(error).__name__).lower() if isinstance(error, OSError) else str(error)
