"""How a client's connection comes to be: dialled, the other end checked, and open only once the server has spoken.

In TLS 1.3 a client is done with the handshake before the server has looked at its certificate. So nothing is sent
before the server's first frame: whatever it refuses is then known when the dialling ends, with its words.
"""

import asyncio
import ssl
from typing import Any

import grpclib.client
from grpclib.config import Configuration
from grpclib.protocol import Connection, H2Protocol
from h2.connection import H2Connection
from h2.errors import ErrorCodes
from h2.events import ConnectionTerminated
from h2.exceptions import ProtocolError
from h2.settings import SettingCodes, Settings

from llmgw.config.tls import TlsFiles
from llmgw.core.errors import ControlUnreachable, LlmgwError, PeerNotTrusted
from llmgw.core.identity import Role
from llmgw.wire import tls
from llmgw.wire.der import SERVER_AUTH
from llmgw.wire.h2events import Tolerant
from llmgw.wire.handshake import Handshake, hasten, watched
from llmgw.wire.peers import address_text
from llmgw.wire.statuses import Codec, Details

_WINDOW = 4 << 20
_FRAME = 1 << 18
"""Bytes of a frame that we take: each costs the same, and a file has many."""
_SETTINGS = b"\x04"  # the type of the frame that a server begins with
_CONFIG = Configuration(
    http2_connection_window_size=_WINDOW,
    http2_stream_window_size=_WINDOW,
    # A control plane that lost its power says nothing: without a question now and then nobody would notice for long.
    _keepalive_time=10.0,
    _keepalive_timeout=5.0,
    _keepalive_permit_without_calls=True,
    _http2_max_pings_without_data=0,
    _http2_min_sent_ping_interval_without_data=1.0,
)


class DialledConnection(Connection):
    """Remembers when it was closed because a question was not answered in time."""

    silent = False

    def close(self) -> None:
        """As grpclib closes it, at the latest when an answer is overdue."""
        asked = self._close_by_ping_handler
        if asked is not None and not asked.cancelled() and asked.when() <= asyncio.get_running_loop().time() + 0.01:
            self.silent = True
        super().close()


