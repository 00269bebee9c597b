"""What happens to one request that an engine is to answer? Choose, ask, relay as it comes; try again, or say why not.

Another replica is tried only while the client has not been sent a byte. The client leaves: the engine's connection is
closed at once, and with that its work. The engine dies in the middle: the answer ends, never as if it were whole.
"""

import asyncio
from collections.abc import Callable
from dataclasses import replace

from llmgw.core.routes import RouteReplica
from llmgw.core.routing import Fault, NoReplica, again, choose
from llmgw.router import answers
from llmgw.router.access import AccessLog
from llmgw.router.heads import ResponseHead
from llmgw.router.requests import Request
from llmgw.router.table import Entry, Table
from llmgw.router.upstream import EngineConnection, Upstream

_RETRY_AFTER = 2
_LEFT = "left the route table"


class Exchanges:
    """What all requests on their way have in common."""

    def __init__(self, group: asyncio.TaskGroup, table: Table, log: AccessLog, clock: Callable[[], float]) -> None:
        self.group, self.table, self.log, self.clock = group, table, log, clock
        self.running: set[Exchange] = set()
        self.choices = 0
        """Choices made so far."""
        self.connecting: set[asyncio.Task[None]] = set()

    def connect(self, exchange: "Exchange", upstream: Upstream) -> None:
        """Open a connection for an exchange, which is told."""
        task = self.group.create_task(exchange.connect(upstream), name=f"connect {upstream.replica.id}")
        self.connecting.add(task)
        task.add_done_callback(self.connecting.discard)

    def stop(self) -> None:
        """End every answer now."""
        for exchange in list(self.running):
            exchange.stop()


