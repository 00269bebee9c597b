"""How are engines launched under systemd? Each as a transient service of its own, which keeps its exit status.

A `systemctl` that fails says nothing about an engine: it is asked again.
"""

import asyncio
import contextlib
import logging
import os
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from llmgw.agent.launch import files, pids
from llmgw.agent.launch.launcher import MARK, Alive, Exit, LaunchFailed, Owner, Task
from llmgw.agent.patience import Grievance, Unknown, until_done
from llmgw.agent.run import run
from llmgw.core.names import ShardId, file_name
from llmgw.host.units import booted

_log = logging.getLogger(__name__)

FORM = "systemd"
_TIMEOUT = 30.0
"""Seconds for the service manager to answer."""
_STOP_GRACE = 10
"""Seconds between SIGTERM and SIGKILL, kept by the service manager."""
_SETTLE, _LOOK = 10.0, 0.1
"""After the main process is gone: seconds until its unit must have ended, and between looks; it has no event for us."""

_EXITED, _KILLED, _DUMPED = "1", "2", "3"
"""ExecMainCode, by the kernel's CLD_ numbers."""

_PROPERTIES: Mapping[str, str] = {
    "RemainAfterExit": "yes",  # an exit 0 would unload the unit and its status with it
    "KillMode": "control-group",
    "TimeoutStopSec": str(_STOP_GRACE),
    "NoNewPrivileges": "yes",
    "RestrictSUIDSGID": "yes",
    "LimitCORE": "0",
    "LimitNOFILE": "65536",
    "WorkingDirectory": "/",
}
_SHOWN = "LoadState,ActiveState,SubState,MainPID,ExecMainCode,ExecMainStatus,InvocationID,Environment"


def running() -> bool:
    """Whether systemd runs this machine and lets us start services."""
    return booted() and os.geteuid() == 0


def unit_name(shard: ShardId) -> str:
    """The unit of a shard's engine."""
    return f"llmgw-engine-{file_name(shard)}.service"


@dataclass(frozen=True, slots=True)
class _Unit:
    """A unit as the service manager shows it."""

    loaded: bool
    active: str
    pid: int
    code: str
    status: int
    invocation: str
    mark: str

    @property
    def alive(self) -> bool:
        """It runs. Without a main process MainPID is 0, which names our own process group: never signal that."""
        return self.pid > 1 and self.active in ("active", "activating", "reloading")

    @property
    def exit(self) -> Exit:
        if self.code == _EXITED:
            return Exit(status=self.status)
        return Exit(signal=self.status) if self.code in (_KILLED, _DUMPED) else Exit()


class SystemdLauncher:
    """Launches engines as transient services."""

    def __init__(self, owner: Owner) -> None:
        self._owner = owner

    async def start(self, task: Task) -> Alive:
        """Start the engine, or raise LaunchFailed."""
        name, mark = unit_name(task.shard), self._owner.mark(task.shard, task.launch)
        try:
            await self._make_room(name)
        except Unknown as error:
            raise LaunchFailed(str(error)) from None
        files.remove(task.directory)
        ran = await run(_command(name, mark, task), timeout=_TIMEOUT)
        if ran.status:
            raise LaunchFailed(f"systemd-run: {ran.words()}")
        unit = await _shown(name)
        if not ran.ok and unit.mark != mark:
            raise LaunchFailed(f"systemd-run: {ran.words()}")
        # Without this file the mark must do.
        with contextlib.suppress(OSError):
            files.write(task.directory, files.PROCESS, {"form": FORM, "mark": mark, "invocation": unit.invocation})
        return _Service(name, unit)

    async def find(self, shard: ShardId, launch: int, directory: Path) -> Alive | Exit | None:
        """Return what became of a launch."""
        name, mark = unit_name(shard), self._owner.mark(shard, launch)
        unit = await _show(name)
        said = files.read(directory, files.PROCESS)
        # An agent that died just after the start wrote nothing down: then the mark, which counts launches, must do.
        known = said.get("invocation", unit.invocation) if said.get("form") == FORM else unit.invocation
        if not unit.loaded or unit.mark != mark or unit.invocation != known:
            return None
        service = _Service(name, unit)
        return service if unit.alive else await service.ended()

    async def clear(self, shard: ShardId, directory: Path) -> None:
        """Drop what is kept of ended launches; what of them still runs, unknown to all, is ended."""
        name = unit_name(shard)
        if self._owner.owns((await _show(name)).mark):
            await _unload(name)
            if self._owner.owns((await _show(name)).mark):
                raise Unknown(f"{name} is still loaded")
        files.remove(directory)

    async def _make_room(self, name: str) -> None:
        """A unit's name can be used again when the last unit of that name is unloaded."""
        unit = await _show(name)
        if not unit.loaded:
            return
        if not self._owner.owns(unit.mark):
            raise LaunchFailed(f"{name} is there already and belongs to {unit.mark or 'somebody else'}; stop it first")
        await _unload(name)