class DialledProtocol(H2Protocol):
    """The client's side: says nothing before the server has, and remembers why the connection ended."""

    end: BaseException | None = None
    """What the connection ended with, when that was an error."""
    broken: tuple[str, str] | None = None
    """What we ended it for."""
    farewell: ConnectionTerminated | None = None
    """The server's own word at the end."""

    connection: DialledConnection

    def __init__(self, handler: Any, config: Configuration, h2_config: Any) -> None:
        super().__init__(handler, config, h2_config)
        self.spoke: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Done when the server has said something, or the connection is gone."""

    def connection_made(self, transport: Any) -> None:
        """Set up as grpclib does, but send nothing."""
        h2 = H2Connection(config=self.h2_config)
        initial = {
            SettingCodes.INITIAL_WINDOW_SIZE: _WINDOW,
            SettingCodes.ENABLE_PUSH: 0,
            SettingCodes.MAX_FRAME_SIZE: _FRAME,
        }
        h2.local_settings = Settings(client=True, initial_values=initial)
        h2.max_inbound_frame_size = h2.incoming_buffer.max_frame_size = _FRAME
        h2.initiate_connection()
        h2.increment_flow_control_window(_WINDOW - 65535)
        self.connection = DialledConnection(h2, transport, config=self.config)
        self.processor = Tolerant(self.handler, self.connection)
        self.processor.processors[ConnectionTerminated] = self._goodbye

    def data_received(self, data: bytes) -> None:
        """The server speaks: what waited goes out with the answer."""
        if not self.spoke.done() and data[3:4] not in (b"", _SETTINGS):
            self._broken("it does not speak HTTP/2", "is it the port of llmgwd?")
            return
        try:
            events = self.connection.feed(data)
        except (ProtocolError, UnicodeDecodeError) as error:
            self._broken(f"it broke a rule of HTTP/2 ({error})")
            return
        self.connection.flush()
        for event in events:
            self.processor.process(event)
        if not self.connection.is_closing():
            self.connection.flush()
        if events and not self.spoke.done():
            self.spoke.set_result(None)
            if not self.connection.is_closing():
                self.connection.initialize()

    def _broken(self, fact: str, way_out: str = "") -> None:
        self.broken = self.broken or (fact, way_out)
        self.processor.close(fact)

    def refuse(self, why: str) -> None:
        """Close, with a word to the server about what is wrong with its certificate."""
        self.connection._connection.close_connection(ErrorCodes.INADEQUATE_SECURITY, additional_data=why.encode()[:512])
        self.connection.flush()
        self.processor.close()

    def _goodbye(self, event: ConnectionTerminated) -> None:
        self.farewell = event
        self.processor.process_connection_terminated(event)

    def connection_lost(self, exc: BaseException | None) -> None:
        """Remember why."""
        self.end = exc
        super().connection_lost(exc)
        if not self.spoke.done():
            self.spoke.set_result(None)

    def reason(self, address: str) -> LlmgwError:
        """Why the connection is no more."""
        from llmgw.wire import explain  # only a failure needs it

        if self.farewell is not None:
            return explain.farewell(address, self.farewell)
        if self.broken is not None:
            return ControlUnreachable(address, *self.broken)
        if isinstance(self.end, ssl.SSLError):
            return explain.refused(address, self.end)
        if self.connection.silent or isinstance(self.end, TimeoutError):
            return ControlUnreachable(address, "it does not answer any more")
        if self.end is not None:
            return ControlUnreachable(address, f"the connection was lost: {explain.words(self.end)}")
        return ControlUnreachable(address, "it closed the connection")


class Dialler(grpclib.client.Channel):
    """grpclib's channel, which dials when a call needs it and again after a loss; raises LlmgwError where it cannot."""

    def __init__(
        self,
        host: str | None,
        port: int | None,
        path: str | None,
        files: TlsFiles | None,
        role: Role,
        dial_time: float,
        name: str = "",
    ) -> None:
        own, context = None, None
        if files is not None:
            own, context = tls.own_identity(files), tls.client_context(files)
        super().__init__(
            host, port, path=path, ssl=context, codec=Codec(), status_details_codec=Details(), config=_CONFIG
        )
        self.address = path or address_text((host, port))
        self._files, self._own, self._role, self._dial_time = files, own, role, dial_time
        self._name = name
        """Of the server's certificate, where that is not known by its host."""

    def handle(self) -> int | None:
        """The file descriptor of the open connection, or None when there is none."""
        if self._protocol is None or self._protocol.connection.is_closing():
            return None
        handle: int = self._protocol.connection._transport.get_extra_info("socket").fileno()
        return handle

    def reason(self) -> LlmgwError | None:
        """Why the connection is no more, or None while it is there."""
        protocol = self._protocol
        if isinstance(protocol, DialledProtocol) and protocol.connection.is_closing():
            return protocol.reason(self.address)
        return None

    def _protocol_factory(self) -> DialledProtocol:
        return DialledProtocol(grpclib.client.Handler(), self._config, self._h2_config)

    async def _create_connection(self) -> H2Protocol:
        if self._name:
            self._check_name()
        handshake = Handshake(lambda _, seconds: hasten(deadline, seconds))
        try:
            with watched(handshake):
                async with asyncio.timeout(self._dial_time) as deadline:
                    protocol = await self._dial()
        except OSError as error:
            raise self._explained(error, handshake) from None
        await self._welcome(protocol)
        return protocol

    def _check_name(self) -> None:
        try:
            self._name.encode("idna")  # as ssl does, with the socket open
        except UnicodeError:  # a..b
            raise PeerNotTrusted(self.address, f"no certificate can be checked for the name {self._name!r}") from None

    def _explained(self, error: OSError, handshake: Handshake) -> LlmgwError:
        from llmgw.wire import explain  # only a failure needs it

        where = self._path or (self._host, self._port)
        authority = None if self._files is None else self._files.authority
        return explain.not_dialled(where, authority, error, handshake, self._dial_time)

    async def _dial(self) -> DialledProtocol:
        if self._path is not None:
            _, protocol = await self._loop.create_unix_connection(self._protocol_factory, self._path)
        elif self._ssl is None:
            _, protocol = await self._loop.create_connection(self._protocol_factory, self._host, self._port)
        else:
            _, protocol = await self._loop.create_connection(
                self._protocol_factory,
                self._host,
                self._port,
                ssl=self._ssl,
                server_hostname=self._name or self._host,
                ssl_handshake_timeout=self._dial_time,
                ssl_shutdown_timeout=1.0,
            )
        return protocol

    async def _welcome(self, protocol: DialledProtocol) -> None:
        """Check who answered, and wait for its first word."""
        try:
            self._check(protocol)
            async with asyncio.timeout(self._dial_time):
                await protocol.spoke
        except TimeoutError:
            protocol.processor.close()
            fact = f"it took the connection and said nothing for {self._dial_time:g} s"
            raise ControlUnreachable(self.address, fact, "is it a control plane?") from None
        except PeerNotTrusted as error:
            protocol.refuse(error.fact)
            raise
        except BaseException:
            protocol.processor.close()
            raise
        if protocol.connection.is_closing():
            raise protocol.reason(self.address)

    def _check(self, protocol: DialledProtocol) -> None:
        if self._own is None or protocol.connection.is_closing():
            return
        secured = protocol.connection._transport.get_extra_info("ssl_object")
        subject = "control plane" if self._role is Role.CONTROL else self._role.value
        peer = f"{subject} {self.address}"
        who = tls.connection_identity(secured, SERVER_AUTH, peer)
        if who.role is not self._role:
            raise PeerNotTrusted(peer, f"its certificate is of {who}, not of the role {self._role.value}")
        if self._name and who.name != self._name:
            raise PeerNotTrusted(peer, f"its certificate is of {who}, not of {self._name}")
        if who.cluster != self._own.cluster:
            raise PeerNotTrusted(peer, f"it is of cluster {who.cluster}, our certificate of {self._own.cluster}")
