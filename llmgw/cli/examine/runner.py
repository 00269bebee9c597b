"""As whom does the program run that a configuration is for: its unit's user, or else whoever runs this?"""

from dataclasses import dataclass
from pathlib import Path

from llmgw.core.checks import Check, fault, warning
from llmgw.host import accounts, units
from llmgw.host.accounts import Account
from llmgw.host.threads import aside
from llmgw.host.units import Unit


@dataclass(frozen=True, slots=True, kw_only=True)
class Runner:
    """Who must be able to use the files."""

    account: Account
    unit: Unit | None = None
    """The unit that runs it as `account`; None where the account is ours."""
    started_by: Unit | None = None
    """The unit that would start it, even where that is not installed or has no user; None without systemd."""

    def given(self, path: Path) -> bool:
        """Whether the directory is made for the program, or given to it, when its unit starts."""
        return self.unit is not None and units.will_be_given(self.unit, path)


def ourselves() -> Runner:
    """Whoever runs this."""
    return Runner(account=accounts.ourselves())


async def runner(program: str, file: Path) -> tuple[Runner, list[Check]]:
    """Who runs the daemon of this name with the file; with a fault where there can be nobody."""
    unit = await aside(units.unit, program, file)
    if unit is None or not unit.loaded:
        return Runner(account=accounts.ourselves(), started_by=unit), []
    if unit.account is None:
        fact = f"unit {unit.name} runs as {unit.user}, which is no user of this host"
        return Runner(account=accounts.ourselves(), started_by=unit), [fault("files", fact, units.add_user(unit))]
    return Runner(account=unit.account, unit=unit, started_by=unit), []


def not_running(name: str, fact: str, unit: Unit | None, command: str) -> Check:
    """A daemon that does not run; `command` starts it where there is no service manager."""
    if unit is None:
        return warning(name, fact, f"start it: {command}")
    if not unit.loaded:
        where = f"copy deploy/{unit.name} to /etc/systemd/system"
        return warning(name, f"{fact}; unit {unit.name} is not installed", f"{where}, then {_enable(unit)}")
    if unit.failed:
        again = f" and is started again and again ({unit.restarts} times so far)" if unit.again else ""
        ended = f"unit {unit.name} failed{again} (result {unit.result or 'unknown'}, exit status {unit.status})"
        return fault(name, f"{fact}; {ended}", f"journalctl -u {unit.short} -n 20 says why")
    if not unit.enabled:
        return warning(name, f"{fact}; unit {unit.name} is not enabled", _enable(unit))
    return warning(name, fact, f"systemctl start {unit.short}")


def _enable(unit: Unit) -> str:
    return f"systemctl enable --now {unit.short}"
