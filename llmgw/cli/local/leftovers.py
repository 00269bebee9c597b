"""What still runs of a local cluster, and its end.

Engines outlive their agents on purpose, and everything outlives a demo that was killed. What is ours is told by
identity and never by a name: a process by the directory that it carries in its environment, and an engine by what its
agent wrote down about it (pid, start time and the machine's boot id).
"""

import asyncio
import contextlib
import os
import signal
from pathlib import Path

from llmgw.agent.launch import files, pids
from llmgw.cli.local.children import MARK
from llmgw.core.errors import ClusterCannot
from llmgw.host.machine import boot_id

_GRACE = 2.0
"""Seconds that an engine has to end by itself."""
_PATIENCE = 10.0


async def end_all(directory: Path) -> None:
    """End every process of the cluster in `directory`, or raise ClusterCannot when the kernel does not let one go."""
    # First what could start engines. An engine does not run before its agent's waiter has written down who it is, so
    # once the waiters are gone the files are complete.
    found: list[int] = []
    try:
        async with asyncio.timeout(_PATIENCE):
            while found := _marked(directory):
                for pid in found:
                    _kill(pid, directory)
                await asyncio.gather(*(_gone(pid) for pid in found))
    except TimeoutError:
        raise ClusterCannot(f"processes of {directory} cannot be ended: {', '.join(map(str, found))}") from None
    await asyncio.gather(*(pids.end_session(pid, _GRACE) for pid in engines(directory)))


def running(directory: Path) -> list[int]:
    """Every process of the cluster in `directory`."""
    return sorted({*_marked(directory), *engines(directory)})


def engines(directory: Path) -> list[int]:
    """The engines that run for the nodes of the cluster in `directory`."""
    boot = boot_id()
    found = []
    for path in directory.glob(f"nodes/*/state/**/{files.PROCESS}"):
        said = files.read(path.parent, files.PROCESS)
        pid = files.number(said, "pid")
        if said.get("boot") == boot and pid > 1 and pids.started_at(pid) == files.number(said, "started"):
            found.append(pid)
    return found


def _marked(directory: Path) -> list[int]:
    mark = f"{MARK}={directory}"
    numbers = (int(entry) for entry in os.listdir("/proc") if entry.isdecimal())
    return [
        pid
        for pid in numbers
        if pid != os.getpid() and mark in pids.environment(pid) and pids.started_at(pid) is not None
    ]


def _kill(pid: int, directory: Path) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        handle = os.pidfd_open(pid)
        try:
            # The handle is of one process for good; only now is it sure that it is still the one that was found.
            if f"{MARK}={directory}" in pids.environment(pid):
                signal.pidfd_send_signal(handle, signal.SIGKILL)
        finally:
            os.close(handle)


async def _gone(pid: int) -> None:
    started = pids.started_at(pid)
    if started is not None:
        await pids.gone(pid, started)
