"""Just enough of an HTTP client to ask the gateway something, and to see the pieces of an answer as they come."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from urllib.parse import urlsplit

import httptools

from llmgw.core.errors import ClusterCannot

_LARGEST = 16 << 20


class Answer:
    """An answer that is being received. Iterate over it for the pieces of its body."""

    def __init__(self, reader: asyncio.StreamReader) -> None:
        self._reader = reader
        self._parser = httptools.HttpResponseParser(self)
        self._pieces: list[bytes] = []
        self._headed = self._complete = False
        self._size = 0

    @property
    def status(self) -> int:
        """The HTTP status."""
        return int(self._parser.get_status_code())

    async def head(self) -> None:
        """Wait for the status and the headers."""
        while not self._headed:
            await self._feed()

    async def __aiter__(self) -> AsyncIterator[bytes]:
        while True:
            while self._pieces:
                yield self._pieces.pop(0)
            if self._complete:
                return
            await self._feed()

    async def text(self) -> str:
        """The whole body."""
        return b"".join([piece async for piece in self]).decode("utf-8", "replace")

    async def _feed(self) -> None:
        data = await self._reader.read(65536)
        self._size += len(data)
        if not data or self._size > _LARGEST:
            raise ClusterCannot(
                "the gateway's answer ended too early" if not data else "the gateway's answer is endless"
            )
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            raise ClusterCannot(f"the gateway's answer is not HTTP: {error}") from None

    # what the parser calls

    def on_headers_complete(self) -> None:
        """The parser is past the headers."""
        self._headed = True

    def on_body(self, body: bytes) -> None:
        """The parser found a piece of the body."""
        self._pieces.append(body)

    def on_message_complete(self) -> None:
        """The parser is at the end of the body."""
        self._complete = True


@asynccontextmanager
async def ask(url: str, path: str, body: object = None) -> AsyncIterator[Answer]:
    """GET, or POST `body` as JSON, and yield the answer once its headers are there; ClusterCannot when none comes."""
    place = urlsplit(url)
    content = b"" if body is None else json.dumps(body).encode()
    head = f"{'GET' if body is None else 'POST'} {path} HTTP/1.1\r\nHost: {place.netloc}\r\nConnection: close\r\n"
    head += f"Content-Type: application/json\r\nContent-Length: {len(content)}\r\n\r\n" if content else "\r\n"
    try:
        reader, writer = await asyncio.open_connection(place.hostname, place.port)
    except OSError as error:
        raise ClusterCannot(f"the gateway {url} does not answer: {(error.strerror or str(error)).lower()}") from None
    try:
        writer.write(head.encode() + content)
        answer = Answer(reader)
        await answer.head()
        yield answer
    except ConnectionError as error:
        raise ClusterCannot(f"the gateway {url} broke off: {(error.strerror or str(error)).lower()}") from None
    finally:
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()
