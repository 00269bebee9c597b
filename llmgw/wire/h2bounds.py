"""How much one connection may ask of us: what h2 and grpclib leave unbounded, at one place.

It reaches below grpclib's public surface (the protocol class and its events) and below h2's in three spots: the bytes
not parsed yet, an unfinished header block, and resets that h2 sends by itself. Both are pinned; the tests of this
module say when an upgrade moves them.
"""

import asyncio
import logging
from dataclasses import dataclass
from typing import Any

from grpclib.config import Configuration
from grpclib.protocol import AbstractHandler, Connection, H2Protocol, _set_nodelay
from h2.config import H2Configuration
from h2.connection import ConnectionState, H2Connection
from h2.errors import ErrorCodes
from h2.events import (
    ConnectionTerminated,
    Event,
    PingReceived,
    RemoteSettingsChanged,
    RequestReceived,
    StreamReset,
)
from h2.exceptions import ProtocolError
from h2.settings import SettingCodes, Settings
from hyperframe.frame import Frame, RstStreamFrame

from llmgw.core.errors import PeerNotTrusted
from llmgw.wire.h2events import Tolerant
from llmgw.wire.peers import Peer
from llmgw.wire.statuses import one_line

_log = logging.getLogger("llmgw.wire")


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What a peer may ask of a server. Sizes are bytes, times seconds."""

    message: int = 4 << 20
    """One message of a stream of messages, and any that we send."""
    request: int = 64 << 10
    """The one message of a call that takes one."""
    held: int = 8 << 20
    """Of messages that one connection has begun to send and not finished."""
    streams: int = 32
    """Calls at once on one connection."""
    connections: int = 8
    """At once with one certificate."""
    local_connections: int = 32
    """At once by one user of this machine."""
    handshakes: int = 64
    """In flight; more wait in the kernel's queue."""
    handshakes_per_address: int = 4
    """In flight from one address that is not of this machine; more are closed."""
    resets: int = 100
    settings: int = 10
    pings: int = 10
    small_frames: int = 10_000
    """These four in a `window`."""
    small_frame: int = 256
    window: float = 10.0
    header_block: int = 32 << 10
    header_time: float = 5.0
    frame: int = 16384
    write_buffer: int = 1 << 20
    """Answers that a peer asked for and does not read."""
    handshake_time: float = 5.0
    preface_time: float = 5.0
    first_call_time: float = 10.0
    send_time: float = 10.0
    """Without progress, before a reader that does not read loses its call."""


class Excess(Exception):
    """A peer asked for more than it may; the text says of what."""


class Rate:
    """Counts what happens, in windows of some seconds, up to `most` in each."""

    def __init__(self, what: str, most: int, window: float) -> None:
        self._what, self._most, self._window = what, most, window
        self._begun, self._counted = 0.0, 0

    def count(self, now: float) -> None:
        """One more; raises Excess when that is too many."""
        if self.idle(now):
            self._begun, self._counted = now, 0
        self._counted += 1
        if self._counted > self._most:
            raise Excess(f"more than {self._most} {self._what} in {self._window:g} s")

    def idle(self, now: float) -> bool:
        """The window is over: a new one would count the same."""
        return now - self._begun >= self._window


class BoundedH2(H2Connection):
    """Counts small frames, which cost as much as large ones, and the resets that h2 sends by itself."""

    resets_sent = 0

    def __init__(self, config: H2Configuration, limits: Limits) -> None:
        super().__init__(config=config)
        self._small, self._clock = limits.small_frame, asyncio.get_running_loop().time
        self._small_frames = Rate("small frames", limits.small_frames, limits.window)

    def _receive_frame(self, frame: Frame) -> list[Event]:
        if frame.body_len < self._small:
            self._small_frames.count(self._clock())
        return super()._receive_frame(frame)

    def _prepare_for_sending(self, frames: list[Frame]) -> None:
        self.resets_sent += sum(1 for frame in frames if isinstance(frame, RstStreamFrame))
        super()._prepare_for_sending(frames)

    def unparsed(self) -> int:
        """Bytes of a frame that is not complete."""
        return len(self.incoming_buffer._data)

    def open_header_block(self) -> int | None:
        """Bytes of a header block that is not complete, or None when there is none."""
        frames = self.incoming_buffer._headers_buffer
        return sum(len(frame.data) for frame in frames) if frames else None


class BoundedConnection(Connection):
    """Leads from a call to the bounds of its connection."""

    bounds: "BoundedProtocol"


