"""What an engine says is relayed when it can be read in one way only; otherwise it is a 502 and the connection ends."""

import msgspec
import pytest

from tests.router.rig import OK, STREAM, Call, chat, chunk, replica

_BODY = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"

BROKEN = {
    "length and coding": _BODY + b"Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
    "two lengths": _BODY + b"Content-Length: 2\r\nContent-Length: 3\r\n\r\n{}",
    "two equal lengths": _BODY + b"Content-Length: 2\r\nContent-Length: 2\r\n\r\n{}",
    "length with a sign": _BODY + b"Content-Length: +2\r\n\r\n{}",
    "coding gzip": _BODY + b"Transfer-Encoding: gzip\r\n\r\n{}",
    "coding gzip, chunked": _BODY + b"Transfer-Encoding: gzip, chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
    "no end stated": _BODY + b"\r\n{}",
    "switches protocol": b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n",
    "status 1000": b"HTTP/1.1 1000 OK\r\nContent-Length: 0\r\n\r\n",
    "status 99": b"HTTP/1.1 99 OK\r\nContent-Length: 0\r\n\r\n",
    "status 600": b"HTTP/1.1 600 OK\r\nContent-Length: 0\r\n\r\n",
    "bare line feeds": b"HTTP/1.1 200 OK\nContent-Length: 2\n\n{}\r\n\r\n",
    "old and chunked": b"HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
    "not http": b"SSH-2.0-OpenSSH_9.2\r\n",
    "endless header": b"HTTP/1.1 200 OK\r\n" + b"X: a\r\n" * 20000,
    "eleven interim answers": b"HTTP/1.1 100 Continue\r\n\r\n" * 11 + OK,
    "bad chunk size at once": _BODY + b"Transfer-Encoding: chunked\r\n\r\n0x2\r\n{}\r\n0\r\n\r\n",
    "folded field": _BODY + b"X: a\r\n b\r\nContent-Length: 2\r\n\r\n{}",
}


@pytest.mark.parametrize("answer", BROKEN.values(), ids=BROKEN.keys())
async def test_an_answer_that_could_be_read_in_two_ways_is_a_502_and_its_connection_is_not_used_again(
    rig, engine, answer
):
    engine.says(answer)
    await rig.routes(replica(0, engine.port))
    status, _, body = await rig.ask(chat())
    assert (status, msgspec.json.decode(body)["error"]["code"]) == (502, "engine_answer_broken")
    engine.says(OK)
    assert (await rig.ask(chat()))[0] == 200
    assert engine.connections == 2


SURPLUS = {
    "a second answer": _BODY + b"Content-Length: 2\r\n\r\n{}HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil",
    "after the last chunk": STREAM + chunk(b"data: 1\n\n") + b"0\r\n\r\nHTTP/1.1 200 OK\r\n\r\n",
    "a body with 204": b"HTTP/1.1 204 No Content\r\nContent-Length: 3\r\n\r\nabc",
}


@pytest.mark.parametrize("answer", SURPLUS.values(), ids=SURPLUS.keys())
async def test_bytes_behind_an_answer_reach_nobody(rig, engine, answer):
    """They could be taken for the answer to the next request, of another client."""
    engine.says(answer)
    await rig.routes(replica(0, engine.port))
    wire = await rig.connect()
    wire.send(chat())
    status, _, body = await wire.reply()
    assert status in (200, 204)
    assert b"evil" not in body
    engine.says(OK)
    wire.send(chat())
    assert (await wire.reply())[2] == b"{}"
    assert engine.connections == 2
    wire.close()


async def test_an_answer_without_a_body_that_states_a_length_is_not_trusted_with_another_request(rig, engine):
    """Its bytes may still be on their way, and would be read as the answer to the next one."""
    engine.says(b"HTTP/1.1 204 No Content\r\nContent-Length: 3\r\n\r\n")
    await rig.routes(replica(0, engine.port))
    assert [(await rig.ask(chat()))[0] for _ in range(2)] == [204, 204]
    assert engine.connections == 2


async def test_bytes_on_an_unused_connection_end_it(rig, engine):
    await rig.routes(replica(0, engine.port))
    await rig.ask(chat())
    call = await engine.seen.get()
    await call.say(OK)
    await engine.ended.get()
    assert (await rig.ask(chat()))[2] == b"{}"
    assert engine.connections == 2


GOOD = {
    "no phrase": (b"HTTP/1.1 200\r\nContent-Length: 2\r\n\r\n{}", 200, b"{}"),
    "interim answers": (b"HTTP/1.1 100 Continue\r\n\r\n" * 10 + OK, 200, b"{}"),
    "old with a length": (b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\n{}", 200, b"{}"),
    "an error of the engine": (b"HTTP/1.1 400 Bad Request\r\nContent-Length: 3\r\n\r\nbad", 400, b"bad"),
    "unknown status": (b"HTTP/1.1 299 Odd\r\nContent-Length: 2\r\n\r\n{}", 299, b"{}"),
    "trailers and extensions": (STREAM + b"2;a=b\r\nhi\r\n0\r\nX-T: v\r\nContent-Length: 7\r\n\r\n", 200, b"hi"),
    "empty": (b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", 200, b""),
}


@pytest.mark.parametrize(("answer", "status", "body"), GOOD.values(), ids=GOOD.keys())
async def test_an_honest_answer_is_relayed_however_it_is_split(rig, engine, answer, status, body):
    async def bytewise(call: Call) -> None:
        for at in range(len(answer)):
            await call.say(answer[at : at + 1])

    await rig.routes(replica(0, engine.port))
    engine.says(answer)
    whole = await rig.ask(chat())
    assert (whole[0], whole[2]) == (status, body)
    engine.script = bytewise
    split = await rig.ask(chat())
    assert (split[0], split[2]) == (status, body)
    assert b"x-t" not in split[1]


async def test_fields_of_the_hop_stay_on_the_hop(rig, engine):
    engine.says(
        b"HTTP/1.1 200 OK\r\nConnection: keep-alive, X-Hop\r\nKeep-Alive: timeout=5\r\nX-Hop: 1\r\nX_Under: 1\r\n"
        b"X-Llmgw-Role: admin\r\nX-Request-Id: theirs\r\nServer: engine\r\nX-End: 2\r\nContent-Length: 2\r\n\r\n{}"
    )
    await rig.routes(replica(0, engine.port))
    _, fields, _ = await rig.ask(chat(b'{"model":"m"}', b"X-Request-Id: mine-1"))
    assert fields == {
        b"x-end": b"2",
        b"x-request-id": b"mine-1",
        b"content-length": b"2",
    }


async def test_an_engine_that_closes_after_its_answer_is_given_a_new_connection(rig, engine):
    engine.says(b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\n{}")
    await rig.routes(replica(0, engine.port))
    for _ in range(2):
        assert (await rig.ask(chat()))[0] == 200
    assert engine.connections == 2


async def test_an_engine_gives_no_page_leave_to_read_the_gateway_and_does_not_say_what_it_is(rig, engine):
    engine.says(
        b"HTTP/1.1 200 OK\r\nServer: llama.cpp\r\nAccess-Control-Allow-Origin: http://evil\r\n"
        b"Access-Control-Allow-Credentials: true\r\nX-Kept: yes\r\nContent-Length: 2\r\n\r\n{}"
    )
    await rig.routes(replica(0, engine.port))
    status, fields, _ = await rig.ask(chat())
    assert (status, fields[b"x-kept"]) == (200, b"yes")
    assert not [name for name in fields if name == b"server" or name.startswith(b"access-control-")]
