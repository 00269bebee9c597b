"""A real HTTP server of files that misbehaves as it is told; counts what it sends."""

import asyncio
import ssl
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Self

Head = dict[str, str]


@dataclass
class Asked:
    """One request."""

    path: str
    head: Head

    @property
    def offset(self) -> int:
        range_ = self.head.get("range", "bytes=0-")
        return int(range_.removeprefix("bytes=").removesuffix("-"))


Answer = Callable[["Upstream", Asked, asyncio.StreamWriter], Awaitable[None]]


@dataclass(repr=False)  # of millions of bytes
class Upstream:
    """Answers each request by `answer`, `whole` unless said otherwise."""

    content: bytes
    answer: Answer
    asked: list[Asked] = field(default_factory=list)
    sent: int = 0
    port: int = 0
    tls: ssl.SSLContext | None = None

    async def __aenter__(self) -> Self:
        self._running = set[asyncio.Task[Any]]()
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0, ssl=self.tls)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *exc: object) -> None:
        self._server.close()
        for task in self._running:
            task.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)

    def url(self, path: str = "/file") -> str:
        return f"http://127.0.0.1:{self.port}{path}"

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._running.add(task)
        with suppress(ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            lines = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
            head = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines[1:] if line)}
            asked = Asked(lines[0].split(" ")[1], head)
            self.asked.append(asked)
            await self.answer(self, asked, writer)
            await writer.drain()
        writer.close()
        self._running.discard(task)

    async def body(self, writer: asyncio.StreamWriter, data: bytes) -> None:
        self.sent += len(data)
        writer.write(data)
        await writer.drain()


def head(writer: asyncio.StreamWriter, status: int, *lines: str) -> None:
    writer.write("\r\n".join([f"HTTP/1.1 {status} Said", *lines, "Connection: close", "", ""]).encode())


async def whole(up: Upstream, asked: Asked, writer: asyncio.StreamWriter) -> None:
    """As a good server: ranges, an ETag."""
    await cut_to(len(up.content))(up, asked, writer)


def cut_to(end: int) -> Answer:
    """As a good server whose connection ends once it has sent all bytes before `end`."""

    async def answer(up: Upstream, asked: Asked, writer: asyncio.StreamWriter) -> None:
        at, size = asked.offset, len(up.content)
        ranges = ['ETag: "one"', f"Content-Length: {size - at}"]
        if "range" in asked.head:
            head(writer, 206, f"Content-Range: bytes {at}-{size - 1}/{size}", *ranges)
        else:
            head(writer, 200, *ranges)
        await up.body(writer, up.content[at : max(end, at)])

    return answer


async def without_ranges(up: Upstream, asked: Asked, writer: asyncio.StreamWriter) -> None:
    head(writer, 200, f"Content-Length: {len(up.content)}")
    await up.body(writer, up.content)


def says(status: int, *lines: str) -> Answer:
    async def answer(up: Upstream, asked: Asked, writer: asyncio.StreamWriter) -> None:
        head(writer, status, *lines, "Content-Length: 0")

    return answer


def in_turn(*answers: Answer) -> Answer:
    """One after the other; the last one for all that follow."""
    left = list(answers)

    async def answer(up: Upstream, asked: Asked, writer: asyncio.StreamWriter) -> None:
        await (left.pop(0) if len(left) > 1 else left[0])(up, asked, writer)

    return answer
