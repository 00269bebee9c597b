"""A real agent process installs a real engine: an archive in upstream's layout, from a real server, proven for real."""

import asyncio
import contextlib
import hashlib
import io
import os
import random
import tarfile
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from llmgw.cli import llamacpp
from llmgw.core.engines.orders import EngineOrder, Release, ReleaseFile, ReleaseRef, release_id
from llmgw.core.engines.terms import EngineKind, Install, InstallStep
from llmgw.core.engines.variants import ARCHES
from llmgw.core.names import ShardId
from llmgw.core.shard import ShardState
from llmgw.core.units import Bytes
from tests.agent.control import Control, Session, desired, order
from tests.agent.rig import Agent

pytestmark = pytest.mark.journey

VERSION = "b10991"
NAME = f"llama-{VERSION}-bin-ubuntu-{ARCHES[os.uname().machine]}.tar.gz"


def archive(home: Path, waits: Path) -> bytes:
    """An engine as a release packs it, whose program waits while the file `waits` is there."""
    program = llamacpp.script(home / "llama-server").read_text()
    waiting = f"#!/bin/sh\nwhile [ -e {waits} ]; do sleep 0.05; done\n"
    noise = random.Random(7).randbytes(8 << 20)  # so that unpacking it takes a moment
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w:gz", compresslevel=0) as tar:
        _add(tar, "llama-server", program.replace("#!/bin/sh\n", waiting).encode(), 0o755)
        _add(tar, "libllama.so.0.0.1", noise, 0o644)
        for name, leads in (("libllama.so.0", "libllama.so.0.0.1"), ("libllama.so", "libllama.so.0")):
            link = tarfile.TarInfo(f"llama-{VERSION}/{name}")
            link.type, link.linkname = tarfile.SYMTYPE, leads
            tar.addfile(link)
    return made.getvalue()


def _add(tar: tarfile.TarFile, name: str, content: bytes, mode: int) -> None:
    entry = tarfile.TarInfo(f"llama-{VERSION}/{name}")
    entry.size, entry.mode = len(content), mode
    tar.addfile(entry, io.BytesIO(content))


class Upstream:
    """Serves one file, with ranges; `hold` keeps back its second half."""

    def __init__(self, content: bytes) -> None:
        self.content, self.port = content, 0
        self.hold, self.halfway = False, asyncio.Event()
        self.ranges = list[str]()

    @contextlib.asynccontextmanager
    async def listening(self) -> AsyncIterator["Upstream"]:
        app = web.Application()
        app.router.add_get(f"/{NAME}", self._serve)
        runner = web.AppRunner(app, shutdown_timeout=0.1)
        await runner.setup()
        try:
            site = web.TCPSite(runner, "127.0.0.1", 0)
            await site.start()
            self.port = runner.addresses[0][1]
            yield self
        finally:
            await runner.cleanup()

    async def _serve(self, request: web.Request) -> web.StreamResponse:
        asked = request.headers.get("Range", "")
        self.ranges.append(asked)
        begins = int(asked.removeprefix("bytes=").partition("-")[0] or "0")
        size = len(self.content)
        headers = {"Content-Length": str(size - begins)}
        if begins:
            headers["Content-Range"] = f"bytes {begins}-{size - 1}/{size}"
        response = web.StreamResponse(status=206 if begins else 200, headers=headers)
        await response.prepare(request)
        for at in range(begins, size, 1 << 20):
            if self.hold and at > size // 2:
                self.halfway.set()
                await asyncio.Event().wait()
            await response.write(self.content[at : at + (1 << 20)])
        return response


class World:
    """Everything around one agent, and what holds it up in each step."""

    def __init__(self, home: Path, control: Control, upstream: Upstream) -> None:
        self.home, self.control, self.upstream = home, control, upstream
        self.agent: Agent | None = None
        digest = hashlib.sha256(upstream.content).hexdigest()
        file = ReleaseFile(
            name=NAME,
            size=Bytes(len(upstream.content)),
            digest=f"sha256:{digest}",
            url=f"http://127.0.0.1:{upstream.port}/{NAME}",
        )
        self.release = Release(engine="llama.cpp", version=VERSION, kind=EngineKind.ARCHIVE, files=(file,))

    def order(self, **more: Any) -> EngineOrder:
        about = {"engine": "llama.cpp", "version": VERSION, "kind": EngineKind.ARCHIVE, "variant": "cpu", **more}
        return EngineOrder(releases=(ReleaseRef(id=release_id(self.release)),), **about)

    def hold(self, step: str) -> None:
        (self.home / f"hold-{step}").touch()

    def let_go(self, step: str) -> None:
        (self.home / f"hold-{step}").unlink()

    async def at(self, session: Session, step: InstallStep) -> Install:
        await self.control.until(lambda: (one := session.install("llama.cpp", VERSION)) and one.step is step)
        found = session.install("llama.cpp", VERSION)
        assert found is not None
        return found

    async def killed_and_started(self, *, politely: bool = False) -> Session:
        """Another life; nothing of what is half-made is said to be an engine."""
        assert self.agent is not None
        count = len(self.control.sessions)
        if politely:
            assert await self.agent.stop() < 2.0
        else:
            await self.agent.kill()
        await self.agent.start()
        session = await self.control.registered(count + 1)
        assert not session.registration.engines or session.registration.engines.engines == ()
        assert all(one.step is not InstallStep.READY for one in session.registration.installs)
        return session

    def memory(self, what: str) -> int:
        """Bytes of the agent's own memory."""
        assert self.agent is not None
        lines = Path(f"/proc/{self.agent.pid}/status").read_text().splitlines()
        return int(next(line for line in lines if line.startswith(what)).split()[1]) << 10

    def installed(self) -> set[str]:
        return {path.name for path in (self.home / "agent/state/engines/llama.cpp").iterdir()}

    @staticmethod
    def library(engine: Path) -> Path:
        """The file that an engine's links lead to."""
        return engine / "tree" / NAME.removesuffix(".tar.gz") / f"llama-{VERSION}" / "libllama.so.0.0.1"

    def unpacks(self) -> None:
        """Wait until some of the archive is unpacked; the agent tells of it only now and then."""
        _poll(lambda: bool(self.making()))

    def comes(self) -> None:
        """Wait until some of the archive is on the disk."""
        parts = self.home / "agent/state/downloads"
        _poll(lambda: any(part.stat().st_size >= 1 << 20 for part in parts.glob("*.part")))

    def making(self) -> list[Path]:
        return list((self.home / "agent/state/engines/.making").glob("*/tree/*"))


