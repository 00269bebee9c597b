"""How does a client's connection go? Requests in, one answer each, in order, within bounds.

One request is worked on at a time; what the client sends beyond it waits, up to a bound, and then reading is paused.

    HEAD → BODY → ANSWERING → HEAD …      any → LINGER (answered, refuses more) → CLOSED
"""

import asyncio
import itertools
import os
import re
import socket
import struct
from collections.abc import Callable
from enum import Enum
from typing import cast

from llmgw.core.units import size
from llmgw.router import answers
from llmgw.router.bodies import BadBody, Body, Chunked, Counted
from llmgw.router.heads import Malformed, RequestHead, check_part, request_head, status_line
from llmgw.router.limits import Limits
from llmgw.router.requests import Handler, Request

_ID = re.compile(rb"[A-Za-z0-9._-]{1,64}")
_NEVER = float("inf")
_AT_ONCE = 16
"""Requests of one connection that are answered before others get their turn."""
_RESET = struct.pack("ii", 1, 0)


class State(Enum):
    """Where a connection is."""

    HEAD = "head"
    BODY = "body"
    ANSWERING = "answering"
    LINGER = "linger"
    CLOSED = "closed"


class Shared:
    """What all client connections have in common."""

    def __init__(self, handler: Handler, limits: Limits, clock: Callable[[], float]) -> None:
        self.handler, self.limits, self.clock = handler, limits, clock
        self.connections: set[ClientConnection] = set()
        self.held = 0
        """Bytes of bodies in memory."""
        self.draining = False
        self.empty = asyncio.Event()
        self.empty.set()
        self._ids = (b"%s-%x" % (os.urandom(5).hex().encode(), n) for n in itertools.count(1))

    def id_for(self, head: RequestHead | None) -> bytes:
        """The client's id for its request where it can be used, else a new one; without a head there was none."""
        return head.given_id if head and head.given_id and _ID.fullmatch(head.given_id) else next(self._ids)

    def sweep(self) -> None:
        """Look at every deadline; called each tick."""
        now = self.clock()
        for connection in [c for c in self.connections if c.deadline <= now]:
            connection.expired(now)


