"""Which engine a request goes to, and what happens when that one cannot answer it."""

import asyncio
import socket
import time

import msgspec

from llmgw.core.routing import TRIES
from llmgw.router.upstream import EngineConnection, Upstream
from tests.router.rig import OK, STREAM, Call, StubEngine, chat, chunk, replica


def _error(body: bytes) -> dict[str, object]:
    return msgspec.json.decode(body)["error"]


async def test_requests_go_to_the_replica_with_fewer(rig, engine, other):
    async def hold(call: Call) -> None:
        await call.left()

    await rig.routes(replica(0, engine.port), replica(1, other.port))
    engine.script = other.script = hold
    wires = [await rig.connect() for _ in range(4)]
    for wire in wires:
        wire.send(chat())
    for _ in range(2):
        await engine.seen.get()
        await other.seen.get()
    for wire in wires:
        wire.close()


async def test_an_engine_that_is_gone_costs_no_request(rig, engine, other):
    await rig.routes(replica(0, engine.port), replica(1, other.port))
    await engine.stop()
    assert [(await rig.ask(chat()))[0] for _ in range(6)] == [200] * 6
    assert len(other.calls) == 6


async def test_an_engine_that_fails_is_passed_over_for_a_while(rig, other):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound, not listening: every connection is refused
        await rig.routes(replica(0, taken.getsockname()[1]), replica(1, other.port))
        for _ in range(3):
            assert (await rig.ask(chat()))[0] == 200
    # The log is the witness: one refused connection for three requests.
    await rig.__aexit__(None, None, None)
    assert len([line for line in rig.access() if "fault=engine_unreachable" in line]) == 1


async def test_a_kept_connection_that_the_engine_closed_costs_nothing(rig, engine):
    await rig.routes(replica(0, engine.port))
    wire = await rig.connect()
    for _ in range(3):
        wire.send(chat())
        assert (await wire.reply())[0] == 200
        engine.hang_up_idle()
    wire.close()


async def test_a_request_that_meets_the_close_of_a_kept_connection_is_sent_again(rig, engine):
    """The engine took the request's bytes and closed without a word: on a used connection that is idleness ending."""
    first = True

    async def script(call: Call) -> None:
        nonlocal first
        if len(engine.calls) == 2 and first:
            first = False
            call.hang_up()
        else:
            await call.say(OK)

    engine.script = script
    await rig.routes(replica(0, engine.port))
    assert [(await rig.ask(chat()))[0] for _ in range(2)] == [200, 200]
    assert len(engine.calls) == 3


async def test_an_engine_that_dies_before_its_first_byte_loses_no_request(rig, engine, other):
    async def die(call: Call) -> None:
        await engine.stop()

    engine.script = die
    await rig.routes(replica(0, engine.port), replica(1, other.port))
    assert (await rig.ask(chat()))[0] == 200


async def test_a_request_that_kills_engines_kills_two_at_most(rig, engine, other):
    engine.says(hang_up=True)
    other.says(hang_up=True)
    async with StubEngine() as third:
        third.says(hang_up=True)
        await rig.routes(replica(0, engine.port), replica(1, other.port), replica(2, third.port))
        status, _, body = await rig.ask(chat())
        assert (status, _error(body)["code"]) == (502, "engine_died")
        assert len(engine.calls) + len(other.calls) + len(third.calls) == 2


LOADING = (
    b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 79\r\n\r\n"
    b'{"error":{"message":"Loading model","type":"unavailable_error","code":503}}    '
)


async def test_an_engine_that_loads_is_passed_over(rig, engine, other):
    engine.says(LOADING)
    await rig.routes(replica(0, engine.port), replica(1, other.port))
    assert [(await rig.ask(chat()))[0] for _ in range(3)] == [200] * 3
    assert len(engine.calls) == 1


async def test_when_all_engines_load_the_client_is_told_to_come_back(rig, engine):
    engine.says(LOADING)
    await rig.routes(replica(0, engine.port))
    status, fields, body = await rig.ask(chat())
    assert (status, _error(body)["code"], fields[b"retry-after"]) == (503, "engine_loading", b"2")


async def test_an_engine_that_does_not_know_our_key_is_not_the_clients_fault(rig, engine):
    engine.says(b"HTTP/1.1 401 Unauthorized\r\nContent-Length: 0\r\n\r\n")
    await rig.routes(replica(0, engine.port))
    status, _, body = await rig.ask(chat())
    assert (status, _error(body)["code"]) == (502, "engine_refused_key")


async def test_no_engine_at_all_is_a_502_that_names_the_model_and_no_node(rig, engine):
    await rig.routes(replica(0, engine.port))
    await engine.stop()
    status, _, body = await rig.ask(chat())
    assert (status, _error(body)["code"]) == (502, "engine_unreachable")
    assert b"node" not in body
    assert b"127.0.0.1" not in body


async def test_nothing_is_tried_again_once_the_client_has_a_byte(rig, engine, other):
    engine.says(STREAM, hang_up=True)
    other.says(STREAM, hang_up=True)
    await rig.routes(replica(0, engine.port), replica(1, other.port))
    wire = await rig.connect()
    wire.send(chat())
    assert (await wire.rest()).count(b"HTTP/1.1") == 1
    assert len(engine.calls) + len(other.calls) == 1


