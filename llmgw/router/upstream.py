"""How does the router talk to one engine? Kept connections, one request each at a time, responses read strictly.

Whatever is odd about a response ends its connection: a byte too many could be taken for the answer to somebody else's
request.
"""

import asyncio
import socket
from collections.abc import Callable
from typing import Protocol, cast

from llmgw.core.facts import Secret
from llmgw.core.routes import RouteReplica
from llmgw.core.routing import Fault, penalty
from llmgw.core.units import size
from llmgw.router.bodies import BadBody, Body, Chunked, Counted
from llmgw.router.heads import BadAnswer, ResponseHead, response_head
from llmgw.router.limits import Limits

_NEVER = float("inf")
_INTERIM = 10
_ANY_LENGTH = 1 << 62


class Asker(Protocol):
    """Who asked the engine something. The last call for a request is the one with `end`, or `engine_lost`."""

    def engine_head(self, head: ResponseHead, pieces: list[bytes], end: bool) -> bool:
        """The answer's head and what came with it, with `end` all of it; False: unwanted, close the connection."""

    def engine_body(self, pieces: list[bytes], end: bool) -> None:
        """More of the answer; with `end` the last of it."""

    def engine_lost(self, fault: Fault, words: str) -> None:
        """No (more) answer comes."""

    def engine_withdrawn(self) -> None:
        """The route table has this engine no more; close its connection to have nothing more of it."""


class Upstream:
    """One engine process as this router sees it: a `routing.Load`."""

    def __init__(self, replica: RouteReplica, limits: Limits, clock: Callable[[], float]) -> None:
        self.replica, self.limits, self.clock = replica, limits, clock
        self.in_flight = 0
        self.chosen = 0
        self.until = 0.0
        self.failures = 0
        self.gone = False
        """The route table no longer has it: it finishes what it does and keeps no connection."""
        self.open: set[EngineConnection] = set()
        self._idle: list[EngineConnection] = []
        at = f"[{replica.host}]:{replica.port}" if ":" in replica.host else f"{replica.host}:{replica.port}"
        self.fields = f"Host: {at}\r\n{_authorization(replica.key)}".encode()
        """Header fields that every request to this engine begins with; holds its key."""

    def __repr__(self) -> str:
        return f"Upstream({self.replica.id}, launch {self.replica.launch})"

    def kept(self) -> "EngineConnection | None":
        """An unused connection, the one used last, or None."""
        return self._idle.pop() if self._idle else None

    async def connect(self) -> "EngineConnection":
        """Open a connection that takes a request now; raises OSError, TimeoutError within `connect_time`.

        An engine that accepts and hangs up at once may have done so before the caller's turn came: nobody would ever
        tell what became of a request that was written then.
        """
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(self.limits.connect_time):
            _, connection = await loop.create_connection(
                lambda: EngineConnection(self), self.replica.host, self.replica.port
            )
        if connection not in self.open:
            raise ConnectionResetError("the engine closed it at once")
        return connection

    def keep(self, connection: "EngineConnection") -> bool:
        """Take back a connection whose request is done; False when it is to be closed."""
        if self.gone or connection not in self.open or len(self._idle) >= self.limits.kept:
            return False
        self._idle.append(connection)
        return True

    def drop(self, connection: "EngineConnection") -> None:
        """A connection is no more."""
        self.open.discard(connection)
        if connection in self._idle:
            self._idle.remove(connection)

    def drop_kept(self) -> None:
        """Close every unused connection."""
        for connection in list(self._idle):
            connection.close()

    def leave(self) -> None:
        """The route table no longer has it."""
        self.gone = True
        self.drop_kept()

    def withdraw(self) -> None:
        """Say so to those whose requests it has; again with each table, for what it has left then."""
        for connection in list(self.open):
            connection.withdrawn()

    def failed(self) -> None:
        """It could not be asked: pass it over for a while."""
        self.failures += 1
        self.until = self.clock() + penalty(self.failures)

    def worked(self) -> None:
        """It answered."""
        if self.failures:
            self.failures, self.until = 0, 0.0


def _authorization(key: Secret) -> str:
    return f"Authorization: Bearer {key}\r\n" if key else ""