class ClientConnection(asyncio.Protocol):
    """One connection of a client."""

    # Ten thousand idle ones are nothing special: a dict each would cost more than the rest of them.
    __slots__ = (
        "_advancing",
        "_body",
        "_close",
        "_head",
        "_held",
        "_lingered",
        "_pieces",
        "_reading",
        "_received",
        "_request",
        "_seen",
        "_since",
        "_state",
        "_transport",
        "_unsent",
        "client",
        "deadline",
        "paused",
        "shared",
    )

    def __init__(self, shared: Shared) -> None:
        self.shared = shared
        self.client = ""
        self.paused = False
        self.deadline = _NEVER
        self._transport: asyncio.Transport
        self._state = State.HEAD
        self._held = b""
        self._seen = 0  # bytes of _held that were looked at before
        self._reading = True
        self._close = False
        self._advancing = False
        self._head: RequestHead | None = None
        self._body: Body | None = None
        self._pieces: list[bytes] = []
        self._received = 0
        self._since = 0.0
        self._lingered = 0
        self._unsent = 0
        self._request: Request | None = None

    # --- what the transport tells -------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:  # noqa: D102
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is none by inheritance
        peer = transport.get_extra_info("peername")
        self.client = peer[0] if isinstance(peer, tuple) else "local"
        shared = self.shared
        shared.connections.add(self)
        shared.empty.clear()
        self.deadline = shared.clock() + shared.limits.idle_time
        if len(shared.connections) > shared.limits.connections or shared.draining:
            self._refuse(503, "too_many_connections", "this router has all the connections it takes")

    def data_received(self, data: bytes) -> None:  # noqa: D102
        if self._state is State.LINGER:
            self._lingered += len(data)
            if self._lingered > self.shared.limits.linger:
                self._transport.abort()
        elif self._state is State.BODY:
            self._feed_body(data)
        elif self._state is not State.CLOSED:
            self._held = self._held + data if self._held else data
            self._advance()

    def eof_received(self) -> bool:  # noqa: D102
        if self._state is State.BODY:
            self._refuse(400, "body_too_short", "the connection ended before the body did")
        return False

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: D102
        self._state = State.CLOSED
        shared = self.shared
        shared.connections.discard(self)
        if not shared.connections:
            shared.empty.set()
        self._forget_body()
        self._held = b""
        request, self._request = self._request, None
        if request is not None and request.listener is not None:
            request.listener.client_gone()

    def pause_writing(self) -> None:  # noqa: D102
        self.paused = True
        self.deadline = self.shared.clock() + self.shared.limits.write_time
        if self._request is not None and self._request.listener is not None:
            self._request.listener.client_paused()

    def resume_writing(self) -> None:  # noqa: D102
        self.paused = False
        if self._state is State.ANSWERING:
            self.deadline = _NEVER
        elif self._state is State.HEAD:
            self.deadline = self.shared.clock() + self.shared.limits.idle_time
        if self._request is not None and self._request.listener is not None:
            self._request.listener.client_resumed()
        self._advance()

    # --- requests in --------------------------------------------------------------------------------------------

    def _advance(self) -> None:
        """Take what waits, unless answers are left unread; answers that come at once go round the loop, not deeper."""
        if self._advancing:
            return
        self._advancing = True
        left = _AT_ONCE
        while left and self._state is State.HEAD and not self.paused and self._held and self._take_head():
            left -= 1
        self._advancing = False
        if not left:
            asyncio.get_running_loop().call_soon(self._advance)
        self._pace()

    def _pace(self) -> None:
        """Read on while what waits is within its bound."""
        wanted = len(self._held) <= self.shared.limits.ahead
        if wanted is not self._reading and self._state in (State.HEAD, State.ANSWERING):
            self._reading = wanted
            if wanted:
                self._transport.resume_reading()
            else:
                self._transport.pause_reading()

    def _take_head(self) -> bool:
        if not self._seen and not self._begin():
            return False
        end = self._held.find(b"\r\n\r\n", max(0, self._seen - 3))
        try:
            if end < 0:
                check_part(self._held, self._seen, self.shared.limits)
                self._seen = len(self._held)
                return False
            raw, self._held, self._seen = self._held[: end + 4], self._held[end + 4 :], 0
            head = request_head(raw, self.shared.limits)
        except Malformed as bad:
            self._refuse(bad.status, bad.code, str(bad))
            return False
        self._take_body(head)
        return True

    def _begin(self) -> bool:
        """Skip empty lines before a request; False while there is nothing else."""
        held = self._held
        for _ in range(2):
            held = held.removeprefix(b"\r\n")
        if self._since == 0.0:
            self._since = self.shared.clock()
            self.deadline = self._since + self.shared.limits.header_time
        if held in (b"", b"\r"):
            return False
        self._held = held
        return True

    def _take_body(self, head: RequestHead) -> None:
        limits = self.shared.limits
        self._head, self._close = head, head.close or self.shared.draining
        if head.length > limits.max_body:
            self._refuse(413, "body_too_large", f"the body is over {size(limits.max_body)}")
            return
        if not head.chunked and not head.length:
            self._ask(head, b"")
            return
        if head.expects and not self._continue(head):
            return
        if not head.chunked and len(self._held) >= head.length:
            body, self._held = self._held[: head.length], self._held[head.length :]
            if self._may_hold(len(body)):
                self._ask(head, body)
            return
        self._state = State.BODY
        self._since = self.shared.clock()
        self.deadline = self._since + limits.body_grace
        self._body = Chunked(limits.max_body) if head.chunked else Counted(head.length)
        data, self._held = self._held, b""
        if data:
            self._feed_body(data)

    def _continue(self, head: RequestHead) -> bool:
        if not self.shared.handler.wants(head):
            self._close = True
            self._ask(head, b"")
            return False
        if not self._held:
            self._transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        return True

    def _feed_body(self, data: bytes) -> None:
        body = self._body
        assert body is not None
        try:
            pieces = body.feed(data)
        except BadBody as bad:
            code = "body_too_large" if bad.too_large else "bad_body"
            self._refuse(413 if bad.too_large else 400, code, str(bad))
            return
        self._pieces += pieces
        if self._may_hold(sum(map(len, pieces))) and body.done:
            self._held = body.surplus
            self._body = None
            whole = self._pieces[0] if len(self._pieces) == 1 else b"".join(self._pieces)
            self._pieces = []
            assert self._head is not None
            self._ask(self._head, whole)
            self._advance()

    def _may_hold(self, count: int) -> bool:
        """Count so many more bytes of the body; False when that is too much for this router, and the client is told."""
        shared = self.shared
        self._received += count
        shared.held += count
        if shared.held <= shared.limits.bodies:
            return True
        self._refuse(503, "router_full", "this router holds all the request bodies it takes; try again later")
        return False

    def _ask(self, head: RequestHead, body: bytes) -> None:
        self._state, self._head = State.ANSWERING, None
        self.deadline = _NEVER
        self._request = Request(self, head, body, self.shared.id_for(head), self.shared.clock())
        self.shared.handler.answer(self._request)

    def _forget_body(self) -> None:
        """The bytes of a body no longer count against the bound for all."""
        self.shared.held -= self._received
        self._received = 0
        self._body, self._pieces = None, []

    # --- answers out --------------------------------------------------------------------------------------------

    def send(self, data: bytes) -> None:
        """Write a part of an answer."""
        self._transport.write(data)

    def closes(self, ends_with_connection: bool) -> bool:
        """Whether the connection closes after the answer that starts now."""
        self._close = self._close or ends_with_connection or self.shared.draining
        return self._close

    def answered(self, request: Request, last: bytes) -> None:
        """The current request's answer is whole with `last`; the next request may come."""
        assert request is self._request
        if last and request.head.method != b"HEAD":
            self._transport.write(last)
        self._request = None
        self._forget_body()
        if self._close:
            if self.shared.draining:
                self._hang_up()
            else:
                self._linger()
            return
        self._state, self._since = State.HEAD, 0.0
        if not self.paused:
            self.deadline = self.shared.clock() + self.shared.limits.idle_time
        if self._held:
            self._advance()

    def cut(self, request: Request, *, reset: bool) -> None:
        """End in the middle of an answer; `reset` where a plain close would look like its end."""
        assert request is self._request
        self._request = None
        self._forget_body()
        if reset:
            self._transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
            self._state = State.CLOSED
            self._transport.abort()
        else:
            self._hang_up()

    def _hang_up(self) -> None:
        """Close when what was written is sent, and not much later in any case."""
        self._state = State.CLOSED
        self.deadline = self.shared.clock() + self.shared.limits.write_time
        self._transport.close()

    def _refuse(self, status: int, code: str, text: str) -> None:
        """Answer once, read no more of what comes, close."""
        if self._state in (State.LINGER, State.CLOSED):
            return
        request_id = self.shared.id_for(self._head)
        answer = answers.error(status, code, text, fields=answers.retry_after(1) if status == 503 else b"")
        head = b"%b%bx-request-id: %b\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%b"
        self._transport.write(head % (status_line(status), answer.fields, request_id, len(answer.body), answer.body))
        self._forget_body()
        self._linger()
        self.shared.handler.refused(request_id, status, code, self.client)

    def _linger(self) -> None:
        """Say that no more comes and wait for the client to close, so that it reads the answer and not a reset."""
        self._state, self._held = State.LINGER, b""
        self._unsent = self._transport.get_write_buffer_size()
        limits = self.shared.limits
        self.deadline = self.shared.clock() + (limits.write_time if self._unsent else limits.linger_time)
        if not self._reading:
            self._reading = True
            self._transport.resume_reading()
        if self._transport.can_write_eof():
            self._transport.write_eof()

    # --- time and the end ---------------------------------------------------------------------------------------

    def expired(self, now: float) -> None:
        """The deadline has passed."""
        limits = self.shared.limits
        if self._state is State.LINGER and self._transport.get_write_buffer_size() < self._unsent:
            self._unsent = self._transport.get_write_buffer_size()
            self.deadline = now + (limits.write_time if self._unsent else limits.linger_time)
        elif self.paused or self._state in (State.LINGER, State.CLOSED):
            self._transport.abort()
        elif self._state is State.BODY:
            behind = self._received < (now - self._since - limits.body_grace) * limits.body_rate
            if behind or not self._received:
                self._refuse(408, "body_too_slow", f"the body came slower than {size(limits.body_rate)} a second")
            else:
                self.deadline = now + limits.tick
        elif self._state is State.HEAD and self._since:
            self._refuse(408, "header_too_slow", f"the header was not complete after {limits.header_time:g} s")
        else:
            self._hang_up()

    def leave(self) -> None:
        """The router stops: close unless a request is being worked on, and then after its answer."""
        self._close = True
        if self._state is State.LINGER or (self._state is State.HEAD and not self._since):
            self._hang_up()

    def abort(self) -> None:
        """Drop it as it is."""
        self._transport.abort()
