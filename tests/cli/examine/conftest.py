"""A control plane on a real socket that tells the time a test wants, and others that are none."""

import asyncio
import socket
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from llmgw.config.address import Address
from llmgw.config.tls import TlsFiles
from llmgw.core.views import AboutView, Revision
from llmgw.daemon.roles import ROLES
from llmgw.wire.convert import to_wire
from llmgw.wire.operator import v1
from llmgw.wire.server import RpcServer
from llmgw.wire.tls import server_context

ABOUT = "/operator.v1.Operator/About"


class Clock(v1.OperatorBase):
    """Says who it is and what time it has: `ahead` seconds more than it is here."""

    def __init__(self) -> None:
        self.ahead = 0.0

    async def about(self, message: v1.AboutRequest) -> v1.AboutView:
        view = AboutView(
            cluster="demo",
            version="0.1.0",
            revision=Revision(epoch=1, seq=1),
            now=time.time() + self.ahead,
            started=0.0,
            settled=True,
            exposure="loopback",
        )
        return to_wire(view, v1.AboutView)


Serve = Callable[..., Any]


@pytest.fixture
async def serve() -> AsyncIterator[Serve]:
    """Start a control plane with these files; returns its address. What it may be asked, and by whom, is as it is."""
    running: list[RpcServer] = []

    async def start(files: TlsFiles, ahead: float = 0.0) -> Address:
        service = Clock()
        service.ahead = ahead
        server = RpcServer([service], roles={path: ROLES[path] for path in service.__mapping__()}, cluster="demo")
        running.append(server)
        return Address("127.0.0.1", await server.listen_tls("127.0.0.1", 0, server_context(files)))

    yield start
    for server in running:
        await server.close(0.5)


@pytest.fixture
async def plain() -> AsyncIterator[Address]:
    """A web server without TLS."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(65536)
        writer.write(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    yield Address("127.0.0.1", server.sockets[0].getsockname()[1])
    server.close()


@pytest.fixture
def silent() -> Iterator[Address]:
    """Somebody who takes connections and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield Address("127.0.0.1", listener.getsockname()[1])


@pytest.fixture
def closed() -> Address:
    """An address at which nobody listens."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return Address("127.0.0.1", taken.getsockname()[1])


@pytest.fixture
def black_hole() -> Iterator[Address]:
    """An address that answers no SYN, as one behind a firewall: its queue is full and nobody takes from it."""
    with ExitStack() as held:
        listener = held.enter_context(socket.create_server(("127.0.0.1", 0), backlog=0))
        for _ in range(4):
            waiting = held.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(listener.getsockname())
        yield Address("127.0.0.1", listener.getsockname()[1])
