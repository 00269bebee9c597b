"""A stolen key must not harm more than its own connection: each attack against a real server, over TLS."""

import asyncio
import logging

import pytest
from grpclib.const import Status
from h2.errors import ErrorCodes
from h2.events import StreamReset

from llmgw.core.identity import Role
from llmgw.wire.channel import Channel
from llmgw.wire.operator import v1 as operator
from llmgw.wire.server import Limits

from .conftest import LINK, OPERATOR, within
from .raw import frame, headers, message, status_of

DATA, HEAD, PRIORITY, RST, SETTINGS, PING, WINDOW, CONTINUATION = 0, 1, 2, 3, 4, 6, 8, 9


# --- messages -------------------------------------------------------------------------------------------------------


async def test_a_message_that_is_too_large_is_refused_by_its_first_five_bytes(serve, raw, others):
    served = await serve()
    async with within(), raw(served) as thief:
        await thief.begin()
        stream = await thief.open(LINK)
        thief.h2.send_data(stream, message(length=(4 << 20) + 1))
        await thief.flush()
        assert (await status_of(thief, stream))[0] is Status.RESOURCE_EXHAUSTED
        again = await thief.open(body=message())
        assert (await status_of(thief, again))[0] is Status.OK, "the connection is still of use"
    assert await others(served)


async def test_a_call_with_one_message_takes_a_smaller_one(serve, raw):
    async with within(), raw(await serve()) as thief:
        await thief.begin()
        stream = await thief.open()
        thief.h2.send_data(stream, message(length=(64 << 10) + 1))
        await thief.flush()
        assert (await status_of(thief, stream))[0] is Status.RESOURCE_EXHAUSTED


async def test_large_messages_that_are_never_finished_are_bounded_in_sum(serve, raw):
    async with within(), raw(await serve()) as thief:
        await thief.begin()
        ends = []
        for _ in range(3):
            stream = await thief.open(LINK)
            thief.h2.send_data(stream, message(length=4 << 20))
            await thief.flush()
            ends.append(stream)
        assert (await status_of(thief, ends[2]))[0] is Status.RESOURCE_EXHAUSTED


WRONG_FORMS = {
    "none": b"",
    "compressed": message(flag=1),
    "a flag that means nothing": message(b"x", flag=0x7F),
    "cut short": message(b"x", length=9),
    "not even a length": b"\0\0",
    "not UTF-8": message(b"\x0a\x02\xff\xfe"),
}


@pytest.mark.parametrize("body", WRONG_FORMS.values(), ids=WRONG_FORMS)
async def test_a_message_in_a_wrong_form_is_the_callers_fault_and_no_traceback(serve, raw, caplog, body):
    caplog.set_level(logging.INFO)
    async with within(), raw(await serve()) as thief:
        await thief.begin()
        stream = await thief.open("/operator.v1.Operator/WhyModel", body)
        assert (await status_of(thief, stream))[0] is Status.INVALID_ARGUMENT
    assert "Traceback" not in caplog.text


# --- headers --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "wrong",
    [
        [h for h in headers() if h[0] != ":method"],
        [h for h in headers() if h[0] != ":path"],
        [*headers(), (":path", "/x")],
        [*headers(), (":other", "x")],
        [*headers(), ("Upper", "x")],
        [*headers(), ("x", "a\r\nb: c")],
        [*headers(), ("x", "a\0b")],
    ],
)
async def test_headers_that_are_no_request_end_the_call_and_not_the_connection(serve, raw, wrong):
    async with within(), raw(await serve()) as thief:
        await thief.begin()
        thief.h2.send_headers(1, wrong)
        await thief.flush()
        assert (await thief.until(StreamReset, stream_id=1)).error_code == ErrorCodes.PROTOCOL_ERROR
        stream = await thief.open(body=message())
        assert (await status_of(thief, stream))[0] is Status.OK


@pytest.mark.parametrize(
    "odd", [{"x-bin": "!"}, {"grpc-timeout": "0S"}, {"grpc-timeout": "soon"}, {"x-many": "x" * 9000}]
)
async def test_headers_that_nobody_reads_do_no_harm(serve, raw, caplog, odd):
    async with within(), raw(await serve()) as thief:
        await thief.begin()
        thief.h2.send_headers(1, headers(**odd))
        thief.h2.send_data(1, message(), end_stream=True)
        await thief.flush()
        assert (await status_of(thief, 1))[0] is Status.OK
    assert not caplog.records


async def test_a_header_block_without_an_end_is_bounded_in_size_and_time(serve, raw):
    served = await serve(Limits(header_time=0.2))
    async with within(), raw(served) as thief:
        await thief.begin()
        thief.speaks = False
        thief.send(frame(HEAD, 0, 1, b""))
        assert "no whole header block within 0.2 s" in await thief.farewell()
    async with within(), raw(served) as thief:
        await thief.begin()
        thief.send(frame(HEAD, 0, 1, b"") + frame(CONTINUATION, 0, 1, bytes(16384)) * 3)
        assert "a header block of more than 32768 bytes" in await thief.farewell()


