"""Parts of router tests over sockets: engines that say exactly what they are told, a router around them."""

import asyncio
import os
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import httptools

from llmgw.config.address import Address
from llmgw.config.router import RouterConfig
from llmgw.config.tls import TlsFiles
from llmgw.core.facts import Secret
from llmgw.core.names import ModelName, NodeName, ReplicaId
from llmgw.core.routes import Route, RouteReplica, Routes
from llmgw.core.views import ModelState, Revision
from llmgw.router.reach import Dial
from llmgw.router.run import Router

HERE = "a" * 32
"""The machine that routers under test believe to be on."""

OK = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}"
STREAM = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


def chat(body: bytes = b'{"model":"m"}', *fields: bytes, path: bytes = b"/v1/chat/completions") -> bytes:
    """A request as a client sends it."""
    lines = [b"POST %b HTTP/1.1" % path, b"Host: gateway", b"Content-Length: %d" % len(body), *fields]
    return b"\r\n".join(lines) + b"\r\n\r\n" + body


Script = Callable[["Call"], Awaitable[None]]


class Call:
    """One request that an engine got, and the way to answer it byte by byte."""

    def __init__(self, raw: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.raw, self.reader, self._writer = raw, reader, writer

    async def say(self, *data: bytes) -> None:
        for piece in data:
            self._writer.write(piece)
            await self._writer.drain()

    def hang_up(self) -> None:
        """Close at once, as a killed process does."""
        self._writer.transport.abort()

    async def left(self) -> None:
        """Return when the router has closed the connection."""
        while await self.reader.read(65536):
            pass


class StubEngine:
    """An HTTP server that says the bytes it is told to: a real engine cannot be made to misbehave."""

    def __init__(self) -> None:
        self.calls: list[bytes] = []
        self.connections = 0
        self.script: Script = self._ok
        self.seen: asyncio.Queue[Call] = asyncio.Queue()
        self.ended: asyncio.Queue[None] = asyncio.Queue()
        """Gets an item for each connection that ended."""
        self._writers: set[asyncio.StreamWriter] = set()

    @staticmethod
    async def _ok(call: Call) -> None:
        await call.say(OK)

    def says(self, *pieces: bytes, hang_up: bool = False) -> None:
        """Answer every request with these bytes."""

        async def script(call: Call) -> None:
            await call.say(*pieces)
            if hang_up:
                call.hang_up()

        self.script = script

    async def __aenter__(self) -> "StubEngine":
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def stop(self) -> None:
        """The process is gone."""
        self._server.close()
        for writer in list(self._writers):
            writer.transport.abort()

    def hang_up_idle(self) -> None:
        """Close every connection, as an engine does with those that were idle for long."""
        for writer in list(self._writers):
            writer.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self._writers.add(writer)
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                length = next(
                    int(line.split(b":")[1]) for line in head.split(b"\r\n") if line.startswith(b"Content-Length:")
                )
                raw = head + await reader.readexactly(length)
                self.calls.append(raw)
                call = Call(raw, reader, writer)
                self.seen.put_nowait(call)
                await self.script(call)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            self._writers.discard(writer)
            writer.transport.abort()
            self.ended.put_nowait(None)


def replica(number: int, port: int, *, model: str = "m", **more: Any) -> RouteReplica:
    return RouteReplica(
        **{
            "id": ReplicaId(f"{model}/{number}"),
            "launch": 1,
            "node": NodeName(f"node{number:02}"),
            "machine": HERE,
            "host": "127.0.0.1",
            "port": port,
            "key": Secret("engine-key"),
            **more,
        }
    )


def table(*replicas: RouteReplica, seq: int = 1, **more: Any) -> Routes:
    """A table with the model `m`."""
    route = Route(
        model=ModelName("m"),
        aliases=("vendor/M:latest",),
        replicas=replicas,
        **{"created": 1700000000.0, "state": ModelState.READY, **more},
    )
    return Routes(revision=Revision(epoch=1, seq=seq), routes=(route,))


class Rig:
    """A router over real sockets, fed by the test."""

    def __init__(self, path: Path, *, dial: Dial | None = None, **config: Any) -> None:
        self.path = path
        nowhere = path / "none"
        self.config = RouterConfig(
            **{
                "control": (Address("127.0.0.1", 1),),
                "tls": TlsFiles(nowhere, nowhere, nowhere),
                "listen": Address("127.0.0.1", 0),
                "state": path / "state",
                "drain": 0.0,
                **config,
            }
        )
        self._tables: asyncio.Queue[Routes | Exception] = asyncio.Queue()
        self._wires: list[Wire] = []
        self.opened = 0
        self.router = Router(self.config, machine=HERE, watch=self._watch, dial=dial)

    async def _watch(self) -> AsyncGenerator[Routes, None]:
        self.opened += 1
        while True:
            said = await self._tables.get()
            if isinstance(said, Exception):
                raise said
            yield said

    async def __aenter__(self) -> "Rig":
        self._stack = AsyncExitStack()
        self._log = os.open(self.path / "access.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        self._group = await self._stack.enter_async_context(asyncio.TaskGroup())
        self.running = self._group.create_task(self.router.run(self._log))
        await self.router.ready.wait()
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._log < 0:
            return
        self.router.stop()
        self.router.stop()
        await self._stack.aclose()
        for wire in self._wires:
            wire.close()
        await asyncio.sleep(0)  # transports close in the loop's next turn
        os.close(self._log)
        self._log = -1

    def say(self, said: Routes | Exception) -> None:
        """The control plane says this, some time soon."""
        self._tables.put_nowait(said)

    async def routes(self, *replicas: RouteReplica, **more: Any) -> None:
        """The control plane sends a table; returns when the router has it."""
        new = table(*replicas, **more)
        self.say(new)
        async with asyncio.timeout(10):
            while (await self.get("/health"))[2].find(b'"%s"' % str(new.revision).encode()) < 0:
                pass

    async def connect(self) -> "Wire":
        wire = Wire(*await asyncio.open_connection("127.0.0.1", self.router.port))
        self._wires.append(wire)
        return wire

    async def ask(self, raw: bytes) -> "Reply":
        """One request on a connection of its own; returns the whole answer."""
        wire = await self.connect()
        try:
            wire.send(raw)
            return await wire.reply()
        finally:
            wire.close()

    async def get(self, path: str) -> "Reply":
        return await self.ask(b"GET %b HTTP/1.1\r\nHost: gateway\r\n\r\n" % path.encode())

    def access(self) -> list[str]:
        """The access log's lines so far."""
        return (self.path / "access.log").read_text().splitlines()


Reply = tuple[int, dict[bytes, bytes], bytes]


class _Parts:
    def __init__(self) -> None:
        self.headers: dict[bytes, bytes] = {}
        self.body = b""
        self.headed = self.done = False

    def on_header(self, name: bytes, value: bytes) -> None:
        self.headers[name.lower()] = value

    def on_headers_complete(self) -> None:
        self.headed = True

    def on_body(self, data: bytes) -> None:
        self.body += data

    def on_message_complete(self) -> None:
        self.done = True


class Wire:
    """A client over a real socket that sees the bytes."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    def send(self, *data: bytes) -> None:
        for piece in data:
            self.writer.write(piece)

    async def until(self, end: bytes) -> bytes:
        async with asyncio.timeout(10):
            return await self.reader.readuntil(end)

    async def rest(self) -> bytes:
        """Everything until the router closes."""
        async with asyncio.timeout(10):
            return await self.reader.read()

    async def reply(self) -> Reply:
        """One whole answer, read by a parser that is not the router's."""
        parts = _Parts()
        parser = httptools.HttpResponseParser(parts)
        async with asyncio.timeout(10):
            while not parts.done:
                data = await self.reader.read(1) if parts.headed is False else await self.reader.read(65536)
                if not data:
                    raise EOFError(parts.body)
                parser.feed_data(data)
        return parser.get_status_code(), parts.headers, parts.body

    def close(self) -> None:
        self.writer.transport.abort()
