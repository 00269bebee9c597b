"""An agent as systemd runs it, on a host of its own, with the unit that we ship."""

import asyncio
import sys
import time
from collections.abc import AsyncIterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from llmgw.config.tls import TlsFiles
from llmgw.core.facts import FailureKind, ShardReport, Want
from llmgw.core.identity import Role
from llmgw.core.shard import ShardState
from llmgw.pki import authority
from tests.agent.control import Control, desired, order
from tests.lab.hosts import LAB, Host, Lab, NoLab, lab, missing

pytestmark = pytest.mark.lab

ROOT = Path(__file__).parents[2]
UNIT, ENGINE = "llmgw-agent.service", "llmgw-engine-tiny-0-0.service"

DROP_IN = f"""
[Service]
ExecStart=
ExecStart={sys.executable} -m llmgw.agent.main --config /lab/agent.yaml
WorkingDirectory={ROOT}
"""
"""The program is that of this checkout; everything else is as it ships."""


class Place:
    """A host with the agent's unit, and a control plane that it can reach."""

    def __init__(self, lab: Lab, control: Control) -> None:
        self.lab, self.host, self.control = lab, lab.host, control

    async def run(self, *words: str) -> str:
        return await asyncio.to_thread(self.host.run, *words)

    async def engine_pid(self) -> int:
        return int((await asyncio.to_thread(self.host.show, ENGINE, "MainPID"))["MainPID"])

    async def serves(self, report: ShardReport) -> bool:
        code = (
            "import sys, urllib.request as u;"
            f"r = u.Request('http://{report.host}:{report.port}/v1/models', headers={{'Authorization': 'Bearer '"
            " + open('/var/lib/llmgw-agent/shards/tiny-0-0/key').read().strip()});"
            "print(u.urlopen(r, timeout=5).status)"
        )
        return (await self.run(sys.executable, "-I", "-c", code)).strip() == "200"


@pytest.fixture
async def place(tmp_path: Path, engine: Path, weights: Path) -> AsyncIterator[Place]:
    if problem := missing():
        pytest.skip(problem)
    files = _certificates(tmp_path)
    (tmp_path / "agent.yaml").write_text(
        f"control: ['{LAB}:7443']\nengines: {{llama.cpp: /lab/engine/{engine.name}}}\n"
        "tls: {certificate: agent/node01.crt, key: agent/node01.key, authority: agent/authority.crt}\n"
    )
    binds = {tmp_path: "/lab", engine.parent: "/lab/engine", weights.parent: "/lab/weights"}
    binds |= {Path(place): place for place in {str(ROOT), sys.base_prefix}}
    with ExitStack() as stack:
        try:
            made = stack.enter_context(lab(tmp_path, binds))
        except NoLab as problem:
            pytest.skip(str(problem))
        _install(made.host)
        control = Control(files["control"])
        with made.network():
            listening = control.listening(LAB, 7443)
            await listening.__aenter__()
        try:
            yield Place(made, control)
        finally:
            await listening.__aexit__(None, None, None)


def _certificates(directory: Path) -> dict[str, TlsFiles]:
    authority.init(directory / "authority", "demo")
    made = {}
    for folder, name, role in (("control", "control", Role.CONTROL), ("agent", "node01", Role.AGENT)):
        issued = authority.issue(directory / "authority", name, role, [LAB], directory / folder)
        made[folder] = TlsFiles(issued.certificate, issued.key, issued.authority)
    return made


def _install(host: Host) -> None:
    unit = (ROOT / "deploy" / UNIT).read_text()
    place = "/run/systemd/system"
    host.run("bash", "-c", f"cat >{place}/{UNIT} <<'END'\n{unit}\nEND\nmkdir -p {place}/{UNIT}.d")
    host.run("bash", "-c", f"cat >{place}/{UNIT}.d/lab.conf <<'END'\n{DROP_IN}\nEND\nsystemctl daemon-reload")


def tiny(weights: Path, want: Want = Want.RUN):
    return order(f"/lab/weights/{weights.name}", want=want)


async def test_stopping_the_agent_takes_no_time_and_its_engine_serves_on(place: Place, weights: Path):
    control, host = place.control, place.host
    control.desired = desired(tiny(weights))
    await place.run("systemctl", "start", UNIT)
    before = await control.shard("tiny/0.0", ShardState.READY)
    assert await place.engine_pid() == before.pid

    begun = time.monotonic()
    await place.run("systemctl", "stop", UNIT)
    assert time.monotonic() - begun < 2.0
    await control.until(lambda: control.session.over)
    assert control.session.left, "the agent said that it leaves"
    assert (await asyncio.to_thread(host.show, UNIT, "Result"))["Result"] == "success"
    assert await place.engine_pid() == before.pid
    assert await place.serves(before)

    await place.run("systemctl", "start", UNIT)
    session = await control.registered(2)
    (found,) = session.registration.shards
    assert (found.state, found.pid, found.launch) == (ShardState.READY, before.pid, 1)
    assert await place.serves(found)

    await control.want(desired(tiny(weights, Want.STOP), revision=2))
    await control.shard("tiny/0.0", ShardState.STOPPED)
    await control.want(desired(revision=3))
    await control.until(lambda: not control.session.shards)
    assert (await asyncio.to_thread(host.show, ENGINE, "LoadState"))["LoadState"] == "not-found"


