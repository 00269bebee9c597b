"""Parts of router tests without sockets: a client's connection, its transport and its clock, moved by the test."""

import asyncio
from dataclasses import dataclass, field
from typing import Any

from llmgw.router import answers
from llmgw.router.heads import RequestHead
from llmgw.router.limits import Limits
from llmgw.router.requests import Request
from llmgw.router.server import ClientConnection, Shared


class FakeClock:
    """A clock that the test moves."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class FakeTransport(asyncio.Transport):
    """Keeps what is written; delivers nothing by itself."""

    def __init__(self) -> None:
        super().__init__()
        self.written = bytearray()
        self.ended = self.closed = self.aborted = False
        self.reading = True
        self.unsent = 0

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return ("192.0.2.7", 50000) if name == "peername" else default

    def write(self, data: Any) -> None:
        assert not (self.ended or self.closed), "written after the end"
        self.written += data

    def get_write_buffer_size(self) -> int:
        return self.unsent

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        self.ended = True

    def pause_reading(self) -> None:
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = True

    def close(self) -> None:
        self.closed = True

    def abort(self) -> None:
        self.closed = self.aborted = True


class Recorder:
    """Answers every request at once and remembers it."""

    def __init__(self) -> None:
        self.requests: list[tuple[bytes, bytes, list[bytes], bytes]] = []
        self.refusals: list[tuple[int, str]] = []
        self.refused_ids: list[bytes] = []
        self.hold = False
        self.held: list[Request] = []

    def wants(self, head: RequestHead) -> bool:
        return head.path != b"/unwanted"

    def answer(self, request: Request) -> None:
        head = request.head
        self.requests.append((head.method, head.path, list(head.forward), request.body))
        if self.hold:
            self.held.append(request)
        else:
            request.whole(answers.Answer(200, b"{}"))

    def refused(self, request_id: bytes, status: int, code: str, client: str) -> None:
        self.refusals.append((status, code))
        self.refused_ids.append(request_id)


@dataclass
class Client:
    """A client's connection in memory."""

    limits: Limits = field(default_factory=Limits)
    clock: FakeClock = field(default_factory=FakeClock)
    handler: Recorder = field(default_factory=Recorder)

    def __post_init__(self) -> None:
        self.shared = Shared(self.handler, self.limits, self.clock)
        self.connection = ClientConnection(self.shared)
        self.transport = FakeTransport()
        self.connection.connection_made(self.transport)

    def feed(self, *pieces: bytes) -> "Client":
        """As a transport does: nothing more is delivered once it was closed."""
        for piece in pieces:
            if piece and not self.transport.closed:
                self.connection.data_received(piece)
        return self

    def pass_time(self, seconds: float) -> None:
        """The clock moves and the deadlines are looked at."""
        self.clock.now += seconds
        self.shared.sweep()

    @property
    def statuses(self) -> list[int]:
        return [status for status, _, _ in responses(bytes(self.transport.written))]


def responses(data: bytes) -> list[tuple[int, dict[bytes, bytes], bytes]]:
    """Split answers that all state their length."""
    found = []
    while data:
        head, _, data = data.partition(b"\r\n\r\n")
        first, *lines = head.split(b"\r\n")
        fields = {n.lower(): v.strip() for n, _, v in (line.partition(b":") for line in lines)}
        length = int(fields.get(b"content-length", b"0"))
        found.append((int(first.split(b" ")[1]), fields, data[:length]))
        data = data[length:]
    return found