async def test_an_engines_host_that_is_silent_costs_one_second_and_no_request(rig, other):
    """A host that is off refuses nothing: here a socket whose queue is full, to which the kernel does not answer."""
    with socket.socket() as dead, socket.socket() as filler, socket.socket() as second:
        dead.bind(("127.0.0.1", 0))
        dead.listen(0)
        for one in (filler, second):
            one.setblocking(False)
            one.connect_ex(dead.getsockname())
        await rig.routes(replica(0, dead.getsockname()[1]), replica(1, other.port))
        began = time.monotonic()
        assert (await rig.ask(chat()))[0] == 200
        assert 0.9 < time.monotonic() - began < 2.5
        began = time.monotonic()
        assert (await rig.ask(chat()))[0] == 200
        assert time.monotonic() - began < 0.4


async def _hang(call: Call) -> None:
    await call.left()


async def test_a_request_that_a_hanging_engine_has_goes_elsewhere_when_the_engine_is_withdrawn(rig, engine, other):
    """A stopped process keeps its connections: only the control plane knows that no answer will come."""
    engine.script = _hang
    await rig.routes(replica(0, engine.port))
    wire = await rig.connect()
    wire.send(chat())
    await engine.seen.get()
    await rig.routes(replica(1, other.port), seq=2)
    assert (await wire.reply())[0] == 200
    async with asyncio.timeout(5):
        await engine.ended.get()
    assert len(other.calls) == 1
    wire.close()


async def test_another_launch_of_the_same_replica_is_elsewhere(rig, engine, other):
    engine.script = _hang
    await rig.routes(replica(0, engine.port))
    wire = await rig.connect()
    wire.send(chat())
    await engine.seen.get()
    await rig.routes(replica(0, other.port, launch=2), seq=2)
    assert (await wire.reply())[0] == 200
    wire.close()


async def test_what_nobody_else_can_take_stays_with_its_engine_until_somebody_can(rig, engine, other):
    """A model that is scaled down has time to end its requests; a later table may bring another replica."""
    engine.script = _hang
    await rig.routes(replica(0, engine.port))
    wire = await rig.connect()
    wire.send(chat())
    await engine.seen.get()
    await rig.routes(seq=2)
    assert engine.ended.empty()
    await rig.routes(replica(1, other.port), seq=3)
    assert (await wire.reply())[0] == 200
    wire.close()


async def test_an_answer_that_has_begun_is_left_to_the_engine_that_was_withdrawn(rig, engine, other):
    more = asyncio.Event()

    async def script(call: Call) -> None:
        await call.say(STREAM + chunk(b"data: one\n\n"))
        await more.wait()
        await call.say(b"0\r\n\r\n")

    engine.script = script
    await rig.routes(replica(0, engine.port))
    wire = await rig.connect()
    wire.send(chat())
    await wire.until(b"data: one\n\n")
    await rig.routes(replica(1, other.port), seq=2)
    more.set()
    await wire.until(b"0\r\n\r\n")
    assert other.calls == []
    wire.close()


async def test_an_engine_that_is_reached_at_another_address_now_keeps_what_it_has(rig, engine, other):
    async def script(call: Call) -> None:
        await moved.wait()
        await call.say(OK)

    moved = asyncio.Event()
    engine.script = script
    await rig.routes(replica(0, engine.port))
    wire = await rig.connect()
    wire.send(chat())
    await engine.seen.get()
    await rig.routes(replica(0, other.port), seq=2)
    moved.set()
    assert (await wire.reply())[0] == 200
    assert other.calls == []
    wire.close()


async def test_a_request_is_moved_six_times_at_most(rig, engine):
    engine.script = _hang
    await rig.routes(replica(0, engine.port))
    wire = await rig.connect()
    wire.send(chat())
    for launch in range(2, TRIES + 1):
        await engine.seen.get()
        await rig.routes(replica(0, engine.port, launch=launch), seq=launch)
    last = await engine.seen.get()
    engine.says(OK)
    await rig.routes(replica(0, engine.port, launch=99), seq=99)
    assert (await rig.ask(chat()))[0] == 200  # had the other been moved, it would have come before this one
    assert len(engine.calls) == TRIES + 1
    await last.say(OK)
    assert (await wire.reply())[0] == 200
    wire.close()


async def test_an_engine_that_is_withdrawn_while_it_is_called_is_not_asked(rig, engine, other, monkeypatch):
    connect, called, go = Upstream.connect, asyncio.Event(), asyncio.Event()

    async def slow(upstream: Upstream) -> EngineConnection:
        connection = await connect(upstream)
        if upstream.replica.port == engine.port:
            called.set()
            await go.wait()
        return connection

    monkeypatch.setattr(Upstream, "connect", slow)
    await rig.routes(replica(0, engine.port))
    wire = await rig.connect()
    wire.send(chat())
    await called.wait()
    await rig.routes(replica(1, other.port), seq=2)
    go.set()
    assert (await wire.reply())[0] == 200
    assert (engine.calls, len(other.calls)) == ([], 1)
    wire.close()