async def test_a_killed_agent_comes_back_and_an_engine_that_died_meanwhile_is_told(place: Place, weights: Path):
    control = place.control
    control.desired = desired(tiny(weights))
    await place.run("systemctl", "start", UNIT)
    before = await control.shard("tiny/0.0", ShardState.READY)

    await place.run("systemctl", "kill", "--signal=KILL", UNIT)
    session = await control.registered(2)  # started again by its unit
    assert session.registration.shards[0].pid == before.pid

    await place.run("systemctl", "stop", UNIT)
    await place.run("systemctl", "kill", "--signal=ABRT", ENGINE)
    await place.run("systemctl", "start", UNIT)
    session = await control.registered(3)
    (found,) = session.registration.shards
    assert found.state is ShardState.FAILED
    assert found.failure is not None
    assert (found.failure.kind, found.failure.signal) == (FailureKind.EXITED, 6)
    after = await control.shard("tiny/0.0", ShardState.READY)
    assert after.launch == 2
    assert await place.engine_pid() == after.pid


async def test_a_disk_without_room_ends_neither_the_agent_nor_its_engine(place: Place, weights: Path):
    """A small disk of its own, filled to the last byte."""
    control, state = place.control, "/var/lib/llmgw-agent"
    await place.run("bash", "-c", f"mkdir -p {state} && mount -t tmpfs -o size=512k,mode=0700 tmpfs {state}")
    control.desired = desired(tiny(weights))
    await place.run("systemctl", "start", UNIT)
    before = await control.shard("tiny/0.0", ShardState.READY)
    await place.run("bash", "-c", f"cat /dev/zero >{state}/fill 2>/dev/null || true")

    await place.run("systemctl", "kill", "--signal=KILL", UNIT)
    session = await control.registered(2)  # started again by its unit
    assert session.registration.shards[0].pid == before.pid
    assert await place.serves(before)

    agent_pid = (await asyncio.to_thread(place.host.show, UNIT, "MainPID"))["MainPID"]
    await place.run("systemctl", "kill", "--signal=KILL", ENGINE)
    await control.until(
        lambda: (failure := control.session.shards[before.shard].failure) and failure.kind is FailureKind.REFUSED
    )
    failure = control.session.shards[before.shard].failure
    assert failure is not None and "no space left on device" in failure.text
    assert (await asyncio.to_thread(place.host.show, UNIT, "MainPID"))["MainPID"] == agent_pid
    await place.run("rm", f"{state}/fill")
    begun = time.monotonic()
    while "cannot be kept: in order again" not in await place.run("journalctl", "-u", UNIT, "-o", "cat"):
        assert time.monotonic() - begun < 12.0
        await asyncio.sleep(0.2)  # a journal that is read has no event


async def test_an_engine_with_a_unit_of_somebody_else_is_refused(place: Place, weights: Path):
    """Two clusters may share a machine: neither ends the other's engines."""
    control = place.control
    theirs = "--setenv=LLMGW_ENGINE=other/node01/tiny/0.0/1"
    await place.run("systemd-run", f"--unit={ENGINE}", theirs, "sleep", "1000")
    control.desired = desired(tiny(weights))
    await place.run("systemctl", "start", UNIT)
    report = await control.shard("tiny/0.0", ShardState.FAILED)
    assert report.failure is not None
    assert "belongs to other/node01/tiny/0.0/1; stop it first" in report.failure.text
    assert await place.engine_pid() > 1


async def test_a_cut_cable_is_noticed_in_seconds_and_healed(place: Place, weights: Path):
    """No machine says goodbye on a cut cable: the link must find out by itself, on both sides."""
    control = place.control
    control.desired = desired(tiny(weights))
    await place.run("systemctl", "start", UNIT)
    before = await control.shard("tiny/0.0", ShardState.READY)
    place.lab.cable(plugged=False)
    begun = time.monotonic()
    while "the connection was lost" not in await place.run("journalctl", "-u", UNIT, "-o", "cat"):
        assert time.monotonic() - begun < 12.0
        await asyncio.sleep(0.2)  # a journal that is read has no event
    assert await place.engine_pid() == before.pid
    place.lab.cable(plugged=True)
    session = await control.registered(2)
    assert session.registration.shards[0].pid == before.pid
