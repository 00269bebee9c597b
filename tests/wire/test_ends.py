"""Each way that a link can end: none hangs, all are told apart."""

import asyncio
import dataclasses
import socket

import pytest
from grpclib.const import Status
from grpclib.exceptions import GRPCError
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.errors import ErrorCodes

from llmgw.core.errors import (
    BadMessage,
    ControlFault,
    ControlUnreachable,
    UnknownModel,
)
from llmgw.core.identity import Role
from llmgw.wire import dial as dial_module
from llmgw.wire.channel import Channel
from llmgw.wire.operator import v1 as operator
from llmgw.wire.tls import server_context

from .conftest import OPERATOR, within
from .links import TYPES, fails, peer, says

pytestmark = pytest.mark.usefixtures("nothing_is_left")


async def test_the_server_ends_it_in_order(serve, dial):
    served = await serve()
    async with within(), dial(served.port) as channel, channel.link(*TYPES) as link:
        await link.send(says("end"))
        assert [message async for message in link] == []
        with pytest.raises(ControlUnreachable):
            for _ in range(3):
                await link.send(says("after the end"))


async def test_the_server_ends_it_with_an_error(serve, dial):
    served = await serve()
    async with within(), dial(served.port) as channel, channel.link(*TYPES) as link:
        await link.send(says("die"))
        with pytest.raises(UnknownModel, match="model 'die' is unknown"):
            await anext(link)
        with pytest.raises(UnknownModel):
            for _ in range(3):
                await link.send(says("after the end"))


async def test_the_server_stops(serve, dial):
    served = await serve()
    async with within(), dial(served.port) as channel, channel.link(*TYPES) as link:
        await link.send(says("one"))
        await anext(link)
        async with asyncio.TaskGroup() as group:
            group.create_task(served.server.close())
            with pytest.raises(ControlUnreachable, match="the server is stopping"):
                await anext(link)


async def test_the_handlers_are_cancelled_and_not_waited_for(serve, dial):
    async def stubborn(stream):
        await asyncio.Event().wait()

    served = await serve(link=stubborn)
    async with within(), dial(served.port) as channel, channel.link(*TYPES) as link, asyncio.TaskGroup() as group:
        group.create_task(served.server.close())
        with pytest.raises(ControlUnreachable, match="is stopping"):
            await anext(link)


class Server:
    """The other end of a link, frame by frame."""

    def __init__(self, reader, writer):
        self.reader, self.writer = reader, writer
        self.h2 = H2Connection(H2Configuration(client_side=False, header_encoding="utf-8"))

    async def call(self):
        """Wait for a call, and answer with headers."""
        self.h2.initiate_connection()
        self.flush()
        while not self.h2.open_inbound_streams:
            self.h2.receive_data(await self.reader.read(65536))
            self.flush()
        self.h2.send_headers(1, [(":status", "200"), ("content-type", "application/grpc")])
        self.flush()

    def flush(self):
        self.writer.write(self.h2.data_to_send())


ENDS = {
    "reset": lambda s: s.h2.reset_stream(1, ErrorCodes.INTERNAL_ERROR),
    "goaway": lambda s: s.h2.close_connection(ErrorCodes.ENHANCE_YOUR_CALM, b"too much of you"),
    "goaway without a word": lambda s: s.h2.close_connection(),
    "nothing: the connection is cut": lambda s: s.writer.transport.abort(),
    "the connection is closed in order": lambda s: s.writer.close(),
    "trailers without a status": lambda s: s.h2.send_headers(1, [("x", "y")], end_stream=True),
    "an end without trailers": lambda s: s.h2.end_stream(1),
    "half a message": lambda s: s.h2.send_data(1, b"\0\0\0\0\x09half", end_stream=True),
    "a message in a wrong form": lambda s: s.h2.send_data(1, b"\0\0\0\0\x0c" + b"\x80" * 12),
    "bytes that are no frame": lambda s: s.writer.write(bytes(64)),
}
WORDS = {
    "reset": (ControlUnreachable, "it broke the call off"),
    "goaway": (ControlUnreachable, "too much of you"),
    "goaway without a word": (ControlUnreachable, "it closed the connection .HTTP/2 error 0"),
    "nothing: the connection is cut": (ControlUnreachable, "the connection was lost|closed the connection"),
    "the connection is closed in order": (ControlUnreachable, "it closed the connection"),
    "trailers without a status": (ControlFault, "Missing grpc-status header"),
    "an end without trailers": (ControlUnreachable, "it ended the call without a status"),
    "half a message": (ControlUnreachable, "it broke the call off within a message"),
    "a message in a wrong form": (BadMessage, "ControlMessage"),
    "bytes that are no frame": (ControlUnreachable, "it broke a rule of HTTP/2"),
}