async def test_more_continuation_frames_than_h2_takes_close_the_connection(serve, raw):
    async with within(), raw(await serve()) as thief:
        await thief.begin()
        thief.send(frame(HEAD, 0, 1, b"") + frame(CONTINUATION, 0, 1, b"") * 80)
        assert await thief.farewell()


async def test_headers_that_unpack_to_more_than_they_may_close_the_connection(serve, raw):
    """A table entry of 4 kB, named ten thousand times."""
    async with within(), raw(await serve()) as thief:
        await thief.begin()
        thief.h2.send_headers(1, [*headers(), ("x", "v" * 4000)])
        await thief.flush()
        thief.send(frame(HEAD, 4, 3, b"\xbe" * 10000))
        assert await thief.farewell()


# --- frames ---------------------------------------------------------------------------------------------------------


async def test_unknown_frames_are_ignored(serve, raw):
    async with within(), raw(await serve()) as thief:
        await thief.begin()
        thief.send(frame(0xEE, 0, 0, b"new") + frame(0x0A, 0, 0, b"\0\0x") + frame(0x10, 0, 0, b"\0\0\0\1u=1"))
        stream = await thief.open(body=message())
        assert (await status_of(thief, stream))[0] is Status.OK


async def test_a_frame_that_says_it_is_huge_is_not_waited_for(serve, raw):
    async with within(), raw(await serve()) as thief:
        await thief.begin()
        stream = await thief.open()
        thief.send(frame(DATA, 0, stream, bytes(20000), length=(1 << 24) - 1))
        assert "a frame of more than 16384 bytes" in await thief.farewell()


async def test_a_broken_rule_of_http2_is_answered_with_a_goaway(serve, raw):
    async with within(), raw(await serve()) as thief:
        await thief.begin()
        thief.send(frame(WINDOW, 0, 0, bytes(4)))
        assert await thief.farewell() == "error 1"


@pytest.mark.parametrize(
    ("flood", "words"),
    [
        (frame(PRIORITY, 0, 1, bytes(5)) * 500, "more than 10000 small frames in 10 s"),
        (frame(0xEE, 0, 0) * 500, "more than 10000 small frames in 10 s"),
        (frame(SETTINGS, 0, 0), "more than 10 SETTINGS frames in 10 s"),
        (frame(PING, 0, 0, bytes(8)), "more than 10 PING"),
    ],
)
async def test_a_flood_of_frames_closes_the_connection(serve, raw, others, flood, words):
    served = await serve()
    async with within(), raw(served) as thief:
        await thief.begin()
        thief.send(flood * 40)
        assert words in await thief.farewell()
    assert await others(served)


# --- resets ---------------------------------------------------------------------------------------------------------


async def test_rapid_resets_cut_the_connection_and_hold_nobody_up(serve, raw, others, make_files):
    served = await serve()
    async with within(15), raw(served) as thief:
        await thief.begin()
        lags = []

        async def beats():
            async with Channel("127.0.0.1", served.port, make_files("op", Role.OPERATOR)) as channel:
                loop = asyncio.get_running_loop()
                for _ in range(20):
                    begun = loop.time()
                    await channel.call(OPERATOR + "About", operator.AboutRequest(), operator.AboutView)
                    lags.append(loop.time() - begun)

        async def attack():
            for _ in range(2000):
                stream = thief.h2.get_next_available_stream_id()
                thief.h2.send_headers(stream, headers(LINK))
                thief.h2.reset_stream(stream)
            await thief.flush()
            return await thief.farewell()

        words, _ = await asyncio.gather(attack(), beats())
    assert "more than 100 resets in 10 s" in words
    assert max(lags[2:]) < 0.5


async def test_resets_count_by_certificate_and_not_only_by_connection(serve, raw):
    served = await serve()
    words = []
    for _ in range(3):
        async with within(), raw(served) as thief:
            await thief.begin()
            for _ in range(60):
                stream = thief.h2.get_next_available_stream_id()
                thief.h2.send_headers(stream, headers(LINK))
                thief.h2.reset_stream(stream)
            last = await thief.open(body=message())
            try:
                words.append((await status_of(thief, last))[0])
            except (EOFError, ConnectionError):
                words.append("cut")
    assert words == [Status.OK, "cut", "cut"]


async def test_resets_that_the_peer_makes_us_send_count_too(serve, raw):
    async with within(), raw(await serve()) as thief:
        await thief.begin()
        for _ in range(300):
            stream = thief.h2.get_next_available_stream_id()
            thief.h2.send_headers(stream, headers(LINK))
            thief.send(thief.h2.data_to_send() + frame(WINDOW, 0, stream, b"\x7f\xff\xff\xff"))
            thief.h2.reset_stream(stream)
            thief.h2.data_to_send()
        assert "resets in 10 s" in await thief.farewell()


async def test_a_call_that_is_reset_before_it_began_leaves_nothing(serve, raw):
    served = await serve()
    async with within(), raw(served) as thief:
        await thief.begin()
        for _ in range(50):
            stream = thief.h2.get_next_available_stream_id()
            thief.h2.send_headers(stream, headers(LINK))
            thief.h2.reset_stream(stream)
        last = await thief.open(body=message())
        await status_of(thief, last)
        (connection,) = served.server._connections
        assert len(connection.processor.streams) <= 1
        assert len(connection.running.running()) <= 1
