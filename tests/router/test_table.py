"""The route table changes while requests run."""

import asyncio

import msgspec

from llmgw.core.facts import Secret
from tests.router.rig import STREAM, Call, chat, chunk, replica


def _error(body: bytes) -> dict[str, object]:
    return msgspec.json.decode(body)["error"]


async def test_another_launch_is_another_engine_with_its_own_key(rig, engine):
    await rig.routes(replica(0, engine.port))
    await rig.ask(chat())
    await rig.routes(replica(0, engine.port, launch=2, key=Secret("second-key")), seq=2)
    await rig.ask(chat())
    assert engine.connections == 2
    assert b"Authorization: Bearer second-key\r\n" in engine.calls[1]


async def test_an_engine_that_leaves_the_table_finishes_what_it_does(rig, engine, other):
    arrived = asyncio.Event()

    async def script(call: Call) -> None:
        await call.say(STREAM + chunk(b"data: one\n\n"))
        await arrived.wait()
        await call.say(b"0\r\n\r\n")

    engine.script = script
    await rig.routes(replica(0, engine.port))
    wire = await rig.connect()
    wire.send(chat())
    await wire.until(b"data: one\n\n")
    await rig.routes(replica(1, other.port), seq=2)
    assert (await rig.ask(chat()))[0] == 200
    assert len(other.calls) == 1
    arrived.set()
    await wire.until(b"0\r\n\r\n")
    wire.close()
    async with asyncio.timeout(1):
        await engine.ended.get()


async def test_a_model_is_found_by_its_alias_and_the_body_goes_as_it_came(rig, engine):
    await rig.routes(replica(0, engine.port))
    body = b' { "x" : [1, 2.50] , "model":"vendor/M:latest"\n}'
    assert (await rig.ask(chat(body)))[0] == 200
    assert engine.calls[0].endswith(b"\r\n\r\n" + body)


async def test_engines_out_of_reach_are_named_to_a_local_client_only_by_node(rig):
    await rig.routes(replica(3, 21000, machine="b" * 32), not_now=2, never=1)
    status, fields, body = await rig.ask(chat())
    error = _error(body)
    assert status == 503
    assert error == {
        "message": "model m: engines on node03 listen on loopback; set exposure: direct or run a router there",
        "type": "service_unavailable",
        "param": None,
        "code": "no_replica",
        "not_now": 2,
        "never": 1,
    }
    assert int(fields[b"retry-after"]) > 0


async def test_no_replica_is_a_503_with_counts(rig):
    await rig.routes(not_now=1, never=2)
    status, fields, body = await rig.ask(chat())
    assert (status, _error(body)["code"], _error(body)["not_now"], _error(body)["never"]) == (503, "no_replica", 1, 2)
    assert b"retry-after" in fields
