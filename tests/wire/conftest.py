"""A server of a few calls, with certificates of a real authority."""

import asyncio
import gc
import logging
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from llmgw.config.tls import TlsFiles
from llmgw.core.errors import UnknownModel
from llmgw.core.identity import Role
from llmgw.pki import authority
from llmgw.wire.agent import v1 as agent
from llmgw.wire.channel import Channel
from llmgw.wire.operator import v1 as operator
from llmgw.wire.server import BidiStream, Limits, RpcServer, bidi, current_peer
from llmgw.wire.tls import server_context

from .raw import Raw

ALL = frozenset(Role)
LINK = "/agent.v1.AgentLink/Link"
OPERATOR = "/operator.v1.Operator/"


@pytest.fixture(scope="session")
def make_files(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., TlsFiles]:
    """Files for a name and role, of cluster `demo` unless said otherwise; made once."""
    root = tmp_path_factory.mktemp("pki")
    made: dict[tuple[str, str, str], TlsFiles] = {}

    def make(name: str, role: Role, cluster: str = "demo") -> TlsFiles:
        key = (name, role.value, cluster)
        if key not in made:
            home = root / cluster
            if not home.exists():
                authority.init(home, cluster)
            out = root / f"{cluster}-{role.value}-{name}"
            issued = authority.issue(home, name, role, ["127.0.0.1", "localhost"], out)
            made[key] = TlsFiles(issued.certificate, issued.key, issued.authority)
        return made[key]

    return make


@pytest.fixture
def dial(make_files: Callable[..., TlsFiles]) -> Callable[..., Channel]:
    """A channel of an agent to a port of this machine."""

    def dial(port: int, **options: Any) -> Channel:
        return Channel("127.0.0.1", port, make_files("a1", Role.AGENT), **options)

    return dial


@pytest.fixture
def raw(make_files):
    return lambda served: Raw(served.port, make_files("thief", Role.OPERATOR))


@pytest.fixture
def others(make_files):
    """That somebody else is served as ever."""

    async def ask(served):
        async with within(), Channel("127.0.0.1", served.port, make_files("op", Role.OPERATOR)) as channel:
            return await channel.call(OPERATOR + "About", operator.AboutRequest(), operator.AboutView)

    return ask


@pytest.fixture
def nothing_is_left(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """No task whose error nobody took; of sockets that nobody closed pytest makes an error itself."""
    yield
    gc.collect()
    assert not [record.getMessage() for record in caplog.records if record.name == "asyncio"]


class Log(logging.Handler):
    """What the server logs, without the peer's address."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []
        self._more = asyncio.Event()

    def emit(self, record: logging.LogRecord) -> None:
        line = record.getMessage()
        assert "\n" not in line
        self.lines.append(line.partition(": ")[2])
        self._more.set()

    async def next(self) -> str:
        """Take the first line that was not taken."""
        while not self.lines:
            self._more.clear()
            await self._more.wait()
        return self.lines.pop(0)


@pytest.fixture
def log(caplog: pytest.LogCaptureFixture) -> Iterator[Log]:
    caplog.set_level(logging.INFO, "llmgw.wire")
    handler = Log()
    logging.getLogger("llmgw.wire").addHandler(handler)
    yield handler
    logging.getLogger("llmgw.wire").removeHandler(handler)


class Service(operator.OperatorBase):
    """Answers, fails and waits as its request says."""

    def __init__(self) -> None:
        self.closed = asyncio.Event()
        self.page = operator.Page(revision=operator.Revision(epoch=1, seq=1))
        self.pages = 3

    async def about(self, message: operator.AboutRequest) -> operator.AboutView:
        return operator.AboutView(
            cluster="demo", version=str(current_peer().identity), revision=operator.Revision(epoch=1, seq=2)
        )

    async def why_model(self, message: operator.WhyModelRequest) -> operator.Why:
        if message.model == "wait":
            await asyncio.Event().wait()
        if message.model == "fault":
            raise RuntimeError("a secret detail")
        raise UnknownModel(message.model, ["gemma", "qwen"])

    def watch(self, message: operator.WatchRequest) -> AsyncIterator[operator.Page]:
        self.watching = self._watch(message)  # kept, so that only who closes it ends it
        return self.watching

    async def _watch(self, message: operator.WatchRequest) -> AsyncIterator[operator.Page]:
        try:
            for _ in range(self.pages):
                yield self.page
            if message.follow:
                await asyncio.Event().wait()
        finally:
            self.closed.set()


async def echo(stream: BidiStream[agent.AgentMessage, agent.ControlMessage]) -> None:
    """Answers each message with its reason; "end" ends the call, "die" kills it."""
    async for message in stream:
        reason = message.leaving.reason if message.leaving else ""
        if reason == "end":
            return
        if reason == "die":
            raise UnknownModel("die")
        await stream.send(agent.ControlMessage(refused=agent.Refused(code="echo", text=reason)))


class Served:
    """A running server."""

    def __init__(self, server: RpcServer, service: Service, port: int) -> None:
        self.server, self.service, self.port = server, service, port


@pytest.fixture
async def serve(make_files: Callable[..., TlsFiles]) -> AsyncIterator[Any]:
    """Start a server on a free port; closed at the end of the test."""
    running: list[RpcServer] = []

    async def start(
        limits: Limits | None = None,
        link: Any = echo,
        files: TlsFiles | None = None,
        roles: frozenset[Role] = ALL,
        unix: Path | None = None,
    ) -> Served:
        service = Service()
        services = [service, bidi(LINK, agent.AgentMessage, agent.ControlMessage, link)]
        paths = [path for one in services for path in one.__mapping__()]
        server = RpcServer(services, roles=dict.fromkeys(paths, roles), cluster="demo", limits=limits)
        context = server_context(files or make_files("control", Role.CONTROL))
        port = await server.listen_tls("127.0.0.1", 0, context)
        if unix is not None:
            await server.listen_unix(unix)
        running.append(server)
        return Served(server, service, port)

    yield start
    for server in running:
        await server.close(0.5)


@asynccontextmanager
async def within(seconds: float = 5.0) -> AsyncIterator[None]:
    """A bound for a wait in a test."""
    async with asyncio.timeout(seconds):
        yield
