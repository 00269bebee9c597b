"""What is a request to those who answer it? Its head, its body, and one way to answer, whole or bit by bit."""

from typing import Protocol

from llmgw.router.answers import Answer
from llmgw.router.heads import RequestHead, status_line


class Listener(Protocol):
    """Who writes a long answer is told how the client takes it, by being the request's `listener`."""

    def client_gone(self) -> None:
        """Nobody reads any more; the request must not be answered (further)."""

    def client_paused(self) -> None:
        """The client reads more slowly than the answer comes; bring no more."""

    def client_resumed(self) -> None:
        """Go on."""


class Handler(Protocol):
    """Who answers requests."""

    def wants(self, head: RequestHead) -> bool:
        """Whether a client that waits for `100 Continue` may send its body."""

    def answer(self, request: "Request") -> None:
        """Answer it, now or later; the connection hands on its next request when this one's answer has ended."""

    def refused(self, request_id: bytes, status: int, code: str, client: str) -> None:
        """A request was answered with an error by its connection and not handed on; `code` says why."""


class Connection(Protocol):
    """The client's connection, as far as an answer needs it."""

    client: str
    """The client's address."""

    def send(self, data: bytes) -> None:
        """Write a part of an answer."""

    def closes(self, ends_with_connection: bool) -> bool:
        """Whether the connection closes after the answer that starts now; `ends_with_connection`: it must."""

    def answered(self, request: "Request", last: bytes) -> None:
        """The current request's answer is whole with `last`; the next request may come."""

    def cut(self, request: "Request", *, reset: bool) -> None:
        """End in the middle of an answer; `reset` where a plain close would look like its end."""


class Request:
    """One request, whole, and the way to answer it: `whole`, or `start`, `write` and `finish` or `cut`."""

    __slots__ = ("_chunked", "_connection", "_open_end", "body", "head", "id", "listener", "started")

    def __init__(self, to: Connection, head: RequestHead, body: bytes, request_id: bytes, started: float) -> None:
        self._connection, self.head, self.body, self.id, self.started = to, head, body, request_id, started
        self.listener: Listener | None = None
        self._chunked = False
        self._open_end = False  # only the connection's end says where the body ends

    @property
    def client(self) -> str:
        """The address it came from."""
        return self._connection.client

    def whole(self, answer: Answer) -> None:
        """Answer with all there is to say."""
        self.start(answer.status, answer.fields, len(answer.body), answer.body)
        self.finish()

    def start(self, status: int, fields: bytes, length: int | None, first: bytes = b"") -> None:
        """Send the head, and `first` with it. Without a length the body is chunked, or ends with the connection."""
        framing = b""
        bodiless = status in (204, 304)
        if length is None:
            self._chunked, self._open_end = not self.head.old, self.head.old
            framing = b"Transfer-Encoding: chunked\r\n" if self._chunked else b""
        elif not bodiless:
            framing = b"Content-Length: %d\r\n" % length
        close = b"Connection: close\r\n" if self._connection.closes(self._open_end) else b""
        head = b"%b%bx-request-id: %b\r\n%b%b\r\n" % (status_line(status), fields, self.id, framing, close)
        if first and not bodiless and self.head.method != b"HEAD":
            head += b"%x\r\n%b\r\n" % (len(first), first) if self._chunked else first
        self._connection.send(head)

    def write(self, piece: bytes) -> None:
        """Send more of the body; `piece` is not empty."""
        self._connection.send(b"%x\r\n%b\r\n" % (len(piece), piece) if self._chunked else piece)

    def finish(self, last: bytes = b"") -> None:
        """The answer is whole, with `last` as the end of its body."""
        if self._chunked:
            last = b"%x\r\n%b\r\n0\r\n\r\n" % (len(last), last) if last else b"0\r\n\r\n"
        self._connection.answered(self, last)

    def cut(self, last: bytes = b"") -> None:
        """End the answer so that no client takes it for whole: `last`, then the connection closes without an end."""
        if last:
            self.write(last)
        self._connection.cut(self, reset=self._open_end and not last)
