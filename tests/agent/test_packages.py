"""How the node's package manager is asked. The managers are fakes: tests install nothing on the machine they run on.

What they print is what the real ones print; `make lab` has a host where the real one installs.
"""

import asyncio
import os
from pathlib import Path

import pytest

from llmgw.agent.engines import packages
from llmgw.agent.engines.packages import CannotInstall, install

APT_UNKNOWN = """\
Reading package lists...
Building dependency tree...
Reading state information...
E: Unable to locate package libgomp1"""
DNF_UNKNOWN = """\
Last metadata expiration check: 0:00:12 ago on Tue 01 Dec 2026 09:00:00 AM UTC.
No match for argument: libgomp
Error: Unable to find a match: libgomp"""
ZYPPER_LOCKED = """\
System management is locked by the application with pid 4711 (zypper).
Close this application before trying again."""


@pytest.fixture
def bin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where programs are looked for; as root, whoever runs the tests."""
    place = tmp_path / "bin"
    place.mkdir()
    for name in ("sh", "cat", "env", "sleep", "touch"):
        (place / name).symlink_to(f"/bin/{name}" if os.path.exists(f"/bin/{name}") else f"/usr/bin/{name}")
    monkeypatch.setenv("PATH", str(place))
    monkeypatch.setattr("os.geteuid", lambda: 0)
    monkeypatch.setattr(packages, "own_services", lambda: False)
    return place


def manager(place: Path, name: str, does: str) -> Path:
    """A fake of this name that writes down how it was called, then does this; returns what it writes to."""
    log = place.parent / f"{name}.log"
    (place / name).write_text(f'#!{place}/sh\necho "$@" >>{log}\nenv >{log}.env\n{does}\n')
    (place / name).chmod(0o755)
    return log


def say(text: str, status: int) -> str:
    return f"cat <<'END'\n{text}\nEND\nexit {status}"


async def refusal(*libraries: str, allowed: bool = True) -> str:
    with pytest.raises(CannotInstall) as bad:
        await install(libraries or ["libgomp.so.1"], allowed=allowed, tell=lambda _: None)
    return str(bad.value)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        (
            "apt-get",
            "--yes --no-install-recommends --no-remove -o DPkg::Lock::Timeout=300 -o Dpkg::Use-Pty=0 "
            "-o Dpkg::Options::=--force-confdef -o Dpkg::Options::=--force-confold install libgomp1 libssl3",
        ),
        ("dnf", "--assumeyes --setopt=install_weak_deps=False install libgomp openssl-libs"),
        ("zypper", "--non-interactive install --no-recommends libgomp1 libopenssl3"),
    ],
)
async def test_each_manager_is_asked_for_its_own_packages_and_asks_nobody(bin: Path, name: str, words: str):
    log = manager(bin, name, "exit 0")
    told = list[str]()
    await install(["libgomp.so.1", "libssl.so.3", "libcrypto.so.3"], allowed=True, tell=told.append)
    assert log.read_text().splitlines() == [words]
    assert told[0].startswith(f"{name} install ")


async def test_proxies_are_passed_on_and_the_agent_s_own_environment_is_not(bin: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("https_proxy", "http://proxy:3128")
    monkeypatch.setenv("LLMGW_SECRET", "x")
    log = manager(bin, "apt-get", "exit 0")
    await install(["libgomp.so.1"], allowed=True, tell=lambda _: None)
    environment = log.with_name(f"{log.name}.env").read_text()
    assert "https_proxy=http://proxy:3128" in environment and "DEBIAN_FRONTEND=noninteractive" in environment
    assert "LLMGW_SECRET" not in environment


async def test_lists_are_fetched_only_when_a_package_is_not_known(bin: Path):
    lists = bin.parent / "lists"
    log = manager(
        bin,
        "apt-get",
        f'case "$*" in *update*) touch {lists}; exit 0;; esac\n[ -e {lists} ] && exit 0\n{say(APT_UNKNOWN, 100)}',
    )
    await install(["libgomp.so.1"], allowed=True, tell=lambda _: None)
    verbs = [line.split()[-1] if "update" in line else "install" for line in log.read_text().splitlines()]
    assert verbs == ["install", "update", "install"]


@pytest.mark.parametrize(
    ("name", "said", "status", "words"),
    [
        (
            "apt-get",
            APT_UNKNOWN,
            100,
            "libgomp.so.1 is missing and could not be installed: apt-get install libgomp1: Building dependency tree... "
            "/ Reading state information... / E: Unable to locate package libgomp1",
        ),
        (
            "dnf",
            DNF_UNKNOWN,
            1,
            "libgomp.so.1 is missing and could not be installed: dnf install libgomp: Last metadata expiration check: "
            "0:00:12 ago on Tue 01 Dec 2026 09:00:00 AM UTC. / No match for argument: libgomp / "
            "Error: Unable to find a match: libgomp",
        ),
        (
            "zypper",
            ZYPPER_LOCKED,
            7,
            "libgomp.so.1 is missing and could not be installed: zypper install libgomp1: System management is locked "
            "by the application with pid 4711 (zypper). / Close this application before trying again.",
        ),
    ],
)
async def test_a_manager_that_fails_is_told_with_its_last_words(
    bin: Path, name: str, said: str, status: int, words: str
):
    manager(bin, name, say(said, status))
    assert await refusal() == words


async def test_what_is_not_allowed_names_library_package_and_command(bin: Path, monkeypatch: pytest.MonkeyPatch):
    log = manager(bin, "apt-get", "exit 0")
    command = "libgomp.so.1 is missing: apt-get install libgomp1"
    assert await refusal(allowed=False) == f"{command} (agent.yaml says install_packages: false)"
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    assert await refusal() == f"{command} (this agent is not root)"
    assert not log.exists()


async def test_a_library_outside_the_table_is_asked_for_as_rpm_names_it(bin: Path):
    log = manager(bin, "dnf", "exit 0")
    await install(["libfoo.so.3"], allowed=True, tell=lambda _: None)
    assert log.read_text().split()[-1] == "libfoo.so.3()(64bit)"
    assert await refusal("libfoo.so.3", allowed=False) == (
        "libfoo.so.3 is missing: dnf install 'libfoo.so.3()(64bit)' (agent.yaml says install_packages: false)"
    )


async def test_a_system_without_a_known_manager_is_told_so(bin: Path):
    assert await refusal() == (
        "libgomp.so.1 is missing, and no package manager is known here; install what has it by hand"
    )


async def test_installs_run_one_at_a_time(bin: Path):
    busy = bin.parent / "busy"
    manager(bin, "apt-get", f"[ -e {busy} ] && exit 9\ntouch {busy}\nsleep 0.1\nrm -f {busy}\n")
    (bin / "rm").symlink_to("/bin/rm")
    await asyncio.gather(*(install(["libgomp.so.1"], allowed=True, tell=lambda _: None) for _ in range(3)))


async def test_an_install_that_takes_too_long_is_left_to_finish(bin: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(packages, "LIMIT", 0.05)
    done = bin.parent / "done"
    gate = bin.parent / "gate"
    os.mkfifo(gate)
    manager(bin, "apt-get", f"cat {gate}\ntouch {done}\necho done >{gate}")
    assert "has not ended within 0s and goes on" in await refusal()
    gate.write_text("go\n")  # waits for its reader: it lives
    assert gate.read_text() == "done\n" and done.exists()


@pytest.mark.parametrize(
    ("said", "lines"),
    [
        (
            "Reading package lists...\nE: Unable to locate package libvulkan1\nW: Unable to read /etc/apt\n",
            ["Reading package lists...", "E: Unable to locate package libvulkan1"],
        ),
        ("Loading repository data...\n'x' not found.\nW: old\n", ["Loading repository data...", "'x' not found."]),
        ("W: only warnings", ["W: only warnings"]),
        ("", []),
    ],
)
def test_the_reason_is_told_whatever_it_warned_of(said: str, lines: list[str]) -> None:
    assert packages.telling(said) == lines
