"""As whom does the service manager run a program of ours, and how did that go? Asked of systemd, with a limit."""

import contextlib
import os
import re
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from llmgw.core.errors import BadConfig
from llmgw.host.accounts import READ, WRITE, Account, account, name_of

BOOTED = Path("/run/systemd/system")
"""There where systemd runs the machine, by sd_booted(3)."""
LIMIT = 5.0
"""Seconds that it has to answer."""

_SHOWN = (
    "LoadState", "UnitFileState", "ActiveState", "SubState", "Result", "ExecMainStatus", "NRestarts", "User", "Group",
    "SupplementaryGroups", "StateDirectory", "ExecStart",
)  # fmt: skip
_ARGV = re.compile(r"argv\[\]=(.*?) ;")
_STATE_HOME = Path("/var/lib")


@dataclass(frozen=True, slots=True, kw_only=True)
class Unit:
    """A unit as the service manager shows it."""

    name: str
    """With its `.service`."""
    loaded: bool
    """It is installed."""
    enabled: bool
    active: str
    sub: str
    result: str
    status: str
    """The exit status of its last main process."""
    restarts: int
    """How often it was started again by itself."""
    user: str
    account: Account | None
    """As whom its program runs, None when this host has no such user."""
    keeps: tuple[Path, ...] = ()
    """Directories that are made for the user, and given to it, when the unit starts."""

    @property
    def failed(self) -> bool:
        """It was started and ended with a fault, for good or to be tried again."""
        return self.active == "failed" or self.again

    @property
    def again(self) -> bool:
        """It is started again and again: a moment of waiting, then one of starting."""
        return self.sub == "auto-restart" or (self.active == "activating" and self.restarts > 0)

    @property
    def runner(self) -> str:
        """As whom it runs, in words."""
        return f"user {self.user} of unit {self.name}"

    @property
    def short(self) -> str:
        """The name as one types it."""
        return self.name.removesuffix(".service")


def hindrance(unit: Unit, path: Path, want: int) -> tuple[str, str] | None:
    """What keeps the unit's program from reading or writing a file that is there, and what to do; None when nothing.

    Raises OSError where we may not look ourselves.
    """
    if unit.account is None:
        return f"unit {unit.name} runs as {unit.user}, which is no user of this host", add_user(unit)
    if will_be_given(unit, path) or (shut := unit.account.barred(path, want)) is None:
        return None
    seen = shut.stat()
    fact = f"{shut} has mode {seen.st_mode & 0o7777:04o}, owner {name_of(seen.st_uid)}: {unit.runner} cannot"
    if shut != path:
        return f"{fact} reach {path}", f"chmod 755 {shut}"
    return f"{fact} {'write' if want & WRITE else 'read'} it", f"chown {unit.user}: {path}"


def refuse_if_barred(program: str, file: Path, reads: Iterable[Path], writes: Iterable[Path] = ()) -> None:
    """Raise BadConfig where the user of the daemon's unit may not use its configuration, or what of the rest is there.

    For a check that another user, such as root, makes beforehand.
    """
    found = unit(program, file)
    if found is None or not found.loaded:
        return
    needed = [(path, READ) for path in (file, *reads)] + [(path, READ | WRITE) for path in writes]
    for path, want in needed:
        with contextlib.suppress(OSError):  # not there, or told by who reads it
            if told := hindrance(found, path, want):
                fact, fix = told
                raise BadConfig(str(path), None, "", f"{fact.removeprefix(f'{path} ')}; {fix}")


def booted() -> bool:
    """Whether systemd runs this machine."""
    return BOOTED.is_dir()


def add_user(unit: Unit) -> str:
    """How to make the user that a unit needs."""
    return f"adduser --system --group {unit.user}"


def will_be_given(unit: Unit, path: Path) -> bool:
    """Whether it is in a directory that is not the user's yet, and will be with all in it when the unit starts."""
    kept = next((one for one in unit.keeps if path.is_relative_to(one)), None)
    if kept is None or unit.account is None:
        return False
    return not os.path.lexists(kept) or kept.stat().st_uid != unit.account.uid


def unit(program: str, file: Path) -> Unit | None:
    """The unit of a daemon, where that runs it with the configuration `file`.

    None without systemd, when that does not say, or when the unit is for another file.
    """
    if not booted():
        return None
    name = f"{program}.service"
    command = ["systemctl", "show", f"--property={','.join(_SHOWN)}", name]
    try:
        ran = subprocess.run(command, capture_output=True, timeout=LIMIT, stdin=subprocess.DEVNULL, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    lines = ran.stdout[: 1 << 16].decode("utf-8", "replace").splitlines()
    said = dict(line.partition("=")[::2] for line in lines)
    if "LoadState" not in said or not _runs_with(said.get("ExecStart", ""), file):
        return None
    return _unit(name, said)


def _unit(name: str, said: dict[str, str]) -> Unit:
    user = said.get("User", "") or "root"
    return Unit(
        name=name,
        loaded=said["LoadState"] == "loaded",
        enabled=said.get("UnitFileState", "").startswith("enabled"),
        active=said.get("ActiveState", ""),
        sub=said.get("SubState", ""),
        result=said.get("Result", ""),
        status=said.get("ExecMainStatus", ""),
        restarts=int(said["NRestarts"]) if said.get("NRestarts", "").isdecimal() else 0,
        user=user,
        account=account(user, said.get("Group", ""), said.get("SupplementaryGroups", "").split()),
        # `NAME` or `NAME:LINK`, by systemd.exec(5)
        keeps=tuple(_STATE_HOME / one.partition(":")[0] for one in said.get("StateDirectory", "").split()),
    )


def _runs_with(started: str, file: Path) -> bool:
    """Whether `ExecStart=` names the file, or does not say which."""
    found = _ARGV.search(started)
    words = found[1].split() if found else []
    named = next((one.partition("=")[2] for one in words if one.startswith("--config=")), "")
    if "--config" in words[:-1]:
        named = words[words.index("--config") + 1]
    return not named or os.path.realpath(named) == os.path.realpath(file)
