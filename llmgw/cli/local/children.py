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
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from llmgw.core.errors import ClusterCannot
from llmgw.core.safe import safe

MARK = "LLMGW_LOCAL"

_NOT_INHERITED = ("NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID", "JOURNAL_STREAM", "INVOCATION_ID")
"""What a service manager told us is not meant for our children."""
_LAST_LINES = 8
AGAIN = 10.0
"""Seconds until one that is kept is started again."""


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
    """The processes of the cluster in `directory`. One that ends by itself ends the task group, with its last lines.

    Those that are `kept` once they were ready are told to `say` instead, and are started again.
    """

    def __init__(self, directory: Path, group: asyncio.TaskGroup, say: Callable[[str], None] = lambda _: None) -> None:
        self._directory, self._group, self._say = directory, group, say
        self._running: dict[str, Child] = {}
        self._kept: set[str] = set()
        self._stopping = asyncio.Event()

    def __getitem__(self, name: str) -> Child:
        return self._running[name]

    async def start(self, name: str, module: str, config: Path, *, timeout: float = 30.0, kept: bool = False) -> Child:
        """Start `python -m module --config config` and return once it said READY=1; ClusterCannot when it does not."""
        child = await self._spawn(name, module, config)
        self._group.create_task(self._watch(child, module, config), name=f"watch {name}")
        try:
            async with asyncio.timeout(timeout):
                await child.states.ready.wait()
        except TimeoutError:
            raise ClusterCannot(f"{name} was not ready within {timeout:.0f}s; see {child.log}") from None
        if kept:
            self._kept.add(name)
        return child

    async def _spawn(self, name: str, module: str, config: Path) -> Child:
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
        return child

    async def end(self, name: str, sign: signal.Signals = signal.SIGTERM, *, timeout: float = 10.0) -> int:
        """Signal one of them, wait until it is gone (SIGKILL after `timeout`) and return its exit status."""
        child = self._running.pop(name)
        self._kept.discard(name)
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
        self._stopping.set()
        async with asyncio.TaskGroup() as group:
            for name in self._running.keys() - {last}:
                group.create_task(self.end(name), name=f"end {name}")
        if last in self._running:
            await self.end(last)

    async def _watch(self, child: Child, module: str, config: Path) -> None:
        await child.process.wait()
        if self._running.get(child.name) is not child:
            return
        if child.name not in self._kept:
            raise ClusterCannot(_obituary(child))
        del self._running[child.name]
        child.states.ready.set()  # nobody waits longer for a word of it
        child.states.close()
        self._say(f"{_last_word(child)}; its node shows as unreachable; started again in {AGAIN:.0f}s")
        try:
            async with asyncio.timeout(AGAIN):
                await self._stopping.wait()
        except TimeoutError:
            await self._again(child.name, module, config)

    async def _again(self, name: str, module: str, config: Path) -> None:
        try:
            child = await self.start(name, module, config)
        except ClusterCannot as error:
            self._say(str(error))
            return
        if child.process.returncode is None:
            self._say(f"{name} runs again")
        if self._stopping.is_set() and name in self._running:
            await self.end(name)  # it came up behind the back of `stop`


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
    lines = [f"\n  {line}" for line in _last_lines(child)]
    return f"{child.name} {_how(child)}; its last lines, from {child.log}:{''.join(lines) or ' none'}"


def _last_word(child: Child) -> str:
    said = _last_lines(child)[-1:]
    return f"{child.name} {_how(child)}" + (f"; its last words: {said[0]}" if said else "")


def _how(child: Child) -> str:
    status = child.process.returncode or 0
    return f"was ended by signal {-status}" if status < 0 else f"ended with status {status}"


def _last_lines(child: Child) -> list[str]:
    try:
        text = child.log.read_bytes()[-16384:].decode("utf-8", "replace")
    except OSError:
        text = ""
    return [safe(line) for line in text.splitlines()[-_LAST_LINES:]]
