"""An HTTP/2 client that does as it is told, frame by frame."""

import asyncio
import ssl
from typing import Any, Self

from grpclib.const import Status
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import ConnectionTerminated, Event, ResponseReceived, TrailersReceived

from llmgw.config.tls import TlsFiles
from llmgw.wire.tls import client_context

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
HEADERS = [
    (":method", "POST"),
    (":scheme", "https"),
    (":path", "/operator.v1.Operator/About"),
    (":authority", "x"),
    ("te", "trailers"),
    ("content-type", "application/grpc"),
]


def headers(path: str = "/operator.v1.Operator/About", **other: str) -> list[tuple[str, str]]:
    return [(name, path if name == ":path" else value) for name, value in HEADERS] + list(other.items())


def frame(kind: int, flags: int, stream: int, payload: bytes = b"", length: int | None = None) -> bytes:
    size = len(payload) if length is None else length
    return size.to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big") + payload


def message(payload: bytes = b"", flag: int = 0, length: int | None = None) -> bytes:
    return bytes([flag]) + (len(payload) if length is None else length).to_bytes(4, "big") + payload


class Raw:
    """One connection; `events` are those that have come."""

    def __init__(self, port: int, files: TlsFiles) -> None:
        self._port, self._files = port, files
        self.h2 = H2Connection(
            H2Configuration(
                client_side=True,
                header_encoding="utf-8",
                validate_outbound_headers=False,
                normalize_outbound_headers=False,
            )
        )
        self.events: list[Event] = []
        self.closed = False
        self.speaks = False
        """Whether it answers as HTTP/2 asks, SETTINGS for example."""

    async def __aenter__(self) -> Self:
        context = client_context(self._files)
        self._reader, self.writer = await asyncio.open_connection("127.0.0.1", self._port, ssl=context)
        return self

    async def __aexit__(self, *exc: object) -> None:
        self.writer.transport.abort()

    async def begin(self) -> None:
        self.speaks = True
        self.h2.initiate_connection()
        await self.flush()

    async def flush(self) -> None:
        self.send(self.h2.data_to_send())
        await self.drain()

    def send(self, data: bytes) -> None:
        self.writer.write(data)

    async def drain(self) -> None:
        try:
            await self.writer.drain()
        except (ConnectionError, ssl.SSLError):
            self.closed = True

    async def open(self, path: str = "/operator.v1.Operator/About", body: bytes | None = None) -> int:
        """Begin a call; with a body, also end our side of it."""
        stream = self.h2.get_next_available_stream_id()
        self.h2.send_headers(stream, headers(path))
        if body is not None:
            self.h2.send_data(stream, body, end_stream=True)
        await self.flush()
        return stream

    async def until(self, kind: type[Event], **wanted: Any) -> Any:
        """Read on until an event of this kind came; EOFError when the connection ends before."""
        seen = 0
        while True:
            for event in self.events[seen:]:
                if isinstance(event, kind) and all(getattr(event, k) == v for k, v in wanted.items()):
                    return event
            seen = len(self.events)
            await self._read()

    async def farewell(self) -> str:
        """Read to the end of the connection and return the text of the GOAWAY."""
        try:
            while True:
                await self._read()
        except (EOFError, ConnectionError, ssl.SSLError):
            pass
        for event in self.events:
            if isinstance(event, ConnectionTerminated):
                return (event.additional_data or b"").decode() or f"error {event.error_code}"
        return ""

    async def _read(self) -> None:
        data = await self._reader.read(65536)
        if not data:
            raise EOFError
        self.events += self.h2.receive_data(data)
        if not self.speaks:
            return
        try:
            await self.flush()
        except (ConnectionError, ssl.SSLError):
            self.closed = True


async def status_of(connection, stream):
    """The gRPC status that a call ended with."""
    while True:
        event = await connection.until((ResponseReceived, TrailersReceived), stream_id=stream)
        found = dict(event.headers)
        if "grpc-status" in found:
            return Status(int(found["grpc-status"])), found.get("grpc-message", "")
        connection.events.remove(event)