class BoundedProtocol(H2Protocol):
    """A server's side of one HTTP/2 connection, within Limits."""

    peer: Peer
    """Known once `opened` returned."""

    def __init__(
        self, handler: AbstractHandler, config: Configuration, h2_config: H2Configuration, limits: Limits
    ) -> None:
        super().__init__(handler, config, h2_config)
        self.limits = limits
        self.held = 0
        """Bytes of messages that were begun and are not finished."""
        self.calls = 0
        self.resets = Rate("resets", limits.resets, limits.window)
        self._reset_count = 0
        self._settings = Rate("SETTINGS frames", limits.settings, limits.window)
        self._pings = Rate("PING frames", limits.pings, limits.window)
        self._timers: list[asyncio.TimerHandle] = []
        self._header_timer: asyncio.TimerHandle | None = None
        self._heard = False

    # --- to be told apart by the server -----------------------------------------------------------------------

    def name(self) -> str:
        """The peer, for logs."""
        return "a peer"

    def opened(self) -> None:
        """The connection is up; raise Excess (or PeerNotTrusted) to refuse it."""

    def closed(self) -> None:
        """The connection is gone."""

    # --- the connection's life --------------------------------------------------------------------------------

    def connection_made(self, transport: Any) -> None:
        """Set the connection up with our settings from its first byte."""
        _set_nodelay_of(transport)
        h2 = BoundedH2(self.h2_config, self.limits)
        h2.local_settings = Settings(
            client=False,
            initial_values={
                SettingCodes.MAX_CONCURRENT_STREAMS: self.limits.streams,
                SettingCodes.MAX_HEADER_LIST_SIZE: self.limits.header_block,
                SettingCodes.INITIAL_WINDOW_SIZE: self.config.http2_stream_window_size,
                SettingCodes.MAX_FRAME_SIZE: self.limits.frame,
                SettingCodes.ENABLE_PUSH: 0,
            },
        )
        h2.initiate_connection()
        more = self.config.http2_connection_window_size - 65535
        if more > 0:
            h2.increment_flow_control_window(more)
        connection = BoundedConnection(h2, transport, config=self.config)
        connection.bounds = self
        self.connection, self.h2, self.transport = connection, h2, transport
        self.processor = Tolerant(self.handler, connection)
        self.processor.processors[ConnectionTerminated] = self._goodbye
        try:
            self.opened()
        except Excess as excess:
            self.refuse(ErrorCodes.ENHANCE_YOUR_CALM, str(excess))
            return
        except PeerNotTrusted as error:
            self.refuse(ErrorCodes.INADEQUATE_SECURITY, str(error))
            return
        connection.flush()
        connection.initialize()
        self._after(self.limits.preface_time, lambda: self._heard, "no HTTP/2 preface")
        self._after(self.limits.first_call_time, lambda: self.calls > 0, "no call")

    def _after(self, seconds: float, met: Any, what: str) -> None:
        def check() -> None:
            if not met():
                self.refuse(ErrorCodes.ENHANCE_YOUR_CALM, f"{what} within {seconds:g} s")

        self._timers.append(asyncio.get_running_loop().call_later(seconds, check))

    def data_received(self, data: bytes) -> None:
        """Parse and handle what came, within the limits; what breaks them ends the connection with a word why."""
        if self.connection.is_closing():
            return
        sent_before = self.h2.resets_sent
        try:
            events = self.connection.feed(data)
            self._heard = self._heard or bool(events)
            self._check_input()
            for event in events:
                self._count(event)
                self.processor.process(event)
            for _ in range(self.h2.resets_sent - sent_before):
                self._count_reset()
            self.connection.flush()
            self._check_output()
        except Excess as excess:
            self.refuse(ErrorCodes.ENHANCE_YOUR_CALM, str(excess))
        except (ProtocolError, UnicodeDecodeError) as error:
            self.refuse(getattr(error, "error_code", ErrorCodes.PROTOCOL_ERROR), f"HTTP/2: {error}")

    def _check_input(self) -> None:
        if self.h2.unparsed() > self.limits.frame + 9:
            raise Excess(f"a frame of more than {self.limits.frame} bytes")
        self._check_headers(self.h2.open_header_block())

    def _check_headers(self, held: int | None) -> None:
        if held is not None and held > self.limits.header_block:
            raise Excess(f"a header block of more than {self.limits.header_block} bytes")
        if held is not None and self._header_timer is None:
            what = f"no whole header block within {self.limits.header_time:g} s"
            self._header_timer = asyncio.get_running_loop().call_later(
                self.limits.header_time, self.refuse, ErrorCodes.ENHANCE_YOUR_CALM, what
            )
        elif held is None and self._header_timer is not None:
            self._header_timer.cancel()
            self._header_timer = None

    def _check_output(self) -> None:
        if not self.connection.is_closing() and self.transport.get_write_buffer_size() > self.limits.write_buffer:
            self.transport.abort()
            _log.warning("%s: closed: it does not read its answers", self.name())

    def _count(self, event: Event) -> None:
        now = asyncio.get_running_loop().time()
        if isinstance(event, RequestReceived):
            self.calls += 1
        elif isinstance(event, StreamReset) and event.remote_reset:
            self._count_reset()
        elif isinstance(event, RemoteSettingsChanged):
            self._settings.count(now)
        elif isinstance(event, PingReceived):
            self._pings.count(now)

    def _count_reset(self) -> None:
        self._reset_count += 1
        self.resets.count(asyncio.get_running_loop().time())
        if self.calls >= 2 * self.limits.resets and self._reset_count * 2 > self.calls:
            raise Excess(f"{self._reset_count} of {self.calls} calls were reset")

    def _goodbye(self, event: ConnectionTerminated) -> None:
        """The peer closes; one that does not trust our certificate says why."""
        if event.error_code == ErrorCodes.INADEQUATE_SECURITY:
            why = one_line((event.additional_data or b"").decode("utf-8", "replace"))
            _log.info("%s: it refused our certificate: %s", self.name(), why or "it did not say why")
        self.processor.process_connection_terminated(event)

    def refuse(self, code: ErrorCodes, why: str) -> None:
        """Say why in a GOAWAY and close; the calls on it are cancelled."""
        if self.connection.is_closing():
            return
        _log.warning("%s: connection closed: %s", self.name(), why)
        self.goaway(code, why)
        self.processor.close(why)

    def goaway(self, code: ErrorCodes, why: str) -> None:
        """Send a GOAWAY with a text, after whatever waits to be sent."""
        if self.h2.state_machine.state is not ConnectionState.CLOSED:
            self.h2.close_connection(code, additional_data=why.encode()[:512])
        self.connection.flush()

    def connection_lost(self, exc: BaseException | None) -> None:
        """Release all that belongs to the connection."""
        for timer in [*self._timers, *([self._header_timer] if self._header_timer else [])]:
            timer.cancel()
        super().connection_lost(exc)
        self.closed()


def _set_nodelay_of(transport: Any) -> None:
    sock = transport.get_extra_info("socket")
    if sock is not None:
        _set_nodelay(sock)