class Exchange:
    """One request on its way; `start` begins it, the client's and the engine's connections carry it on."""

    __slots__ = (
        "_all",
        "_asked",
        "_deaths",
        "_engine",
        "_entry",
        "_events",
        "_first_at",
        "_last",
        "_over",
        "_pieces",
        "_received",
        "_request",
        "_started",
        "_status",
        "_stream",
        "_tried",
        "_tries",
        "_upstream",
    )

    def __init__(self, all_: Exchanges, request: Request, entry: Entry, *, stream: bool) -> None:
        self._all, self._request, self._entry, self._stream = all_, request, entry, stream
        self._upstream: Upstream | None = None
        self._engine: EngineConnection | None = None
        self._tried: set[RouteReplica] = set()
        self._tries = self._deaths = 0
        self._over = self._started = self._events = False
        self._status = self._received = self._pieces = 0
        self._first_at = 0.0
        self._last = b""
        self._asked = "-"

    def start(self) -> None:
        """Begin."""
        self._request.listener = self
        self._all.running.add(self)
        self._try()

    def stop(self) -> None:
        """The router stops now: end the answer, honestly."""
        self._leave_engine()
        self._break("router_stopping", "the router is stopping")

    # --- asking -------------------------------------------------------------------------------------------------

    def _try(self) -> None:
        all_, entry = self._all, self._entry
        choice = choose(entry.route, entry.upstreams, now=all_.clock(), elsewhere=entry.elsewhere, tried=self._tried)
        if isinstance(choice, NoReplica):
            self._refuse(choice)
            return
        self._tries += 1
        all_.choices += 1
        choice.chosen = all_.choices
        choice.in_flight += 1
        self._upstream = choice
        self._asked = choice.replica.id
        kept = choice.kept()
        if kept is not None:
            self._ask(kept)
        else:
            all_.connect(self, choice)

    async def connect(self, upstream: Upstream) -> None:
        """Open a connection to the engine and ask over it, unless the client has left meanwhile."""
        try:
            connection = await upstream.connect()
        except (OSError, ValueError) as error:  # ValueError: a host that cannot be one
            upstream.failed()
            if self._upstream is upstream:
                self._failed(Fault.CONNECT, _words(error))
            return
        if self._upstream is not upstream or self._over:
            if not upstream.keep(connection):
                connection.close()
        elif upstream.gone and self._can_move():
            connection.close()
            self._failed(Fault.WITHDRAWN, _LEFT)
        else:
            self._ask(connection)

    def _ask(self, engine: EngineConnection) -> None:
        assert self._upstream is not None
        self._engine = engine
        request = self._request
        engine.ask(
            self,
            b"POST %b HTTP/1.1\r\n%bx-request-id: %b\r\nContent-Length: %d\r\n%b\r\n"
            % (
                request.head.path,
                self._upstream.fields,
                request.id,
                len(request.body),
                b"".join(request.head.forward),
            ),
            request.body,
        )

    # --- what the engine says -----------------------------------------------------------------------------------

    def engine_head(self, head: ResponseHead, pieces: list[bytes], end: bool) -> bool:
        """Relay the head, or try elsewhere when the engine says that it cannot serve."""
        assert self._upstream is not None
        fault = {503: Fault.LOADING, 401: Fault.KEY}.get(head.status)
        if fault is not None:
            self._upstream.failed()
            self._engine = None
            self._failed(fault, f"answered {head.status}")
            return False
        self._upstream.worked()
        self._started = True
        self._first_at = self._all.clock()
        self._status, self._events = head.status, head.events
        first = b"".join(pieces)
        length = 0 if head.status in (204, 304) else head.length
        self._count(first)
        if end:
            self._end(head, first, length)
        else:
            self._request.start(head.status, head.fields, length, first)
        return True

    def _end(self, head: ResponseHead, first: bytes, length: int | None) -> None:
        """The whole answer came at once."""
        self._free()
        if length is None:
            length = len(first)
        self._request.start(head.status, head.fields, length, first)
        self._finish(b"")

    def engine_body(self, pieces: list[bytes], end: bool) -> None:
        """Relay what came, as it came."""
        data = pieces[0] if len(pieces) == 1 else b"".join(pieces)
        self._count(data)
        if end:
            self._free()
            self._finish(data)
        elif data:
            self._request.write(data)

    def engine_lost(self, fault: Fault, words: str) -> None:
        """No more comes from this engine."""
        self._engine = None
        upstream = self._upstream
        assert upstream is not None
        if fault is Fault.STALE:
            upstream.drop_kept()
        else:
            upstream.failed()
        if self._started:
            self._free()
            self._break(fault.value, f"the engine {words} in the middle of the answer")
        else:
            self._failed(fault, words)

    def engine_withdrawn(self) -> None:
        """Go elsewhere if another can take it; if not, this engine may still end what it has begun."""
        if self._engine is not None and not self._started and self._can_move():
            self._engine.close()
            self._failed(Fault.WITHDRAWN, _LEFT)

    def _can_move(self) -> bool:
        """Whether a request that was not answered yet has somewhere else to go."""
        self._renew()
        return again(Fault.WITHDRAWN, self._tries, self._deaths) and self._others(Fault.WITHDRAWN)

    def _renew(self) -> None:
        """Go by the newest table: what it has no more is not asked."""
        old = self._entry
        new = self._all.table.entry(old.route.model)
        found = new is not None and new.route.model == old.route.model  # else it may be another's alias now
        self._entry = new if new is not None and found else replace(old, upstreams=())

    def _failed(self, fault: Fault, words: str) -> None:
        """A try ended before the first byte."""
        assert self._upstream is not None
        replica = self._upstream.replica
        self._free()
        self._renew()
        if fault is not Fault.STALE:
            self._tried.add(replica)
        self._deaths += fault is Fault.CLOSED
        self._all.log.failed_try(self._request.id, replica.id, fault.value, words)
        if again(fault, self._tries, self._deaths) and self._others(fault):
            self._try()
            return
        model = self._entry.route.model
        if fault is Fault.LOADING:
            self._give(503, fault.value, f"model {model} is being loaded; try again", answers.retry_after(_RETRY_AFTER))
        elif fault is Fault.SILENT:
            self._give(504, fault.value, f"the engine of model {model} {words}")
        else:
            self._give(502, fault.value, f"model {model}: no engine answered; tried {self._tries}")

    def _others(self, fault: Fault) -> bool:
        return fault is Fault.STALE or any(u.replica not in self._tried for u in self._entry.upstreams)

    # --- what the client does -----------------------------------------------------------------------------------

    def client_gone(self) -> None:
        """Stop the engine's work at once."""
        self._leave_engine()
        self._done("client_gone")

    def client_paused(self) -> None:
        """Leave the rest of the answer with the engine for now."""
        if self._engine is not None and self._started:
            self._engine.pause()

    def client_resumed(self) -> None:
        """Go on."""
        if self._engine is not None and self._started:
            self._engine.resume()

    # --- ends ---------------------------------------------------------------------------------------------------

    def _count(self, data: bytes) -> None:
        if data:
            self._received += len(data)
            self._pieces += 1
            self._last = data

    def _free(self) -> None:
        """The engine has nothing more to do with this."""
        upstream, self._upstream, self._engine = self._upstream, None, None
        if upstream is not None:
            upstream.in_flight -= 1

    def _leave_engine(self) -> None:
        if self._engine is not None:
            self._engine.close()
        self._free()

    def _finish(self, last: bytes) -> None:
        self._done("done")
        self._request.finish(last)

    def _break(self, code: str, words: str) -> None:
        """The answer cannot go on: say so where the client reads events, and end without an end."""
        if not self._started:
            self._give(503, code, words, answers.retry_after(_RETRY_AFTER))
            return
        event = b""
        if self._events:
            gap = b"" if self._last.endswith((b"\n\n", b"\r\n\r\n")) or not self._last else b"\n\n"
            event = gap + answers.error_event(code, words)
        self._done(code)
        self._request.cut(event)

    def _refuse(self, why: NoReplica) -> None:
        text = str(why) if self._request.client in ("127.0.0.1", "::1", "local") else why.public
        answer = answers.error(
            503,
            "no_replica",
            text,
            fields=answers.retry_after(_RETRY_AFTER),
            not_now=why.not_now,
            never=why.never,
        )
        self._whole(answer)

    def _give(self, status: int, code: str, text: str, fields: bytes = b"") -> None:
        self._whole(answers.error(status, code, text, fields=fields))

    def _whole(self, answer: answers.Answer) -> None:
        self._status, self._received = answer.status, len(answer.body)
        self._done(answer.code)
        self._request.whole(answer)

    def _done(self, how: str) -> None:
        if self._over:
            return
        self._over = True
        self._request.listener = None  # else the two hold each other until the garbage collector comes by
        self._all.running.discard(self)
        first = f"{(self._first_at - self._request.started) * 1000:.1f}" if self._first_at else "-"
        self._all.log.request(
            self._request,
            self._all.clock(),
            self._status,
            how,
            f" model={self._entry.route.model} replica={self._asked} tries={self._tries} stream={self._stream:d}"
            f" out={self._received} pieces={self._pieces} first_ms={first}",
        )


def _words(error: OSError | ValueError) -> str:
    if isinstance(error, TimeoutError):
        return "does not answer the connection"
    return f"refuses the connection ({getattr(error, 'strerror', None) or error})"
