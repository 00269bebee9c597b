"""The processes of a local cluster: started one by one until each says that it is ready, watched, and ended together.

They carry `LLMGW_LOCAL=DIRECTORY` in their environment; `leftovers` finds by it what a killed demo left behind.
"""

import asyncio
import contextlib
import os
import secrets
import signal
import socket
import sys
from dataclasses import dataclass
from pathlib import Path

from llmgw.core.errors import ClusterCannot
from llmgw.core.safe import safe

MARK = "LLMGW_LOCAL"

_NOT_INHERITED = ("NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID", "JOURNAL_STREAM", "INVOCATION_ID")
"""What a service manager told us is not meant for our children."""
_LAST_LINES = 8


@dataclass(frozen=True, slots=True)
class Child:
    """One process."""

    name: str
    process: asyncio.subprocess.Process
    log: Path
    states: "_States"

    @property
    def pid(self) -> int:
        """Its process id."""
        return self.process.pid


class Children:
    """The processes of the cluster in `directory`. One that ends by itself ends the task group, with its last lines."""

    def __init__(self, directory: Path, group: asyncio.TaskGroup) -> None:
        self._directory, self._group = directory, group
        self._running: dict[str, Child] = {}

    def __getitem__(self, name: str) -> Child:
        return self._running[name]

    async def start(self, name: str, module: str, config: Path, *, timeout: float = 30.0) -> Child:
        """Start `python -m module --config config` and return once it said READY=1; ClusterCannot when it does not."""
        log = self._directory / "logs" / f"{name}.log"
        with log.open("ab") as output, contextlib.ExitStack() as until_it_runs:
            states = _States()
            until_it_runs.callback(states.close)
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-P", "-m", module, "--config", str(config)),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                cwd=self._directory,
                env=environment(self._directory) | {"NOTIFY_SOCKET": states.address},
                start_new_session=True,  # ctrl-C in the terminal is for us alone: we end them in order
            )
            until_it_runs.pop_all()  # from here on `end` closes it
        child = self._running[name] = Child(name, process, log, states)
        self._group.create_task(self._watch(child), name=f"watch {name}")
        try:
            async with asyncio.timeout(timeout):
                await states.ready.wait()
        except TimeoutError:
            raise ClusterCannot(f"{name} was not ready within {timeout:.0f}s; see {log}") from None
        return child

    async def end(self, name: str, sign: signal.Signals = signal.SIGTERM, *, timeout: float = 10.0) -> int:
        """Signal one of them, wait until it is gone (SIGKILL after `timeout`) and return its exit status."""
        child = self._running.pop(name)
        with contextlib.suppress(ProcessLookupError):
            child.process.send_signal(sign)
        try:
            async with asyncio.timeout(timeout):
                return await child.process.wait()
        except TimeoutError:
            child.process.kill()
            return await child.process.wait()
        finally:
            child.states.close()

    async def stop(self, last: str) -> None:
        """End all of them, `last` after the others."""
        async with asyncio.TaskGroup() as group:
            for name in self._running.keys() - {last}:
                group.create_task(self.end(name), name=f"end {name}")
        if last in self._running:
            await self.end(last)

    async def _watch(self, child: Child) -> None:
        await child.process.wait()
        if self._running.get(child.name) is child:
            raise ClusterCannot(_obituary(child))


class _States:
    """Takes what a service says to its manager, for as long as the service lives."""

    def __init__(self) -> None:
        name = f"llmgw-local-{os.getpid()}-{secrets.token_hex(8)}"
        self.address = f"@{name}"
        self.ready = asyncio.Event()
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
        self._socket.bind("\0" + name)
        asyncio.get_running_loop().add_reader(self._socket, self._take)

    def close(self) -> None:
        """The service is gone."""
        asyncio.get_running_loop().remove_reader(self._socket)
        self._socket.close()

    def _take(self) -> None:
        if b"READY=1" in self._socket.recv(4096).split(b"\n"):
            self.ready.set()


def environment(directory: Path) -> dict[str, str]:
    """Of a process of the cluster in `directory`."""
    inherited = {name: value for name, value in os.environ.items() if name not in _NOT_INHERITED}
    return inherited | {MARK: str(directory)}


def _obituary(child: Child) -> str:
    status = child.process.returncode or 0
    how = f"was ended by signal {-status}" if status < 0 else f"ended with status {status}"
    try:
        text = child.log.read_bytes()[-16384:].decode("utf-8", "replace")
    except OSError:
        text = ""
    lines = [f"\n  {safe(line)}" for line in text.splitlines()[-_LAST_LINES:]]
    return f"{child.name} {how}; its last lines, from {child.log}:{''.join(lines) or ' none'}"
