"""Where calls come in: listening sockets, connections within bounds, and an end that takes less than two seconds."""

import asyncio
import logging
import socket
import ssl
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import h2.config
from grpclib.config import Configuration
from grpclib.const import Cardinality, Handler, Status
from grpclib.events import _DispatchServerEvents
from grpclib.exceptions import GRPCError
from grpclib.protocol import AbstractHandler
from grpclib.protocol import Stream as H2Stream
from grpclib.server import request_handler
from h2.errors import ErrorCodes

from llmgw.core.identity import Role
from llmgw.wire import sockets
from llmgw.wire.door import STOPPING, BidiStream, Door, bidi, close_when_done, current_peer
from llmgw.wire.h2bounds import BoundedProtocol, Excess, Limits, Rate
from llmgw.wire.handshake import Handshake, hasten, watched
from llmgw.wire.peers import Peer, address_text, peer_of
from llmgw.wire.statuses import Codec, Details
from llmgw.wire.strangers import no_connection

__all__ = ["BidiStream", "Limits", "Peer", "RpcServer", "bidi", "current_peer"]

_log = logging.getLogger("llmgw.wire")

_Headers = list[tuple[str, str]]

_H2 = h2.config.H2Configuration(
    client_side=False,
    header_encoding="ascii",
    validate_inbound_headers=False,  # it would end the connection; _well_formed ends the one call
    validate_outbound_headers=False,
    normalize_inbound_headers=False,
    normalize_outbound_headers=False,
)
_CONFIG = Configuration(
    http2_connection_window_size=1 << 20,
    http2_stream_window_size=1 << 20,
    _keepalive_time=30.0,
    _keepalive_timeout=10.0,
    _keepalive_permit_without_calls=True,
    _http2_max_pings_without_data=0,
    _http2_min_sent_ping_interval_without_data=1.0,
).__for_server__()


class _Calls(AbstractHandler):
    """The running calls of one connection."""

    def __init__(self, server: "RpcServer") -> None:
        self._server = server
        self._tasks: dict[H2Stream, asyncio.Task[None]] = {}

    def accept(self, stream: H2Stream, headers: _Headers, release_stream: Callable[[], None]) -> None:
        """Start the call's task; it releases the stream however it ends, also before its first step."""
        if not _well_formed(headers):
            stream.reset_nowait(ErrorCodes.PROTOCOL_ERROR)
            release_stream()
            return
        if self._server.stopping:
            stream.reset_nowait(ErrorCodes.REFUSED_STREAM)
            release_stream()
            return
        headers = [(name, value) for name, value in headers if name in _READ]
        path, mapping = dict(headers)[":path"], self._server.mapping
        if path not in mapping:
            mapping = {path: _UNKNOWN}
        held = [release_stream]

        def release() -> None:
            if held:
                held.pop()()

        def ended(_: "asyncio.Task[None]") -> None:
            self._tasks.pop(stream, None)
            release()

        task = self._server.start(
            request_handler(mapping, stream, headers, Codec(), Details(), self._server.dispatch, release)
        )
        self._tasks[stream] = task
        task.add_done_callback(ended)

    def cancel(self, stream: H2Stream) -> None:
        """The peer reset the call."""
        task = self._tasks.get(stream)
        if task is not None:
            task.cancel()

    def close(self) -> None:
        """The connection is gone, or the server stops."""
        for task in list(self._tasks.values()):
            task.cancel()

    def running(self) -> list["asyncio.Task[None]"]:
        """The tasks of the calls."""
        return list(self._tasks.values())


async def _unknown(stream: Any) -> None:
    raise GRPCError(Status.UNIMPLEMENTED, "no such call")


_UNKNOWN = Handler(_unknown, Cardinality.STREAM_STREAM, None, None)  # grpclib's own answer lacks a content type


def _well_formed(headers: _Headers) -> bool:
    """Each pseudo header once, names in lower case, values without line ends."""
    pseudo = [name for name, _ in headers if name.startswith(":")]
    if sorted(set(pseudo) | {":authority"}) != [":authority", ":method", ":path", ":scheme"]:
        return False
    if len(set(pseudo)) != len(pseudo):
        return False
    return all(name == name.lower() and not _CONTROL & set(name + value) for name, value in headers)


