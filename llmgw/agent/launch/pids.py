"""Is this still the same process, is it gone, and who else is in its session? Answers from /proc and the kernel."""

import asyncio
import contextlib
import errno
import os
import signal
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from pathlib import Path

_PROC = Path("/proc")
_POLL = 0.25
"""Seconds between looks where the kernel has no pidfd (before Linux 5.3)."""


def started_at(pid: int) -> int | None:
    """When process `pid` started, in the kernel's ticks since its boot; None when there is none or it is a zombie.

    With the boot id it tells a process from any later one of the same pid. Raises OSError when the kernel does not
    say, as to an agent without a free descriptor: that is not "gone".
    """
    fields = _stat(pid)
    return None if fields is None or fields[0] in ("Z", "X") else int(fields[19])


def arguments(pid: int) -> tuple[str, ...]:
    """The process's command line; empty when it cannot be read."""
    return _words(pid, "cmdline")


def environment(pid: int) -> tuple[str, ...]:
    """The environment that the process was started with, as `NAME=value`; empty when it cannot be read."""
    return _words(pid, "environ")


def members(session: int) -> tuple[int, ...]:
    """The processes of a session that are not zombies, its leader first.

    Session 0 is everybody whose session began outside our namespace, and 1 is init's: neither is ever an engine's.
    """
    if session <= 1:
        return ()
    found = [pid for pid in _all() if (f := _shown(pid)) and f[0] not in ("Z", "X") and int(f[3]) == session]
    return tuple(sorted(found, key=lambda pid: pid != session))


def session(pid: int) -> int:
    """The session of a process, 0 when there is none."""
    fields = _stat(pid)
    return int(fields[3]) if fields else 0


def carrying(fits: Callable[[str], bool]) -> tuple[int, ...]:
    """The processes, ours not among them, with a word `NAME=value` in their environment that fits."""
    own = os.getpid()
    return tuple(pid for pid in _all() if pid != own and any(map(fits, environment(pid))))


def cpu_time(pid: int) -> float:
    """Seconds of CPU that the processes of `pid`'s session used, of those that are there now. Raises OSError."""
    ticks = sum(int(f[11]) + int(f[12]) for member in members(session(pid)) if (f := _stat(member)))
    return ticks / os.sysconf("SC_CLK_TCK")


async def gone(pid: int, started: int) -> None:
    """Wait until the process `pid` that started at `started` is gone or a zombie; at once when it already is."""
    with _watched(pid) as handle:
        # Only now does the handle say which process it is about.
        if started_at(pid) != started:
            return
        if handle is None:
            while started_at(pid) == started:  # noqa: ASYNC110 - no event without a pidfd
                await asyncio.sleep(_POLL)
            return
        loop = asyncio.get_running_loop()
        ended = asyncio.Event()
        loop.add_reader(handle, ended.set)
        try:
            await ended.wait()
        finally:
            loop.remove_reader(handle)


async def end_session(session: int, grace: float) -> None:
    """End every process of a session; see `end`."""
    await end(lambda: members(session), grace)


async def end(who: Callable[[], Collection[int]], grace: float) -> None:
    """End every process that `who` names, asked again until it names none: SIGTERM, SIGKILL after `grace` seconds.

    They are told in the order in which they are named: an engine told after its child may be seen to end of that.

    A process that the kernel does not let go is given up after 5 more seconds.
    """
    for sign, patience in ((signal.SIGTERM, grace), (signal.SIGKILL, 5.0)):
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(patience):
                while pids := who():
                    _signal(pids, sign)
                    await asyncio.gather(*(gone(pid, at) for pid in pids if (at := started_at(pid)) is not None))
                return


def _signal(pids: Collection[int], sign: signal.Signals) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, sign)


def _all() -> Iterator[int]:
    return (int(entry) for entry in os.listdir(_PROC) if entry.isdecimal())


@contextmanager
def _watched(pid: int) -> Iterator[int | None]:
    """A pidfd; None where the kernel has none or the process is gone."""
    try:
        handle = os.pidfd_open(pid)
    except OSError as error:
        if error.errno not in (errno.ESRCH, errno.ENOSYS, errno.EPERM, errno.EINVAL):
            raise
        yield None
        return
    try:
        yield handle
    finally:
        os.close(handle)


def _stat(pid: int) -> list[str] | None:
    """The fields of /proc/PID/stat from the state on; the name before it may hold anything. None: no such process."""
    try:
        text = (_PROC / str(pid) / "stat").read_text(errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return None
    return text.rpartition(")")[2].split()


def _shown(pid: int) -> list[str] | None:
    """As `_stat`, also None for a process that is hidden from us: it is none of ours."""
    try:
        return _stat(pid)
    except PermissionError:
        return None


def _words(pid: int, file: str) -> tuple[str, ...]:
    try:
        raw = (_PROC / str(pid) / file).read_bytes()
    except OSError:
        return ()
    return tuple(word.decode("utf-8", "surrogateescape") for word in raw.split(b"\0")[:-1])
