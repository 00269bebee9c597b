"""Engines as services of systemd: what is asked, and what is made of no answer (the real thing is in tests/lab)."""

import asyncio
import contextlib
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from llmgw.agent import patience
from llmgw.agent.launch import systemd
from llmgw.agent.launch.launcher import Exit, LaunchFailed, Task
from tests.agent.test_launch import OWNER, SHARD, Room


def test_arguments_reach_a_unit_as_they_are(tmp_path: Path):
    task = Task(
        shard=SHARD,
        launch=4,
        argv=("/opt/engine", "--chat-template", "${X} $Y $$"),
        environment={"PATH": "/bin"},
        directory=tmp_path,
        log=tmp_path / "engine.log",
    )
    words = systemd._command("llmgw-engine-tiny-0-0.service", OWNER.mark(SHARD, 4), task)
    assert words[words.index("--") + 1 :] == ["/opt/engine", "--chat-template", "$${X} $$Y $$$$"]
    assert f"--setenv=LLMGW_ENGINE={OWNER.mark(SHARD, 4)}" in words
    assert "--property=RemainAfterExit=yes" in words
    assert f"--property=StandardOutput=append:{tmp_path}/engine.log" in words


class Systemd:
    """A service manager of one unit. `ills`: how often `systemctl show` fails from now on."""

    def __init__(self, directory: Path, main: int) -> None:
        self._directory, self._main = directory, main
        script = f"""#!/bin/sh
echo "$@" >>{directory}/calls
if [ "$1" = stop ]; then touch {directory}/stopped; fi
if [ "$1" = show ] && [ -s {directory}/ills ]; then
    sed -i 1d {directory}/ills
    echo "Failed to get properties: Connection timed out" >&2
    exit 1
fi
[ "$1" = show ] && cat {directory}/unit
exit 0
"""
        for name in ("systemctl", "systemd-run"):
            (directory / name).write_text(script)
            (directory / name).chmod(0o755)
        self.show(f"ActiveState=active\nMainPID={main}")

    def show(self, text: str, mark: str = "") -> None:
        text = f"LoadState=loaded\nInvocationID=abc\nEnvironment=LLMGW_ENGINE={mark or OWNER.mark(SHARD, 1)}\n{text}\n"
        (self._directory / "unit").write_text(text)

    def fail(self, times: int) -> None:
        (self._directory / "ills").write_text("once more\n" * times)

    def calls(self, word: str) -> int:
        return [line.split()[0] for line in (self._directory / "calls").read_text().splitlines()].count(word)


@pytest.fixture
async def service(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Systemd]:
    monkeypatch.setattr(patience, "PAUSE", 0.01)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    main = await asyncio.create_subprocess_exec("/bin/sleep", "100")
    yield Systemd(tmp_path, main.pid)
    with contextlib.suppress(ProcessLookupError):
        main.kill()
    await main.wait()


async def test_a_systemctl_that_fails_does_not_make_an_engine_gone(service: Systemd, tmp_path: Path):
    service.fail(1)
    launcher = systemd.SystemdLauncher(OWNER)
    with pytest.raises(patience.Unknown, match="systemctl show: exit status 1: Failed to get properties"):
        await launcher.find(SHARD, 1, tmp_path)
    found = await launcher.find(SHARD, 1, tmp_path)
    assert found is not None and not isinstance(found, Exit)
    assert found.pid == service._main
    assert service.calls("stop") == 0


async def test_an_engine_under_systemd_has_ended_when_systemd_says_so(service: Systemd, tmp_path: Path):
    found = await systemd.SystemdLauncher(OWNER).find(SHARD, 1, tmp_path)
    assert found is not None and not isinstance(found, Exit)
    service.show("ActiveState=active\nMainPID=0\nExecMainCode=1\nExecMainStatus=7")
    service.fail(3)
    os.kill(found.pid, signal.SIGKILL)
    assert await found.ended() == Exit(status=7)
    assert service.calls("show") == 5


async def test_a_launch_while_systemd_does_not_answer_is_refused_and_stops_nothing(service: Systemd, tmp_path: Path):
    service.fail(1)
    with pytest.raises(LaunchFailed, match="systemctl show: exit status 1: Failed to get properties"):
        await systemd.SystemdLauncher(OWNER).start(Room(tmp_path).task("sleep 100", launch=2))
    assert service.calls("stop") == 0


async def test_a_start_that_took_systemd_too_long_to_answer_is_a_start_all_the_same(
    service: Systemd, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """The unit runs: taken for none, it would be ended by the next launch and started again."""
    monkeypatch.setattr(systemd, "_TIMEOUT", 0.5)
    service.show("LoadState=not-found")
    mark = OWNER.mark(SHARD, 2)
    (tmp_path / "new").write_text(
        f"LoadState=loaded\nInvocationID=n\nEnvironment=LLMGW_ENGINE={mark}\nActiveState=active\nMainPID={service._main}\n"
    )
    (tmp_path / "systemd-run").write_text(f"#!/bin/sh\ncp {tmp_path}/new {tmp_path}/unit\nexec sleep 60\n")
    alive = await systemd.SystemdLauncher(OWNER).start(Room(tmp_path).task("sleep 100", launch=2))
    assert alive.pid == service._main


async def test_what_systemd_still_has_is_not_cleared(service: Systemd, tmp_path: Path):
    with pytest.raises(patience.Unknown, match=r"llmgw-engine-tiny-0-0\.service is still loaded"):
        await systemd.SystemdLauncher(OWNER).clear(SHARD, tmp_path)
    service.show("LoadState=not-found", mark="x")
    await systemd.SystemdLauncher(OWNER).clear(SHARD, tmp_path)


def test_the_mark_is_read_among_quoted_words():
    assert systemd._mark('PATH=/bin "X=a b" LLMGW_ENGINE=demo/node01/0a/tiny/0.0/4') == "demo/node01/0a/tiny/0.0/4"
    assert systemd._mark('"') == ""
