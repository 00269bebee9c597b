"""What every call passes on its way to a handler: who asks, may they, how large, and how its errors leave.

A handler raises LlmgwError and sees the caller by `current_peer()`; it needs to know nothing of gRPC.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import aclosing
from contextvars import ContextVar
from typing import Any, Generic, TypeVar

from grpclib.const import Cardinality, Handler, Status
from grpclib.exceptions import GRPCError, StreamTerminatedError
from grpclib.protocol import Stream as H2Stream
from grpclib.server import Stream
from h2.errors import ErrorCodes
from h2.exceptions import ProtocolError

from llmgw.core.errors import ControlFault, LlmgwError, NotAllowed
from llmgw.core.identity import Role
from llmgw.wire.h2bounds import BoundedConnection, BoundedProtocol
from llmgw.wire.peers import Peer
from llmgw.wire.statuses import to_grpc

_log = logging.getLogger("llmgw.wire")

Received = TypeVar("Received")
Sent = TypeVar("Sent")

STOPPING = "the server is stopping"


_PEER: ContextVar[Peer] = ContextVar("peer")


def current_peer() -> Peer:
    """Who made the call that runs; LookupError outside a handler."""
    return _PEER.get()


class BoundedStream(Generic[Received, Sent]):
    """The stream that handlers get: a message of bounded size comes in, and none waits for ever to go out."""

    def __init__(self, stream: Stream[Any, Any], bounds: BoundedProtocol, peer: Peer, *, large: bool = False) -> None:
        self._stream, self._h2 = stream, stream._stream
        self._bounds, self.peer = bounds, peer
        limits = bounds.limits
        self._most = limits.message if large or stream._cardinality.client_streaming else limits.request

    @property
    def cut(self) -> str:
        """Why the peer's side of the call broke off (its reset, or the connection's end); empty while it has not."""
        error = getattr(self._h2.wrapper, "_error", None)
        return "" if error is None else str(error).lower()

    async def recv_message(self) -> Received | None:
        """The next message, or None when the peer sends no more; BadMessage for one that is none of ours.

        A message that is too large ends the call, and is not read.
        """
        head = await self._read(5)
        if not head:
            if self._stream._cardinality.client_streaming:
                return None
            raise GRPCError(Status.INVALID_ARGUMENT, "a call without its message")
        flag, length = head[0], int.from_bytes(head[1:], "big")
        if flag != 0:
            raise GRPCError(Status.INVALID_ARGUMENT, f"a message with flag {flag}; compression is not spoken here")
        if length > self._most:
            raise GRPCError(Status.RESOURCE_EXHAUSTED, f"a message of {length} bytes; at most {self._most} are taken")
        if self._bounds.held + length > self._bounds.limits.held:
            raise GRPCError(Status.RESOURCE_EXHAUSTED, "too many large messages at once on one connection")
        self._bounds.held += length
        try:
            body = await self._read(length)
        finally:
            self._bounds.held -= length
        if len(body) != length:
            raise GRPCError(Status.INVALID_ARGUMENT, "a message that was cut short")
        message: Received = self._stream._codec.decode(body, self._stream._recv_type)
        return message

    async def _read(self, size: int) -> bytes:
        try:
            return await self._h2.recv_data(size)
        except AssertionError:  # grpclib's word for an end within a message
            raise GRPCError(Status.INVALID_ARGUMENT, "a message that was cut short") from None

    async def send_message(self, message: Sent | bytes, timeout: float | None = None) -> None:
        """Send a message, or its encoded form. A peer that does not read for `timeout` seconds loses the call.

        Raises GRPCError when the call is over; a handler lets that pass.
        """
        codec, limits = self._stream._codec, self._bounds.limits
        data = codec.encode(message, self._stream._send_type)
        if len(data) > limits.message:
            raise ControlFault(f"an answer of {len(data)} bytes; at most {limits.message} are sent")
        waits = limits.send_time if timeout is None else timeout
        try:
            async with asyncio.timeout(waits) as deadline, _extended(deadline, self._h2, waits):
                await self._stream.send_message(data)
        except TimeoutError:
            self._drop()
            raise GRPCError(Status.CANCELLED, f"the peer read nothing for {waits:g} s") from None
        except (ProtocolError, StreamTerminatedError):
            raise GRPCError(Status.CANCELLED, "the peer ended the call") from None

    def _drop(self) -> None:
        """End the call without a word that would wait behind what is not read."""
        if self._h2.closable:
            self._h2.reset_nowait(ErrorCodes.CANCEL)
        self._stream._cancel_done = True
        _log.info("%s: its call was dropped: it does not read", self.peer)

    def __aiter__(self) -> AsyncIterator[Received]:
        return self

    async def __anext__(self) -> Received:
        message = await self.recv_message()
        if message is None:
            raise StopAsyncIteration
        return message


class _extended:
    """Moves a deadline on for as long as the stream gets rid of bytes."""

    def __init__(self, deadline: asyncio.Timeout, stream: H2Stream, waits: float) -> None:
        self._deadline, self._stream, self._waits = deadline, stream, waits
        self._loop = asyncio.get_running_loop()
        self._sent = stream.data_sent

    async def __aenter__(self) -> None:
        self._timer = self._loop.call_later(self._waits / 2, self._look)

    def _look(self) -> None:
        if self._stream.data_sent != self._sent and not self._deadline.expired():
            self._sent = self._stream.data_sent
            self._deadline.reschedule(self._loop.time() + self._waits)
        self._timer = self._loop.call_later(self._waits / 2, self._look)

    async def __aexit__(self, *exc: object) -> None:
        self._timer.cancel()


class BidiStream(BoundedStream[Received, Sent]):
    """Both directions of a call that stays open: iterate over what comes, `send` at any time."""

    async def send(self, message: Sent | bytes, timeout: float | None = None) -> None:
        """As `send_message`."""
        await self.send_message(message, timeout)


class _Bidi:
    def __init__(self, path: str, handler: Handler) -> None:
        self._mapping = {path: handler}

    def __mapping__(self) -> dict[str, Handler]:
        return self._mapping


def bidi(
    path: str,
    request_type: type[Received],
    reply_type: type[Sent],
    handler: Callable[[BidiStream[Received, Sent]], Awaitable[None]],
) -> _Bidi:
    """A service of one call in which both sides send as they like; when `handler` returns, the call ends."""

    async def serve(stream: Any) -> None:
        await handler(stream)

    return _Bidi(path, Handler(serve, Cardinality.STREAM_STREAM, request_type, reply_type))


class Door:
    """Wraps handlers: who, may they, and the way out for errors. `large` are calls with a message that may be long."""

    def __init__(self, roles: Mapping[str, frozenset[Role]], large: frozenset[str]) -> None:
        self._roles, self._large = roles, large
        self.stopping = False

    def guard(self, path: str, handler: Handler) -> Handler:
        """The same handler behind the door; ValueError when no role may call it."""
        if path not in self._roles:
            raise ValueError(f"{path} says nowhere who may call it")

        async def guarded(stream: Stream[Any, Any]) -> None:
            connection = stream._stream.connection
            assert isinstance(connection, BoundedConnection)
            peer = connection.bounds.peer
            _PEER.set(peer)
            form = BidiStream if handler.cardinality is Cardinality.STREAM_STREAM else BoundedStream
            try:
                self._check(path, peer)
                await handler.func(form(stream, connection.bounds, peer, large=path in self._large))
            except BaseException as error:  # whatever a handler ends with leaves as a status; cancellation passes
                raise self._leave(error, path, peer, stream) from None

        return Handler(guarded, handler.cardinality, handler.request_type, handler.reply_type)

    def _check(self, path: str, peer: Peer) -> None:
        if self.stopping:
            raise GRPCError(Status.UNAVAILABLE, STOPPING)
        allowed = self._roles[path]
        if peer.identity.role not in allowed:
            roles = " or ".join(sorted(role.value for role in allowed))
            raise NotAllowed(str(peer.identity), f"call {path.rpartition('/')[2]}", f"the role {roles}")

    def _leave(self, error: BaseException, path: str, peer: Peer, stream: Stream[Any, Any]) -> BaseException:
        wrapper = stream._stream.wrapper
        if wrapper is not None and wrapper.cancelled:
            return asyncio.CancelledError()  # the peer or its deadline ended the call; nobody hears our reasons
        error = _first(error)
        match error:
            case GRPCError():
                return error
            case LlmgwError():
                _log.info("%s: %s: %s", peer, path, error)
                return to_grpc(error)
            case asyncio.CancelledError() if self.stopping or _cancelled():
                return GRPCError(Status.UNAVAILABLE, STOPPING)  # a bare cancellation would leave the peer waiting
            case Exception() | asyncio.CancelledError():
                _log.error("%s: %s failed", peer, path, exc_info=error)
                return to_grpc(ControlFault(f"{path.rpartition('/')[2]} met a fault; the log of llmgwd says which"))
        return error


def _cancelled() -> bool:
    """Whether our task was cancelled, and not only something that it waited for."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def _first(error: BaseException) -> BaseException:
    """The error that a group of tasks ended with: what stopped the others comes first in it."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


async def close_when_done(handler: Any, stream: Any, request: Any) -> None:
    """Send what an async generator yields and close it when the call ends, which generated code leaves to chance."""
    async with aclosing(handler(request)) as replies:
        async for reply in replies:
            await stream.send_message(reply)
