"""What a client gets through the router: as the engine says it, when it says it, and honestly when it cannot."""

import asyncio
import socket

import msgspec
import pytest

from tests.router.rig import OK, STREAM, Call, chat, chunk, replica


def _error(body: bytes) -> dict[str, object]:
    return msgspec.json.decode(body)["error"]


# --- streams ----------------------------------------------------------------------------------------------------


async def test_a_token_is_relayed_before_the_next_one_exists(rig, engine):
    """The engine sends the second only when the client has the first: nothing can be held back."""
    arrived = asyncio.Event()

    async def script(call: Call) -> None:
        await call.say(STREAM + chunk(b"data: one\n\n"))
        await arrived.wait()
        await call.say(chunk(b"data: two\n\n"), chunk(b"data: [DONE]\n\n"), b"0\r\n\r\n")

    engine.script = script
    await rig.routes(replica(0, engine.port))
    wire = await rig.connect()
    wire.send(chat(b'{"model":"m","stream":true}'))
    await wire.until(b"data: one\n\n")
    arrived.set()
    assert b"data: two\n\n" in await wire.until(b"0\r\n\r\n")
    wire.send(chat())
    await wire.until(b"data: one\n\n")
    wire.close()


async def test_a_head_is_relayed_before_the_first_token_exists(rig, engine):
    arrived = asyncio.Event()

    async def script(call: Call) -> None:
        await call.say(STREAM)
        await arrived.wait()
        await call.say(b"0\r\n\r\n")

    engine.script = script
    await rig.routes(replica(0, engine.port))
    wire = await rig.connect()
    wire.send(chat())
    assert b"text/event-stream" in await wire.until(b"\r\n\r\n")
    arrived.set()
    assert await wire.until(b"0\r\n\r\n") == b"0\r\n\r\n"
    wire.close()


async def test_half_of_a_large_chunk_is_relayed_before_the_other_half_exists(rig, engine):
    arrived = asyncio.Event()

    async def script(call: Call) -> None:
        await call.say(STREAM + b"14\r\nfirst half")
        await arrived.wait()
        await call.say(b"then more!\r\n0\r\n\r\n")

    engine.script = script
    await rig.routes(replica(0, engine.port))
    wire = await rig.connect()
    wire.send(chat())
    await wire.until(b"first half")
    arrived.set()
    assert b"then more!" in await wire.until(b"0\r\n\r\n")
    wire.close()


