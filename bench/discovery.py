"""How long a node takes to describe itself, and what its heartbeats cost it."""

import asyncio
import os
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from pathlib import Path

import psutil
import yaml

from bench.figure import Figure
from llmgw.agent.discovery.inventory import inventory
from llmgw.agent.discovery.root import Root
from llmgw.config.load import load_agent
from llmgw.config.tls import TlsFiles
from llmgw.core.errors import ClusterCannot
from llmgw.core.identity import Role
from llmgw.core.link import Accepted, AgentMessage, Heartbeat, Registration
from llmgw.pki import authority
from llmgw.wire.agent import v1
from llmgw.wire.convert import from_wire, to_wire
from llmgw.wire.server import BidiStream, RpcServer, bidi
from llmgw.wire.tls import server_context

LINK = "/agent.v1.AgentLink/Link"
LOOKS = 9
BEATS, APART = 200, 0.1
"""Heartbeats that are measured, and seconds between them: so often that what else the agent does hardly counts."""
INTERVAL = 5.0
"""Seconds between heartbeats that the figure is about."""
PATIENCE = 60.0


async def figures() -> AsyncIterator[Figure]:
    with tempfile.TemporaryDirectory(prefix="llmgw-bench-") as scratch:
        home = Path(scratch)
        authority.init(home / "pki", "bench")
        control = authority.issue(home / "pki", "control", Role.CONTROL, ["127.0.0.1"], home / "control")
        authority.issue(home / "pki", "node01", Role.AGENT, [], home / "node01")
        yield await _full(_config(home, 1))
        yield await _heartbeat(home, TlsFiles(control.certificate, control.key, control.authority))


def _config(home: Path, port: int) -> Path:
    files = {"certificate": "node01/node01.crt", "key": "node01/node01.key", "authority": "node01/authority.crt"}
    said = {"control": [f"127.0.0.1:{port}"], "tls": files, "node": "node01", "state": "state", "launcher": "session"}
    path = home / "agent.yaml"
    path.write_text(yaml.safe_dump(said))
    return path


async def _full(file: Path) -> Figure:
    """Looks at this machine, without the tools of GPUs: what those take is their drivers' affair."""
    config, root, took = load_agent(file), Root(search=os.devnull), list[float]()
    for _ in range(LOOKS):
        begun = time.perf_counter()
        await inventory(config, root)
        took.append(1000 * (time.perf_counter() - begun))
    return Figure(name="discovery.full", value=statistics.median(took), unit="ms", goal=150.0)


async def _heartbeat(home: Path, files: TlsFiles) -> Figure:
    """CPU of a real agent, by heartbeats that a control plane of a few lines hears."""
    heard = _Heard()
    service = bidi(LINK, v1.AgentMessage, v1.ControlMessage, heard.serve)
    server = RpcServer([service], roles={LINK: frozenset({Role.AGENT})}, cluster="bench")
    port = await server.listen_tls("127.0.0.1", 0, server_context(files))
    argv = (sys.executable, "-m", "llmgw.agent.main", "--config", str(_config(home, port)))
    quiet = asyncio.subprocess.DEVNULL
    agent = await asyncio.create_subprocess_exec(*argv, stdout=quiet, stderr=quiet)
    try:
        seen = psutil.Process(agent.pid)
        await heard.until(BEATS // 10)  # what it does at its start is over
        first, before = heard.beats, seen.cpu_times()
        await heard.until(first + BEATS)
        after = seen.cpu_times()
        each = (after.user + after.system - before.user - before.system) / (heard.beats - first)
    finally:
        agent.kill()
        await agent.wait()
        await server.close(0.5)
    return Figure(name="discovery.heartbeat", value=100 * each / INTERVAL, unit="% of a core at 5 s", goal=0.5)


class _Heard:
    """Accepts an agent, and counts its heartbeats."""

    def __init__(self) -> None:
        self.beats = 0
        self._rung = asyncio.Event()

    async def serve(self, stream: BidiStream[v1.AgentMessage, v1.ControlMessage]) -> None:
        accepted = Accepted(cluster="bench", epoch=1, heartbeat=APART)
        async for message in stream:
            match from_wire(message, AgentMessage):
                case Registration():
                    await stream.send(to_wire(accepted, v1.ControlMessage))
                case Heartbeat():
                    self.beats += 1
                    self._rung.set()

    async def until(self, beats: int) -> None:
        try:
            async with asyncio.timeout(PATIENCE):
                while self.beats < beats:
                    self._rung.clear()
                    await self._rung.wait()
        except TimeoutError:
            raise ClusterCannot(f"{self.beats} heartbeats came within {PATIENCE:.0f}s") from None