class _Service:
    def __init__(self, name: str, unit: _Unit) -> None:
        self._name, self.pid = name, unit.pid
        self._invocation = unit.invocation
        self._started = pids.started_at(unit.pid) if unit.pid > 1 else None

    async def ended(self) -> Exit:
        """Wait until the main process is gone and the service manager has seen it and ended the rest of its group."""
        if self._started is not None:
            await pids.gone(self.pid, self._started)
        for _ in range(round(_SETTLE / _LOOK)):
            unit = await _shown(self._name)
            if unit.invocation != self._invocation:
                return Exit()  # stopped and unloaded
            if unit.active in ("failed", "inactive") or not unit.pid:
                return unit.exit
            await asyncio.sleep(_LOOK)
        return Exit()

    async def stop(self, grace: float) -> None:
        """Stop the unit; the service manager keeps a grace of its own, the same for all."""
        await run(["systemctl", "stop", self._name], timeout=grace + _TIMEOUT)


def _command(name: str, mark: str, task: Task) -> list[str]:
    properties = {**_PROPERTIES, "StandardOutput": f"append:{task.log}", "StandardError": f"append:{task.log}"}
    environment = {**task.environment, MARK: mark}
    return [
        "systemd-run",
        "--quiet",
        "--no-ask-password",
        f"--unit={name}",
        f"--description=llmgw engine {mark}",
        "--service-type=exec",
        *(f"--property={key}={value}" for key, value in properties.items()),
        *(f"--setenv={key}={value}" for key, value in environment.items()),
        "--",
        # The service manager replaces $WORD and ${WORD} in arguments, and reads $$ as $.
        *(word.replace("$", "$$") for word in task.argv),
    ]


async def _unload(name: str) -> None:
    await run(["systemctl", "stop", name], timeout=_STOP_GRACE + _TIMEOUT)
    await run(["systemctl", "reset-failed", name], timeout=_TIMEOUT)


async def _shown(name: str) -> _Unit:
    """The unit, asked for until there is an answer."""
    return await until_done(lambda: _show(name), Grievance(_log, f"{name} is not known to run or not"))


async def _show(name: str) -> _Unit:
    """The unit as it is now. Raises Unknown when the service manager does not say."""
    ran = await run(["systemctl", "show", f"--property={_SHOWN}", name], timeout=_TIMEOUT)
    said = dict(line.partition("=")[::2] for line in ran.out.splitlines())
    if not ran.ok or "LoadState" not in said:
        raise Unknown(f"systemctl show: {ran.words()}")
    return _Unit(
        loaded=said.get("LoadState") == "loaded",
        active=said.get("ActiveState", ""),
        pid=_number(said.get("MainPID")),
        code=said.get("ExecMainCode", ""),
        status=_number(said.get("ExecMainStatus")),
        invocation=said.get("InvocationID", ""),
        mark=_mark(said.get("Environment", "")),
    )


def _mark(environment: str) -> str:
    try:
        words = shlex.split(environment)
    except ValueError:
        return ""
    return next((word.partition("=")[2] for word in words if word.startswith(f"{MARK}=")), "")


def _number(text: str | None) -> int:
    return int(text) if text and text.isdecimal() else 0