class EngineConnection(asyncio.Protocol):
    """One connection to an engine: idle, or with the one request it works on."""

    __slots__ = (
        "_asker",
        "_body",
        "_closed",
        "_head",
        "_held",
        "_interim",
        "_transport",
        "_upstream",
        "deadline",
        "used",
    )

    def __init__(self, upstream: Upstream) -> None:
        self._upstream = upstream
        self._transport: asyncio.Transport
        self._asker: Asker | None = None
        self._head: ResponseHead | None = None
        self._body: Body | None = None
        self._held = b""
        self._interim = 0
        self._closed = False
        self.used = 0
        """Requests it has taken."""
        self.deadline = _NEVER

    # --- what the asker says ------------------------------------------------------------------------------------

    def ask(self, asker: Asker, head: bytes, body: bytes) -> None:
        """Send a request; the asker is told of everything that comes of it."""
        self._asker = asker
        self.used += 1
        self.deadline = self._upstream.clock() + self._upstream.limits.engine_idle
        self._transport.write(head + body if len(body) < 16384 else head)
        if len(body) >= 16384:
            self._transport.write(body)

    def pause(self) -> None:
        """Bring no more of the answer for now."""
        self.deadline = _NEVER
        if not self._closed:
            self._transport.pause_reading()

    def resume(self) -> None:
        """Go on."""
        self.deadline = self._upstream.clock() + self._upstream.limits.engine_idle
        if not self._closed:
            self._transport.resume_reading()

    def withdrawn(self) -> None:
        """The route table has the engine no more."""
        if self._asker is not None:
            self._asker.engine_withdrawn()

    def close(self) -> None:
        """Close at once; nobody is told. An engine stops working on a request whose connection is gone."""
        self._asker = None
        self._transport.abort()
        self._lost()

    # --- what the transport tells -------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:  # noqa: D102
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is none by inheritance
        transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._upstream.open.add(self)
        self.deadline = self._upstream.clock() + self._upstream.limits.keep

    def data_received(self, data: bytes) -> None:  # noqa: D102
        asker = self._asker
        if asker is None:
            self.close()
            return
        self.deadline = self._upstream.clock() + self._upstream.limits.engine_idle
        try:
            if self._head is None:
                self._take_head(asker, self._held + data if self._held else data)
            else:
                assert self._body is not None
                pieces = self._body.feed(data)
                end = self._body.done
                if end:
                    self._done(self._head, odd=bool(self._body.surplus))
                asker.engine_body(pieces, end)
        except (BadAnswer, BadBody) as bad:
            self._fail(Fault.BROKEN, f"its answer is malformed: {bad}")

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: D102
        if self._asker is None:
            self._lost()
            return
        stale = self.used > 1 and not self._held and not self._interim and self._head is None
        words = "closed the connection" if exc is None else f"lost the connection ({exc})"
        self._fail(Fault.STALE if stale else Fault.CLOSED, words)

    def expired(self) -> None:
        """The deadline has passed."""
        if self._asker is None:
            self.close()
        else:
            self._fail(Fault.SILENT, f"said nothing for {self._upstream.limits.engine_idle:g} s")

    # --- reading ------------------------------------------------------------------------------------------------

    def _take_head(self, asker: Asker, data: bytes) -> None:
        while True:
            end = data.find(b"\r\n\r\n", max(0, len(self._held) - 3))
            if end < 0:
                self._wait_for_head(data)
                return
            head = response_head(data[: end + 4])
            data, self._held = data[end + 4 :], b""
            if head.status >= 200:
                break
            self._interim += 1
            if self._interim > _INTERIM:
                raise BadAnswer(f"more than {_INTERIM} interim answers")
            if not data:
                return
        self._take_answer(asker, head, data)

    def _wait_for_head(self, data: bytes) -> None:
        if len(data) > self._upstream.limits.engine_head:
            raise BadAnswer(f"its header is over {size(self._upstream.limits.engine_head)}")
        if not b"HTTP/1.1 ".startswith(data[:9]) and not b"HTTP/1.0 ".startswith(data[:9]):
            raise BadAnswer("the status line is malformed")
        self._held = data

    def _take_answer(self, asker: Asker, head: ResponseHead, data: bytes) -> None:
        if head.length == len(data):
            pieces, end = [data], True
            self._done(head, odd=False)
        else:
            body: Body = Chunked(_ANY_LENGTH, count_small=False) if head.chunked else Counted(head.length or 0)
            pieces = body.feed(data)
            self._head, self._body, end = head, body, body.done
            if end:
                self._done(head, odd=bool(body.surplus))
        if not asker.engine_head(head, pieces, end):
            self.close()

    def _done(self, head: ResponseHead, *, odd: bool) -> None:
        """The answer is whole. Keep the connection only when nothing was odd."""
        self._asker = self._head = self._body = None
        self._interim = 0
        self.deadline = self._upstream.clock() + self._upstream.limits.keep
        if odd or not head.keep or not self._upstream.keep(self):
            self.close()

    def _fail(self, fault: Fault, words: str) -> None:
        asker, self._asker = self._asker, None
        self._transport.abort()
        self._lost()
        if asker is not None:
            asker.engine_lost(fault, words)

    def _lost(self) -> None:
        if not self._closed:
            self._closed = True
            self.deadline = _NEVER
            self._upstream.drop(self)
