"""How is a program run that may do anything: bounded, outside of the agent's own sandbox, and gone afterwards?

Where systemd runs the machine it is a transient service, whose end is kept by the service manager even when the agent
dies first; elsewhere a process group under `timeout`, which ends it just as well. All that it starts carries a mark in
its environment: what left its group is found by that, and what an agent left that was killed.
"""

import asyncio
import math
import os
import secrets
import shutil
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from llmgw.agent.launch import pids
from llmgw.agent.run import Ran, run
from llmgw.host.units import booted

MARK = "LLMGW_APART"
"""The environment variable that holds the mark: the directory in which it was begun, and a number of its own."""
_GRACE = 10.0
"""Seconds that the service manager has beyond the program's own limit."""
_LIMITS = 'ulimit -c 0 2>/dev/null; ulimit -f 131072 2>/dev/null; exec "$@"'
"""No core dump, no file over 64 MiB (the unit of POSIX is 512 bytes)."""
_PROPERTIES: Mapping[str, str] = {
    "KillMode": "control-group",
    "KillSignal": "SIGKILL",
    "NoNewPrivileges": "yes",
    "RestrictSUIDSGID": "yes",
    "LimitCORE": "0",
    "LimitFSIZE": "64M",
    "TasksMax": "4096",
}


class Apart:
    """A program that runs so."""

    def __init__(self, ended: asyncio.Task[Ran], stop: asyncio.Event) -> None:
        self.ended = ended
        """Done with how it ended, by itself or not."""
        self._stop = stop

    async def finish(self) -> Ran:
        """End it where it still runs, and return how it ended with what it said."""
        self._stop.set()
        return await self.ended


@asynccontextmanager
async def apart(
    argv: Sequence[str], *, limit: float, environment: Mapping[str, str], directory: Path
) -> AsyncIterator[Apart]:
    """Run `argv` in `directory`; it is gone with all that it started when the block ends, and after `limit` seconds."""
    stop, mark = asyncio.Event(), marked(directory)
    work = _service if own_services() else _group
    own = {**environment, MARK: mark}
    ended = asyncio.create_task(work(argv, limit, own, directory, stop), name=f"apart {argv[0]}")
    try:
        yield Apart(ended, stop)
    finally:
        stop.set()
        await asyncio.wait([ended])
        await _end(f"{MARK}={mark}".__eq__)


async def run_apart(argv: Sequence[str], *, limit: float, environment: Mapping[str, str], directory: Path) -> Ran:
    """Run `argv` to its end in the same way."""
    async with apart(argv, limit=limit, environment=environment, directory=directory) as program:
        return await program.ended


def marked(directory: Path) -> str:
    """A mark for what is begun in this directory."""
    return f"{directory}/{secrets.token_hex(6)}"


async def end_left(root: Path) -> None:
    """End what an agent before us began in the directories under `root`. Raises OSError."""
    await _end(lambda word: word.startswith(f"{MARK}={root}/"))


async def _end(fits: Callable[[str], bool]) -> None:
    await pids.end(lambda: pids.carrying(fits), grace=0)


def own_services() -> bool:
    """Whether we may start services: systemd runs the machine and we are root."""
    return booted() and os.geteuid() == 0 and shutil.which("systemd-run") is not None


def killed_by(ran: Ran) -> int:
    """The number of the signal that ended a program, 0 for none. A shell adds 128 to it."""
    status = ran.status or 0
    return -status if status < 0 else status - 128 if 128 < status < 192 else 0


async def _group(
    argv: Sequence[str], limit: float, environment: Mapping[str, str], directory: Path, stop: asyncio.Event
) -> Ran:
    bound = ["timeout", "--signal=KILL", str(math.ceil(limit + _GRACE))] if shutil.which("timeout") else []
    words = ["/bin/sh", "-c", _LIMITS, "sh", *bound, *argv]
    return await run(words, timeout=limit, env=environment, directory=directory, stop=stop)


async def _service(
    argv: Sequence[str], limit: float, environment: Mapping[str, str], directory: Path, stop: asyncio.Event
) -> Ran:
    name = f"llmgw-proof-{secrets.token_hex(6)}.service"
    properties = {**_PROPERTIES, "RuntimeMaxSec": str(math.ceil(limit)), "WorkingDirectory": str(directory)}
    # The shell tells a death by signal, which systemd-run does not.
    inner = ["/bin/sh", "-c", '"$@"; exit $?', "sh", *argv]
    words = [*transient(name, properties, environment), *(word.replace("$", "$$") for word in inner)]
    client = asyncio.create_task(run(words, timeout=limit + _GRACE), name=name)
    stopped = asyncio.create_task(stop.wait(), name=f"stop of {name}")
    try:
        await asyncio.wait([client, stopped], return_when=asyncio.FIRST_COMPLETED)
    finally:
        stopped.cancel()
        if not client.done() or not client.result().ok:
            await run(["systemctl", "stop", name], timeout=_GRACE)
        ended = await client
    return ended


def transient(name: str, properties: Mapping[str, str], environment: Mapping[str, str]) -> list[str]:
    """The words before a command that make a service of it, wait for its end and give it our outputs.

    In the command itself `$` must be written `$$`.
    """
    return [
        "systemd-run",
        "--quiet",
        "--wait",
        "--pipe",
        "--collect",
        "--no-ask-password",
        f"--unit={name}",
        *(f"--property={key}={value}" for key, value in properties.items()),
        *(f"--setenv={key}={value}" for key, value in environment.items()),
        "--",
    ]
