"""A cluster's certificates, made once, and a control plane on real sockets."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from llmgw.client import ControlClient
from llmgw.config.address import Address
from llmgw.config.client import ClientConfig
from llmgw.config.load import load_server
from llmgw.config.tls import TlsFiles
from llmgw.core.identity import Role
from llmgw.daemon.serve import serve
from llmgw.pki.authority import init, issue
from tests.daemon.agent import Agent, agent

MODEL = """
models:
  gemma:
    aliases: [gemma-270m]
    replicas: 1
    profile: {engine: llama.cpp, weights: /w/gemma.gguf, context: 2048, slots: 2, memory: 600MiB}
"""


NODES = tuple(f"node{number:02}" for number in range(1, 9))


class Certificates:
    """The files of everybody in cluster `demo`, and of some who are not."""

    def __init__(self, root: Path) -> None:
        self.root = root
        for cluster in ("demo", "lab"):
            init(root / f"{cluster}-authority", cluster)
        self._issue("control", Role.CONTROL, "127.0.0.1")
        for node in NODES:
            self._issue(node, Role.AGENT)
        for role in (Role.OPERATOR, Role.VIEWER, Role.ROUTER):
            self._issue(role.value, role)
        issue(root / "lab-authority", "stranger", Role.CONTROL, ["127.0.0.1"], root / "lab")

    def _issue(self, name: str, role: Role, *addresses: str) -> None:
        issue(self.root / "demo-authority", name, role, addresses, self.root)

    def of(self, name: str) -> TlsFiles:
        return TlsFiles(self.root / f"{name}.crt", self.root / f"{name}.key", self.root / "authority.crt")


@pytest.fixture(scope="session")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("pki"))


def write_config(
    directory: Path, certificates: Certificates, extra: str = MODEL, engines: str = "{}", **changes: str
) -> Path:
    """A server.yaml whose control plane listens where the kernel lets it, and at a Unix socket."""
    values = {
        "cluster": "demo",
        "listen": "127.0.0.1:0",
        "socket": "run/llmgwd.sock",
        "store": "llmgw.db",
        "heartbeat": "500ms",
        "lost_after": "2s",
        "settle": "200ms",
    } | changes
    lines = [f"{key}: {value}" for key, value in values.items()]
    own = certificates.of("control")
    lines.append("engines: " + engines)
    lines.append(f"tls: {{certificate: {own.certificate}, key: {own.key}, authority: {own.authority}}}")
    path = directory / "server.yaml"
    path.write_text("\n".join(lines) + extra)
    return path


@dataclass
class Control:
    """A control plane that runs in this process."""

    port: int
    socket: Path
    certificates: Certificates
    stop: asyncio.Event
    hangup: asyncio.Event

    def client(self, name: str = "operator") -> ControlClient:
        return ControlClient.open(
            ClientConfig(server=(Address("127.0.0.1", self.port),), tls=self.certificates.of(name))
        )

    def local_client(self) -> ControlClient:
        return ControlClient.open(ClientConfig(socket=self.socket))

    def agent(self, name: str, certificate: str = "") -> AbstractAsyncContextManager[Agent]:
        return agent(self.port, self.certificates.of(certificate or name), name)


Start = Callable[..., AbstractAsyncContextManager[Control]]


@pytest.fixture
def start(tmp_path: Path, certificates: Certificates) -> Start:
    """Bring a control plane up; again with the same directory when used twice."""

    @asynccontextmanager
    async def running(**changes: str) -> AsyncIterator[Control]:
        file = write_config(tmp_path, certificates, **changes)
        config = load_server(file)
        stop, hangup, where = asyncio.Event(), asyncio.Event(), asyncio.get_running_loop().create_future()
        async with asyncio.TaskGroup() as group:
            group.create_task(serve(config, file, stop, hangup, where.set_result))
            port = int((await where).partition(" ")[0].rpartition(":")[2])
            assert config.socket is not None
            try:
                yield Control(port, config.socket, certificates, stop, hangup)
            finally:
                stop.set()

    return running