@pytest.mark.parametrize("case", ENDS)
async def test_the_link_breaks(case, dial, make_files):
    async def serve(reader, writer):
        server = Server(reader, writer)
        await server.call()
        ENDS[case](server)
        server.flush()
        while await reader.read(65536):
            pass

    async with peer(serve, server_context(make_files("control", Role.CONTROL))) as port:
        error = await fails(dial(port), *WORDS[case])
    assert str(error)


async def test_the_peer_is_silent_as_if_its_power_were_cut(dial, make_files, monkeypatch):
    """Without data to send, TCP itself would never notice."""
    quick = dataclasses.replace(dial_module._CONFIG, _keepalive_time=0.2, _keepalive_timeout=0.2)
    quick = dataclasses.replace(quick, _http2_min_sent_ping_interval_without_data=0.1)
    monkeypatch.setattr(dial_module, "_CONFIG", quick)

    async def gone(reader, writer):
        await Server(reader, writer).call()
        await asyncio.Event().wait()

    async with peer(gone, server_context(make_files("control", Role.CONTROL))) as port:
        await fails(dial(port), ControlUnreachable, "it does not answer any more")


async def test_a_quiet_link_stays(serve, dial, monkeypatch):
    """The questions are answered, and are not taken for a flood."""
    quick = dataclasses.replace(dial_module._CONFIG, _keepalive_time=0.1, _keepalive_timeout=0.2)
    quick = dataclasses.replace(quick, _http2_min_sent_ping_interval_without_data=0.05)
    monkeypatch.setattr(dial_module, "_CONFIG", quick)
    served = await serve()
    async with within(), dial(served.port) as channel, channel.link(*TYPES) as link:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.7):
                await anext(link)
        await link.send(says("still here"))
        assert (await anext(link)).refused.text == "still here"


async def test_the_peer_reads_nothing_any_more(dial, make_files):
    """Its window is full: a sender waits no longer than it said."""

    async def deaf(reader, writer):
        await Server(reader, writer).call()
        await asyncio.Event().wait()

    serving = peer(deaf, server_context(make_files("control", Role.CONTROL)))
    async with within(), serving as port, dial(port) as channel, channel.link(*TYPES) as link:
        with pytest.raises(ControlUnreachable, match=r"it read nothing for 0\.2 s"):
            while True:
                await link.send(says("x" * 60000), timeout=0.2)


# --- our side ---------------------------------------------------------------------------------------------------------


async def test_our_sender_fails_and_the_server_sees_the_end(serve, dial):
    ended = asyncio.Event()

    async def handler(stream):
        try:
            async for _ in stream:
                pass
        finally:
            ended.set()

    served = await serve(link=handler)
    async with within(), dial(served.port) as channel:
        with pytest.raises(ExceptionGroup):
            async with channel.link(*TYPES) as link, asyncio.TaskGroup() as group:

                async def send():
                    await link.send(says("one"))
                    raise RuntimeError("our own fault")

                group.create_task(send())
                async for _ in link:
                    pass
        await ended.wait()


async def test_an_os_error_of_the_user_of_a_link_stays_what_it_is(serve, dial):
    served = await serve()
    async with within(), dial(served.port) as channel:
        with pytest.raises(FileNotFoundError):
            async with channel.link(*TYPES):
                raise FileNotFoundError("state")


async def test_a_lost_link_leaves_its_task_uncancelled(serve, dial):
    """Otherwise a task group entered later takes its own cancellation for one from outside."""
    served = await serve()
    task = asyncio.current_task()
    async with within(), dial(served.port) as channel, channel.link(*TYPES) as link:
        await link.send(says("one"))
        await anext(link)
        (connection,) = served.server._connections
        connection.transport.abort()
        with pytest.raises(ControlUnreachable):
            await anext(link)
        assert task.cancelling() == 0
        with pytest.raises(ExceptionGroup):
            async with asyncio.TaskGroup() as group:
                group.create_task(boom())
                await asyncio.Event().wait()


async def boom():
    raise RuntimeError


@pytest.mark.parametrize("first", ["cancelled", "broken"])
async def test_a_cancelled_reader_is_cancelled_also_when_the_link_breaks_at_once(serve, dial, first):
    served = await serve()
    reading: asyncio.Future[Channel] = asyncio.get_running_loop().create_future()

    async def read():
        async with dial(served.port) as channel, channel.link(*TYPES) as link:
            await link.send(says("one"))
            await anext(link)
            reading.set_result(channel)
            await anext(link)

    async with within():
        task = asyncio.ensure_future(read())
        channel = await reading
        if first == "cancelled":
            task.cancel()
        channel.grpc._protocol.processor.close("gone")
        if first == "broken":
            task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task


