"""A router that is told to stop lets answers end, up to its drain, and never longer."""

import asyncio

import pytest

from tests.router.rig import STREAM, Call, Rig, chat, chunk, replica


async def test_draining_lets_a_stream_end_and_takes_nothing_new(tmp_path, engine):
    arrived = asyncio.Event()

    async def script(call: Call) -> None:
        await call.say(STREAM + chunk(b"data: one\n\n"))
        await arrived.wait()
        await call.say(chunk(b"data: two\n\n"), b"0\r\n\r\n")

    engine.script = script
    async with Rig(tmp_path, drain=30.0) as rig:
        await rig.routes(replica(0, engine.port))
        idle, wire = await rig.connect(), await rig.connect()
        wire.send(chat())
        await wire.until(b"data: one\n\n")
        rig.router.stop()
        assert await idle.rest() == b""
        with pytest.raises(ConnectionRefusedError):
            await rig.connect()
        arrived.set()
        assert (await wire.rest()).endswith(chunk(b"data: two\n\n") + b"0\r\n\r\n")
        async with asyncio.timeout(1):
            await rig.running


async def test_a_second_signal_ends_streams_at_once_and_says_so_in_them(tmp_path, engine):
    async def script(call: Call) -> None:
        await call.say(STREAM + chunk(b"data: one\n\n"))
        await call.left()

    engine.script = script
    async with Rig(tmp_path, drain=3600.0) as rig:
        await rig.routes(replica(0, engine.port))
        wire = await rig.connect()
        wire.send(chat())
        await wire.until(b"data: one\n\n")
        rig.router.stop()
        rig.router.stop()
        assert b'"code":"router_stopping"' in await wire.rest()
        async with asyncio.timeout(1):
            await rig.running


async def test_without_a_drain_a_router_with_streams_ends_within_two_seconds(tmp_path, engine):
    """A client that is quiet, one in the middle of a body, one whose engine does not answer: none holds it up."""
    async with Rig(tmp_path, drain=0.0) as rig:
        await rig.routes(replica(0, engine.port))
        engine.script = Call.left
        wires = [await rig.connect() for _ in range(3)]
        wires[0].send(chat())
        wires[1].send(b"POST /v1/x HTTP/1.1\r\nHost: r\r\nContent-Length: 9\r\n\r\n")
        await engine.seen.get()
        async with asyncio.timeout(2):
            rig.router.stop()
            await rig.running
        assert b"503" in await wires[0].until(b"\r\n")
        for wire in wires:
            wire.close()
