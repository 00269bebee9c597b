"""Who opens much, says nothing or reads nothing costs little, and holds nobody else up."""

import asyncio
import socket

import pytest
from grpclib.const import Status
from h2.settings import SettingCodes

from llmgw.core.errors import BadMessage, ControlFault
from llmgw.core.identity import Role
from llmgw.wire.agent import v1 as agent
from llmgw.wire.channel import Channel
from llmgw.wire.operator import v1 as operator
from llmgw.wire.server import Limits

from .conftest import LINK, OPERATOR, within
from .raw import PREFACE, frame, message, status_of

PING = 6


# --- many -----------------------------------------------------------------------------------------------------------


async def test_more_calls_at_once_than_allowed_close_the_connection(serve, raw):
    """A client that respects our settings waits instead."""
    async with within(), raw(await serve()) as thief:
        await thief.begin()
        for _ in range(33):
            await thief.open(LINK)
        assert await thief.farewell()


async def test_a_certificate_has_so_many_connections_and_no_more(serve, raw, others):
    served = await serve(Limits(connections=2))
    async with within(), raw(served) as one, raw(served) as two, raw(served) as three:
        for connection in (one, two):
            await connection.begin()
            stream = await connection.open(body=message())
            assert (await status_of(connection, stream))[0] is Status.OK
        assert "2 connections of operator thief are open already" in await three.farewell()
        assert await others(served)


# --- silence --------------------------------------------------------------------------------------------------------


async def test_whoever_says_nothing_is_closed_at_each_stage(serve, raw):
    served = await serve(Limits(handshake_time=0.3, preface_time=0.3, first_call_time=0.6))
    async with within():
        reader, writer = await asyncio.open_connection("127.0.0.1", served.port)
        assert await reader.read() == b"", "no TLS"
        writer.close()
        async with raw(served) as thief:
            assert "no HTTP/2 preface within 0.3 s" in await thief.farewell()
        async with raw(served) as thief:
            await thief.begin()
            assert "no call within 0.6 s" in await thief.farewell()


async def test_half_a_preface_is_none(serve, raw):
    async with within(), raw(await serve(Limits(preface_time=0.2))) as thief:
        thief.send(PREFACE[:10])
        assert "no HTTP/2 preface" in await thief.farewell()


async def test_handshakes_without_a_certificate_are_few_at_once(serve, others):
    served = await serve(Limits(handshakes=4, handshake_time=0.5))
    async with within():
        silent = [await asyncio.open_connection("127.0.0.1", served.port) for _ in range(12)]
        assert await others(served), "they are closed in time, and others get their turn"
        for _, writer in silent:
            writer.close()


async def test_an_address_has_few_handshakes_at_once(serve, others, monkeypatch):
    """One of this machine has as many as it likes."""
    served = await serve(Limits(handshakes_per_address=2, handshake_time=30))
    async with within():
        many = [await asyncio.open_connection("127.0.0.1", served.port) for _ in range(4)]
        monkeypatch.setattr("llmgw.wire.server._is_local", lambda host: False)
        few = [await asyncio.open_connection("127.0.0.1", served.port) for _ in range(3)]
        assert await few[2][0].read() == b"", "the third is closed at once"
        monkeypatch.undo()
        assert await others(served)
        for _, writer in [*many, *few]:
            writer.close()


# --- a reader that does not read -------------------------------------------------------------------------------------


@pytest.mark.parametrize("stuck", ["its window is full", "its TCP connection is full"])
async def test_a_reader_that_does_not_read_loses_its_call_and_costs_bounded_memory(serve, raw, others, stuck):
    served = await serve(Limits(send_time=0.3))
    served.service.pages = 1 << 20
    served.service.page = operator.Page(revision=operator.Revision(epoch=1, seq=1), items=[gone() for _ in range(500)])
    wide = stuck == "its TCP connection is full"
    async with within(10), raw(served) as thief:
        if wide:
            thief.h2.local_settings[SettingCodes.INITIAL_WINDOW_SIZE] = 2**31 - 1
            thief.h2.local_settings.acknowledge()
        await thief.begin()
        if wide:
            thief.h2.increment_flow_control_window(2**31 - 1 - 65535)
        await status_of(thief, await thief.open(body=message()))
        stop_reading(served, thief)
        await thief.open("/operator.v1.Operator/Watch", message())
        await served.service.closed.wait()
        (connection,) = [c for c in served.server._connections if "thief" in c.name()]
        assert connection.transport.get_write_buffer_size() < 1 << 20
        assert connection.connection.write_ready.is_set() is not wide
        calls = connection.running.running()
        assert not calls or not (await asyncio.wait(calls, timeout=2))[1], "nothing waits behind what is not read"
    assert await others(served)


