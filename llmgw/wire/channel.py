"""A client's calls: one answer, a stream of answers, or a link in both directions; every end of them is typed.

ControlUnreachable: the network, or a control plane that goes. PeerNotTrusted: certificates. Otherwise the error that
the handler raised. A call that is left early is reset, so nothing stays behind at either end.
"""

import asyncio
import os
import socket
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

from grpclib.client import Stream
from grpclib.const import Cardinality
from grpclib.exceptions import GRPCError, StreamTerminatedError
from grpclib.exceptions import ProtocolError as CallError
from grpclib.utils import Wrapper
from h2.errors import ErrorCodes
from h2.exceptions import ProtocolError

from llmgw.config.tls import TlsFiles
from llmgw.core.errors import BadMessage, ControlUnreachable, LlmgwError
from llmgw.core.identity import Role
from llmgw.wire.dial import Dialler
from llmgw.wire.parts import MOST_PARTS, has_many_messages, is_crowded
from llmgw.wire.statuses import from_grpc

Sent = TypeVar("Sent")
Received = TypeVar("Received")

_CALL_TIME = 10.0
_DIAL_TIME = 5.0
_MOST = 4 << 20


class _Ender(Wrapper):
    """Wakes whoever waits on a call that ended, and leaves their task as it was.

    grpclib does it by `task.cancel()` and never takes that back: a task group or timeout entered later by the same
    task would then take its own cancellation for one from outside.
    """

    def __init__(self) -> None:
        super().__init__()
        self._before: dict[asyncio.Task[Any], int] = {}
        self._woken: set[asyncio.Task[Any]] = set()

    def __enter__(self) -> None:
        super().__enter__()
        task = asyncio.current_task()
        assert task is not None
        self._before[task] = task.cancelling()

    def cancel(self, error: Exception) -> None:
        """The call ended; the first reason counts."""
        if self._error is None:
            self._woken = set(self._tasks)
            super().cancel(error)

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc_val: BaseException | None,
        exc_tb: TracebackType | None,
    ) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.discard(task)
        before = self._before.pop(task)
        if task in self._woken:
            self._woken.discard(task)
            if task.uncancel() > before:
                return  # somebody else cancelled the task as well: that goes on
        if self._error is not None:
            raise self._error


class Channel:
    """A connection to a control plane; an async context manager. Dials when the first call needs it.

    `role` and `name` for another server than that: its certificate must be for that name, whatever host is dialled.
    Raises BadConfig at once when `files` cannot be used.
    """

    def __init__(
        self,
        host: str,
        port: int,
        files: TlsFiles,
        *,
        role: Role = Role.CONTROL,
        name: str = "",
        dial_time: float = _DIAL_TIME,
    ) -> None:
        self.grpc = Dialler(host, port, None, files, role, dial_time, name)

    @classmethod
    def unix(cls, path: Path) -> Self:
        """A connection to the control plane of this machine by its Unix socket."""
        channel = cls.__new__(cls)
        channel.grpc = Dialler(None, None, str(path), None, Role.CONTROL, _DIAL_TIME)
        return channel

    @property
    def address(self) -> str:
        """Where it dials: host:port or a path."""
        return self.grpc.address

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        self.grpc.close()

    async def connect(self) -> None:
        """Dial now, unless it is connected."""
        await self.grpc.__connect__()

    def give_up_after(self, seconds: float) -> None:
        """Let the kernel break the connection that is open now when what was sent is not acknowledged for so long.

        By itself it would try for a quarter of an hour on a cut cable.
        """
        handle = self.grpc.handle()
        if handle is None:
            return
        with socket.socket(fileno=os.dup(handle)) as same:  # uvloop gives out a socket that takes no options
            if same.family != socket.AF_UNIX:
                same.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, round(seconds * 1000))

    async def call(
        self, path: str, request: object, reply_type: type[Received], *, timeout: float = _CALL_TIME
    ) -> Received:
        """Ask, and return the answer."""
        async with self._open(path, Cardinality.UNARY_UNARY, type(request), reply_type) as link:
            try:
                async with asyncio.timeout(timeout):
                    await link.send(request, end=True)
                    reply: Received = await anext(link)
                    async for _ in link:
                        pass
            except TimeoutError:
                raise ControlUnreachable(self.address, f"no answer within {timeout:g} s") from None
            except StopAsyncIteration:
                raise BadMessage(reply_type.__name__, "the answer", "is missing") from None
            return reply

    async def stream(self, path: str, request: object, reply_type: type[Received]) -> AsyncGenerator[Received, None]:
        """Ask, and yield the answers until the server has no more.

        Who leaves before the end closes it (`aclosing`), so that the server hears of it at once.
        """
        async with self._open(path, Cardinality.UNARY_STREAM, type(request), reply_type) as link:
            await link.send(request, end=True)
            async for reply in link:
                yield reply

    @asynccontextmanager
    async def link(
        self, path: str, request_type: type[Sent], reply_type: type[Received]
    ) -> AsyncIterator["ClientLink[Sent, Received]"]:
        """A link in both directions; leaving the context ends it at once, so `close` it first where that matters."""
        async with self._open(path, Cardinality.STREAM_STREAM, request_type, reply_type) as link:
            with link.typed():
                await link._stream.send_request()
            yield link

    @asynccontextmanager
    async def _open(
        self, path: str, form: Cardinality, request_type: Any, reply_type: Any
    ) -> AsyncIterator["ClientLink[Any, Any]"]:
        stream: Stream[Any, Any] = self.grpc.request(path, form, request_type, reply_type)
        stream._wrapper = _Ender()
        try:
            yield ClientLink(self.grpc, stream)
        finally:
            if stream._send_request_done:
                if stream._stream.closable:
                    stream._stream.reset_nowait(ErrorCodes.CANCEL)
                stream._release_stream()