async def test_a_link_that_ends_is_dialled_again_by_the_same_channel(serve, dial):
    served = await serve()
    async with within(), dial(served.port) as channel:
        for _ in range(3):
            async with channel.link(*TYPES) as link:
                await link.send(says("again"))
                assert (await anext(link)).refused.text == "again"
                (connection,) = served.server._connections
                connection.transport.abort()
                with pytest.raises(ControlUnreachable):
                    await anext(link)


async def test_a_call_that_is_not_answered_ends_in_time_and_the_server_forgets_it(serve, dial):
    served = await serve()
    async with within(), dial(served.port) as channel:
        with pytest.raises(ControlUnreachable, match=r"no answer within 0\.2 s"):
            await channel.call(OPERATOR + "WhyModel", operator.WhyModelRequest(model="wait"), operator.Why, timeout=0.2)
        await channel.call(OPERATOR + "About", operator.AboutRequest(), operator.AboutView)
        (connection,) = served.server._connections
        assert connection.running.running() == []


async def test_closing_in_order_delivers_the_last_word(serve, dial):
    heard = []

    async def handler(stream):
        async for message in stream:
            heard.append(message.leaving.reason)

    served = await serve(link=handler)
    async with within(), dial(served.port) as channel, channel.link(*TYPES) as link:
        await link.send(says("bye"))
        await link.close()
    assert heard == ["bye"]


@pytest.mark.parametrize("kind", ["status", "group", "fault", "waits for what was cancelled"])
async def test_whatever_a_handler_ends_with_ends_the_call(serve, dial, kind, caplog):
    async def handler(stream):
        if kind == "status":
            raise GRPCError(Status.ABORTED, "own words")
        if kind == "group":
            async with asyncio.TaskGroup() as group:
                group.create_task(named())
                await asyncio.Event().wait()
        if kind == "fault":
            raise RuntimeError("inner detail")
        lost = asyncio.get_running_loop().create_future()
        lost.cancel()
        await lost

    async def named():
        raise UnknownModel("x")

    served = await serve(link=handler)
    await fails(dial(served.port), Exception, {"status": "own words", "group": "model 'x'"}.get(kind, "log of llmgwd"))
    assert ("Traceback" in caplog.text) == (kind not in ("status", "group"))


async def test_a_handler_learns_why_its_call_was_cut(serve, dial):
    why = []

    async def handler(stream):
        assert stream.cut == ""
        try:
            async for _ in stream:
                pass
        finally:
            why.append(stream.cut)
            ended.release()

    served = await serve(link=handler)
    ended = asyncio.Semaphore(0)
    async with within():
        async with dial(served.port) as channel, channel.link(*TYPES) as link:
            await link.send(says("and away"))
            await asyncio.sleep(0)
        async with dial(served.port) as channel, channel.link(*TYPES) as link:
            await link.send(says("and cut"))
            channel.grpc._protocol.connection._transport.abort()
        for _ in why, why:
            await ended.acquire()
    assert len(why) == 2
    assert any("reset by remote party" in one for one in why) and "connection lost" in why


@pytest.mark.parametrize("unix", [True, False])
async def test_a_connection_can_be_told_when_to_give_up(serve, dial, tmp_path, unix):
    served = await serve(unix=tmp_path / "s.sock")
    async with within(), Channel.unix(tmp_path / "s.sock") if unix else dial(served.port) as channel:
        channel.give_up_after(1.0)  # not connected yet: nothing to do
        await channel.connect()
        channel.give_up_after(1.5)
        if not unix:
            sock = channel.grpc._protocol.connection._transport.get_extra_info("socket")
            assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 1500


async def test_a_handler_that_ends_otherwise_than_cancelled_when_its_caller_left_is_no_news(serve, dial, caplog):
    ended = asyncio.Event()

    async def handler(stream):
        try:
            await stream.send(b"")
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            ended.set()
            raise UnknownModel("too late for anybody to hear") from None

    served = await serve(link=handler)
    async with within(), dial(served.port) as channel:
        async with channel.link(*TYPES) as link:
            await anext(link)
        await ended.wait()
        await channel.call(OPERATOR + "About", operator.AboutRequest(), operator.AboutView)
    assert not [record for record in caplog.records if record.levelname == "ERROR"]