async def test_an_old_client_gets_a_stream_without_chunks_that_ends_with_the_connection(rig, engine):
    engine.says(STREAM, chunk(b"data: one\n\n"), b"0\r\n\r\n")
    await rig.routes(replica(0, engine.port))
    wire = await rig.connect()
    body = b'{"model":"m"}'
    wire.send(b"POST /v1/chat/completions HTTP/1.0\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body))
    head, _, said = (await wire.rest()).partition(b"\r\n\r\n")
    assert said == b"data: one\n\n"
    assert b"Transfer-Encoding" not in head


async def test_an_engine_that_dies_in_a_stream_is_told_as_an_event_and_the_stream_has_no_end(rig, engine):
    engine.says(STREAM, chunk(b"data: one\n\n"), hang_up=True)
    await rig.routes(replica(0, engine.port))
    wire = await rig.connect()
    wire.send(chat(b'{"model":"m","stream":true}'))
    said = await wire.rest()
    assert b"data: one\n\n" in said
    event = said.rpartition(b"data: ")[2].partition(b"\n\n")[0]
    assert _error(event)["code"] == "engine_died"
    assert not said.endswith(b"0\r\n\r\n")


async def test_an_engine_that_dies_inside_an_event_does_not_spoil_the_error(rig, engine):
    engine.says(STREAM, chunk(b'data: {"half'), hang_up=True)
    await rig.routes(replica(0, engine.port))
    wire = await rig.connect()
    wire.send(chat(b'{"model":"m","stream":true}'))
    assert b'{"half' in (said := await wire.rest())
    assert b'\n\ndata: {"error"' in said


async def test_a_plain_answer_that_breaks_off_does_not_look_whole(rig, engine):
    engine.says(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n{", hang_up=True)
    await rig.routes(replica(0, engine.port))
    wire = await rig.connect()
    wire.send(chat())
    head, _, body = (await wire.rest()).partition(b"\r\n\r\n")
    assert b"Content-Length: 10" in head
    assert body == b"{"


async def test_an_answer_without_a_length_that_breaks_off_ends_in_a_reset_for_an_old_client(rig, engine):
    """Its only sign of the end is that the connection closes, so a broken one must not close like that."""
    engine.says(
        b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nTransfer-Encoding: chunked\r\n\r\n",
        chunk(b"half"),
        hang_up=True,
    )
    await rig.routes(replica(0, engine.port))
    wire = await rig.connect()
    wire.send(b'POST /v1/completions HTTP/1.0\r\nContent-Length: 13\r\n\r\n{"model":"m"}')
    with pytest.raises(ConnectionResetError):
        await wire.rest()


async def test_an_engine_that_breaks_the_chunking_in_a_stream_is_cut_off(rig, engine):
    arrived = asyncio.Event()

    async def script(call: Call) -> None:
        await call.say(STREAM + chunk(b"data: one\n\n"))
        await arrived.wait()
        await call.say(b"zz\r\n")

    engine.script = script
    await rig.routes(replica(0, engine.port))
    wire = await rig.connect()
    wire.send(chat())
    await wire.until(b"data: one\n\n")
    arrived.set()
    assert b"engine_answer_broken" in (said := await wire.rest())
    assert not said.endswith(b"0\r\n\r\n")


async def test_a_client_that_leaves_ends_the_engines_work_at_once(rig, engine):
    async def script(call: Call) -> None:
        await call.say(STREAM + chunk(b"data: one\n\n"))
        await call.left()

    engine.script = script
    await rig.routes(replica(0, engine.port))
    wire = await rig.connect()
    wire.send(chat())
    await wire.until(b"data: one\n\n")
    wire.close()
    async with asyncio.timeout(1):
        await engine.ended.get()


async def test_a_client_that_leaves_while_its_request_waits_ends_it_too(rig, engine):
    engine.script = Call.left
    await rig.routes(replica(0, engine.port))
    wire = await rig.connect()
    wire.send(chat())
    await engine.seen.get()
    wire.close()
    async with asyncio.timeout(1):
        await engine.ended.get()
    engine.says(OK)
    assert (await rig.ask(chat()))[0] == 200


async def test_a_client_that_closes_its_half_has_left(rig, engine):
    """Who sends no more may still read, but those who do so on purpose are rare, and those who left are not."""
    engine.script = Call.left
    await rig.routes(replica(0, engine.port))
    wire = await rig.connect()
    wire.send(chat())
    await engine.seen.get()
    wire.writer.write_eof()
    async with asyncio.timeout(1):
        await engine.ended.get()


async def test_a_client_that_does_not_read_stops_the_engine_and_costs_bounded_memory(rig, engine):
    """The engine's writes stall when the buffers between it and the client are full: the router's part is small."""
    sent, stalled = 0, asyncio.Event()

    async def script(call: Call) -> None:
        nonlocal sent
        await call.say(STREAM)
        try:
            while sent < 400:
                async with asyncio.timeout(0.5):
                    await call.say(chunk(b"a" * 65536))
                sent += 1
        except TimeoutError:
            stalled.set()
            while sent < 400:
                await call.say(chunk(b"a" * 65536))
                sent += 1
        await call.say(b"0\r\n\r\n")

    engine.script = script
    await rig.routes(replica(0, engine.port))
    with socket.socket() as slow:
        slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        slow.setblocking(False)
        loop = asyncio.get_running_loop()
        await loop.sock_connect(slow, ("127.0.0.1", rig.router.port))
        await loop.sock_sendall(slow, chat())
        async with asyncio.timeout(10):
            await stalled.wait()
        assert sent < 300
        got = 0
        async with asyncio.timeout(10):
            while got < 400 * 65536:
                got += len(await loop.sock_recv(slow, 1 << 20))