class ClientLink(Generic[Sent, Received]):
    """The client's end of a call: iterate over what comes, `send` at any time.

    Iteration ends when the server ended the call in order, and raises what it ended with otherwise.
    """

    def __init__(self, dialler: Dialler, stream: Stream[Any, Any]) -> None:
        self._dialler, self._address, self._stream = dialler, dialler.address, stream

    async def send(self, message: Sent, *, timeout: float = _CALL_TIME, end: bool = False) -> None:
        """Send a message; ControlUnreachable when the other end takes nothing for `timeout` seconds.

        BadMessage, with nothing sent, for one that no control plane would take.
        """
        with self.typed():
            data: Any = self._encoded(message)
            try:
                async with asyncio.timeout(timeout):
                    await self._stream.send_message(data, end=end)
            except TimeoutError:
                raise ControlUnreachable(self._address, f"it read nothing for {timeout:g} s") from None

    def _encoded(self, message: Sent) -> bytes:
        kind = self._stream._send_type
        if not has_many_messages(message):
            data: bytes = self._stream._codec.encode(message, kind)
            if len(data) > _MOST:
                raise BadMessage(kind.__name__, "its length", f"is {len(data)} bytes; at most {_MOST} are taken")
            if not is_crowded(data, kind):
                return data
        raise BadMessage(kind.__name__, "its bytes", f"would have more than {MOST_PARTS} parts")

    def __aiter__(self) -> AsyncIterator[Received]:
        return self

    async def __anext__(self) -> Received:
        with self.typed():
            if not self._stream._recv_initial_metadata_done:
                await self._stream.recv_initial_metadata()
            data = await self._receive()
            if data is None:
                await self._finish()
                raise StopAsyncIteration
            message: Received = self._stream._codec.decode(data, self._stream._recv_type)
            return message

    async def close(self, timeout: float = 1.0) -> None:
        """Say that no more comes, and wait for the server to end the call in its turn; never raises for how it does."""
        try:
            async with asyncio.timeout(timeout):
                with self.typed():
                    if not self._stream._end_done:
                        await self._stream.end()
                async for _ in self:
                    pass
        except (TimeoutError, LlmgwError):
            return

    async def _receive(self) -> bytes | None:
        with self._stream._wrapper:
            head = await self._stream._stream.recv_data(5)
            if not head:
                return None
            length = int.from_bytes(head[1:], "big")
            if head[0] != 0 or length > _MOST:
                raise BadMessage(self._stream._recv_type.__name__, "its length", f"is {length}, flag {head[0]}")
            try:
                return await self._stream._stream.recv_data(length)
            except AssertionError:  # grpclib's word for an end within a message
                raise ControlUnreachable(self._address, "it broke the call off within a message") from None

    async def _finish(self) -> None:
        """The server sends no more: read how it ended, whether or not we had ended our side."""
        self._stream._end_done = True
        if self._stream._stream.trailers is None and not self._stream._trailers_only:
            raise ControlUnreachable(self._address, "it ended the call without a status")
        await self._stream.recv_trailing_metadata()

    @contextmanager
    def typed(self) -> Iterator[None]:
        """Turn every way that a call can fail into an LlmgwError."""
        try:
            yield
        except GRPCError as error:
            raise from_grpc(error, self._address) from None
        except TimeoutError:
            raise
        except (StreamTerminatedError, ProtocolError, CallError, OSError) as error:
            raise self._lost(error) from None

    def _lost(self, error: Exception) -> LlmgwError:
        """The call broke off: the server's status if it came in time, else what became of the connection."""
        stream = self._stream
        if not stream._send_request_done:
            return ControlUnreachable(self._address, f"the connection was lost: {error}")
        try:
            stream._maybe_raise()
        except GRPCError as status:
            return from_grpc(status, self._address)
        return self._dialler.reason() or ControlUnreachable(self._address, f"it broke the call off ({error})")