def _poll(true: Callable[[], bool]) -> None:
    until = time.monotonic() + 20
    while not true():
        assert time.monotonic() < until
        time.sleep(0.002)


def waiting_ldd(home: Path) -> Path:
    """A directory with an `ldd` that waits while a file is there."""
    tools = home / "tools"
    tools.mkdir()
    tool = tools / "ldd"
    tool.write_text(f'#!/bin/sh\nwhile [ -e {home}/hold-libraries ]; do sleep 0.05; done\nexec /usr/bin/ldd "$@"\n')
    tool.chmod(0o755)
    return tools


@pytest.fixture
async def world(tmp_path: Path, control: Control, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[World]:
    monkeypatch.setenv("PATH", f"{waiting_ldd(tmp_path)}:{os.environ['PATH']}")
    async with Upstream(archive(tmp_path, tmp_path / "hold-prove")).listening() as upstream:
        yield World(tmp_path, control, upstream)


@pytest.mark.long
async def test_an_agent_that_is_killed_in_every_step_goes_on_and_its_engine_serves_and_is_mended(
    world: World, control: Control, agent: Callable[..., Any], weights: Path
):
    control.desired = desired(engines=(world.order(),))
    world.agent = await agent(engines={}, install_packages=False)
    session = await control.registered()
    # The control plane does not know the release yet.
    await control.until(lambda: (one := session.install("llama.cpp", VERSION)) and one.problem)
    assert (await world.at(session, InstallStep.RESOLVE)).attempts == 1
    control.releases[release_id(world.release)] = world.release
    world.upstream.hold = True

    session = await world.killed_and_started()
    await world.upstream.halfway.wait()
    install = await world.at(session, InstallStep.DOWNLOAD)
    await asyncio.to_thread(world.comes)
    assert (install.subject, install.total) == (NAME, len(world.upstream.content))
    world.upstream.hold = False
    world.hold("libraries")

    await world.killed_and_started()
    await asyncio.to_thread(world.unpacks)

    session = await world.killed_and_started()
    await world.at(session, InstallStep.LIBRARIES)
    world.hold("prove")
    world.let_go("libraries")
    await world.at(session, InstallStep.PROVE)

    session = await world.killed_and_started()
    await world.at(session, InstallStep.PROVE)
    await world.killed_and_started(politely=True)
    world.let_go("prove")
    control.desired = desired(engines=(world.order(go=False),))

    session = await world.killed_and_started()
    install = await world.at(session, InstallStep.READY)
    assert (install.variant, install.problem) == ("cpu", "")
    engine = session.engine("llama.cpp", VERSION)
    assert engine is not None and engine.path == install.path and not engine.by_hand
    assert world.making() == []
    await control.want(desired(order(weights, version=VERSION), engines=(world.order(),), revision=2))
    report = await control.shard("tiny/0.0", ShardState.READY)
    assert report.pid is not None
    # What was on the disk when an agent was killed was not asked for again.
    first, second = world.upstream.ranges
    assert first == "" and int(second.removeprefix("bytes=").partition("-")[0]) > 0

    assert world.memory("VmHWM") < 80 << 20
    await mends_what_is_removed(world, control, Path(engine.path).parents[3])
    assert len(world.upstream.ranges) == 2


async def mends_what_is_removed(world: World, control: Control, old: Path) -> None:
    """Somebody removes a library while the agent is away."""
    report = control.session.shards[ShardId("tiny/0.0")]
    count = len(control.sessions)
    assert world.agent is not None
    await world.agent.kill()
    world.library(old).unlink()
    world.hold("libraries")
    await world.agent.start()
    session = await control.registered(count + 1)
    assert session.registration.shards[0].pid == report.pid
    broken = await control.until(lambda: (one := session.engine("llama.cpp", VERSION)) and one.problem)
    assert broken == "libllama.so.0.0.1 is gone or changed since it was installed"
    world.let_go("libraries")
    install = await control.until(lambda: (one := session.install("llama.cpp", VERSION)) and not one.problem and one)
    engine = session.engine("llama.cpp", VERSION)
    assert engine is not None and (engine.problem, engine.path) == ("", install.path)
    again = Path(install.path).parents[3]
    assert again.name == f"{old.name}-2" and world.library(again).stat().st_size
    assert world.making() == [] and old.name in world.installed() and session.shards[report.shard].pid == report.pid, (
        "what serves is left alone"
    )