_CONTROL = frozenset("\r\n\0")
_READ = {":method", ":path", "content-type", "te", "user-agent"}
"""Headers that are looked at. grpclib trips over others (`x-bin: !`, `grpc-timeout: 0S`) with no answer at all."""


class _Connection(BoundedProtocol):
    """One connection to the server."""

    def __init__(self, server: "RpcServer") -> None:
        self.running = _Calls(server)
        super().__init__(self.running, _CONFIG, _H2, server.limits)
        self._server = server

    def name(self) -> str:
        """The peer, or its address while it is not known."""
        known = getattr(self, "peer", None)
        return str(known or address_text(self.transport.get_extra_info("peername")))

    def end(self, why: str) -> None:
        """Close with a word, or without one where it would wait behind what the peer does not read."""
        if not self.connection.write_ready.is_set():
            self.transport.abort()
        elif not self.connection.is_closing():
            self.goaway(ErrorCodes.NO_ERROR, why)
            self.processor.close(why)

    def opened(self) -> None:
        """Learn who it is, and whether they may have one more connection."""
        self.peer = peer_of(self.transport, self._server.cluster)
        self._server.admit(self)

    def closed(self) -> None:
        """One less."""
        self._server.dismiss(self)


class RpcServer:
    """Serves `services` on TLS and Unix sockets, every call behind one door.

    `services` have grpclib's `__mapping__`; `roles` says for every path who may call it (ValueError when one is
    missing), `large` which of them take one message as long as one of a stream; `cluster` is the only one whose
    certificates are taken. The task that listens first is the parent of all
    that runs here; `close()` ends it.
    """

    def __init__(
        self,
        services: Sequence[Any],
        *,
        roles: Mapping[str, frozenset[Role]],
        large: frozenset[str] = frozenset(),
        cluster: str,
        limits: Limits | None = None,
    ) -> None:
        self.cluster, self.limits = cluster, limits or Limits()
        self._door = Door(roles, large)
        self.mapping: dict[str, Handler] = {}
        for service in services:
            if hasattr(service, "_call_rpc_handler_server_stream"):
                service._call_rpc_handler_server_stream = close_when_done
            for path, handler in service.__mapping__().items():
                self.mapping[path] = self._door.guard(path, handler)
        self.dispatch = _DispatchServerEvents()
        self._connections: set[_Connection] = set()
        self._resets: dict[str, Rate] = {}
        self._group: asyncio.TaskGroup | None = None
        self._listeners: list[socket.socket] = []
        self._coming: set[asyncio.Task[None]] = set()
        self._empty = asyncio.Event()
        self._paths: list[Path] = []
        self._slots = asyncio.Semaphore(self.limits.handshakes)
        self._shaking = Counter[str]()

    @property
    def stopping(self) -> bool:
        """From the beginning of `close()` on."""
        return self._door.stopping

    # --- listening ----------------------------------------------------------------------------------------------

    async def listen_tls(self, host: str, port: int, context: ssl.SSLContext) -> int:
        """Listen at `host`:`port` (0: any) and return the port; raises Rejected when that cannot be had."""
        listener = sockets.tcp(host, port)
        await self.listen_at(listener, context)
        bound: int = listener.getsockname()[1]
        return bound

    async def listen_at(self, listener: socket.socket, context: ssl.SSLContext) -> None:
        """Take connections from a socket that listens already; it is closed with the server."""
        await self._listen(listener, context)

    async def listen_unix(self, path: Path, *, group: str | None = None) -> None:
        """Listen on a socket that only root, our own user and `group` can open; an old one in the way is removed."""
        listener = sockets.unix(path, group)
        self._paths.append(path)
        await self._listen(listener, None)

    async def _listen(self, listener: socket.socket, context: ssl.SSLContext | None) -> None:
        listener.setblocking(False)
        if self._group is None:
            self._group = asyncio.TaskGroup()
            await self._group.__aenter__()
        task = self.start(self._accept(listener, context))
        self._listeners.append(listener)
        self._coming.add(task)

    def start(self, work: Any) -> "asyncio.Task[None]":
        """Run something as a child of the server."""
        assert self._group is not None
        return self._group.create_task(work)

    async def _accept(self, listener: socket.socket, context: ssl.SSLContext | None) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await self._slots.acquire()
            try:
                sock, address = await loop.sock_accept(listener)
            except OSError as error:
                self._slots.release()
                _log.warning("no connection can be taken: %s", error)
                await asyncio.sleep(0.2)  # out of file descriptors: there is no event for "there are some again"
                continue
            except asyncio.CancelledError:
                self._slots.release()
                raise
            origin = "" if context is None or _is_local(address[0]) else str(address[0])
            if origin and self._shaking[origin] >= self.limits.handshakes_per_address:
                self._slots.release()
                sock.close()
                continue
            self._begin(sock, address_text(address), origin, context)

    def _begin(self, sock: socket.socket, address: str, origin: str, context: ssl.SSLContext | None) -> None:
        waiting = [sock]

        def done(task: "asyncio.Task[None]") -> None:
            self._coming.discard(task)
            self._slots.release()
            self._shaking[origin] -= 1
            if not self._shaking[origin]:
                del self._shaking[origin]
            for left in waiting:
                left.close()

        self._shaking[origin] += 1
        task = self.start(self._connect(waiting, address, context))
        self._coming.add(task)
        task.add_done_callback(done)

    async def _connect(self, waiting: list[socket.socket], address: str, context: ssl.SSLContext | None) -> None:
        most = self.limits.handshake_time

        def failed(error: ssl.SSLError, seconds: float) -> None:
            tell(error)
            hasten(deadline, seconds)

        def tell(error: OSError) -> None:
            _log.info("%s: connection closed: %s", address, no_connection(error, handshake.chain, most))

        handshake = Handshake(failed)
        times = {} if context is None else {"ssl_handshake_timeout": most + 1.0, "ssl_shutdown_timeout": 1.0}
        try:
            with watched(handshake):
                async with asyncio.timeout(most) as deadline:
                    await asyncio.get_running_loop().connect_accepted_socket(
                        lambda: _Connection(self), waiting.pop(), ssl=context, **times
                    )
        except OSError as error:
            if handshake.error is None:
                tell(error)

    # --- connections --------------------------------------------------------------------------------------------

    def admit(self, connection: _Connection) -> None:
        """Count a new connection, or raise Excess."""
        who = connection.peer.identity
        local = connection.transport.get_extra_info("ssl_object") is None
        most = self.limits.local_connections if local else self.limits.connections
        held = sum(1 for other in self._connections if other.peer.identity == who)
        if held >= most:
            raise Excess(f"{held} connections of {who} are open already, and no more are taken")
        now = asyncio.get_running_loop().time()
        self._resets = {uri: rate for uri, rate in self._resets.items() if not rate.idle(now)}
        connection.resets = self._resets.setdefault(who.uri, connection.resets)
        self._connections.add(connection)
        self._empty.clear()

    def dismiss(self, connection: _Connection) -> None:
        """The connection is gone."""
        self._connections.discard(connection)
        if not self._connections:
            self._empty.set()

    # --- the end ------------------------------------------------------------------------------------------------

    async def close(self, grace: float = 0.5) -> None:
        """End every call with UNAVAILABLE, then every connection; nothing that comes after this is answered.

        Clients get no more than `grace` for it, and whoever has not read by then is dropped; a handler that clings is
        waited for.
        """
        self._door.stopping = True
        self._stop_listening()
        calls = [task for connection in self._connections for task in connection.running.running()]
        for connection in self._connections:
            connection.running.close()
        if calls:
            await asyncio.wait(calls, timeout=grace * 0.7)
        for connection in list(self._connections):
            connection.end(STOPPING)
        await self._gone(grace * 0.3)
        for connection in list(self._connections):
            connection.transport.abort()
        await self._gone(0.3)
        if self._group is not None:
            group, self._group = self._group, None
            await group.__aexit__(None, None, None)

    async def _gone(self, seconds: float) -> None:
        if self._connections:
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self._empty.wait()

    def _stop_listening(self) -> None:
        for task in self._coming:
            task.cancel()
        for listener in self._listeners:
            listener.close()
        for path in self._paths:
            sockets.remove(path)
        self._listeners, self._paths = [], []


def _is_local(host: str) -> bool:
    try:
        return ip_address(host.partition("%")[0]).is_loopback
    except ValueError:
        return False