def stop_reading(served, thief):
    thief.writer.transport.pause_reading()
    (connection,) = served.server._connections
    for transport, option in (connection.transport, socket.SO_SNDBUF), (thief.writer, socket.SO_RCVBUF):
        # else the kernel holds megabytes before anybody notices
        transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, option, 4096)


def gone():
    return operator.Item(gone=operator.Gone(noun=operator.Noun.NODES, name="x" * 100))


async def test_answers_that_are_not_read_do_not_heap_up(serve, raw, caplog):
    """Each PING is answered, whoever reads the answers."""
    served = await serve(Limits(pings=1 << 30, small_frames=1 << 30, write_buffer=64 << 10))
    async with within(10), raw(served) as thief:
        await thief.begin()
        await status_of(thief, await thief.open(body=message()))
        stop_reading(served, thief)
        while served.server._connections:
            thief.send(frame(PING, 0, 0, bytes(8)) * 200)
            await thief.drain()
            await asyncio.sleep(0)
    assert "closed: it does not read its answers" in caplog.text


@pytest.mark.parametrize(
    ("report", "words"),
    [
        (lambda: [agent.ShardReport()] * 100_000, "its bytes would have more than 50000 parts"),
        (lambda: [agent.ShardReport(shard="s", host="h", launch=1)] * 20_000, "its bytes would have more than 50000"),
        (lambda: [agent.ShardReport(host="x" * 70_000)] * 60, r"its length is 42\d+ bytes; at most 4194304 are taken"),
    ],
)
async def test_a_message_that_nobody_would_take_is_refused_before_it_is_sent(serve, make_files, report, words):
    """Else its sender waits for a reader, and takes the wait for the other end's silence."""
    served = await serve()
    channel = Channel("127.0.0.1", served.port, make_files("a1", Role.AGENT))
    async with within(), channel, channel.link(LINK, agent.AgentMessage, agent.ControlMessage) as link:
        large = agent.AgentMessage(report=agent.Report(shards=report()))
        with pytest.raises(BadMessage, match=words):
            await link.send(large, timeout=0.05)
        await link.send(agent.AgentMessage(leaving=agent.Leaving(reason="small")))
        assert (await anext(link)).refused.text == "small", "the link is still of use"


async def test_an_answer_that_is_too_large_is_our_fault_and_is_not_sent(serve, make_files, caplog):
    served = await serve(Limits(message=1000))
    served.service.page = operator.Page(items=[gone() for _ in range(20)])
    async with within(), Channel("127.0.0.1", served.port, make_files("op", Role.OPERATOR)) as channel:
        with pytest.raises(ControlFault, match=r"an answer of \d+ bytes; at most 1000 are sent"):
            await anext(channel.stream(OPERATOR + "Watch", operator.WatchRequest(), operator.Page))


async def test_a_client_takes_no_message_without_bounds(serve, make_files):
    """The other direction: an answer that says it is 4 GiB."""

    async def lie(stream):
        await stream._stream.send_initial_metadata()
        await stream._h2.send_data(message(length=(1 << 32) - 1))
        await asyncio.Event().wait()

    served = await serve(link=lie)
    channel = Channel("127.0.0.1", served.port, make_files("a1", Role.AGENT))
    async with within(), channel, channel.link(LINK, agent.AgentMessage, agent.ControlMessage) as link:
        with pytest.raises(BadMessage, match="its length is 4294967295"):
            await anext(link)
