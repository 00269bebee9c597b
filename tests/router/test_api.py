"""The paths of the API, and what is said when a request cannot be used."""

import msgspec
import pytest

from llmgw.core.views import ModelState
from tests.router.rig import Rig, chat, replica


async def _ready(rig, engine):
    await rig.routes(replica(0, engine.port))


def _error(body: bytes) -> dict[str, object]:
    return msgspec.json.decode(body)["error"]


@pytest.mark.parametrize("path", [b"/v1/chat/completions", b"/v1/completions", b"/v1/embeddings"])
async def test_each_path_of_the_engines_is_asked_of_an_engine(rig, engine, path):
    await _ready(rig, engine)
    assert (await rig.ask(chat(path=path)))[0] == 200
    assert engine.calls[0].startswith(b"POST %b HTTP/1.1\r\n" % path)


async def test_models_are_listed_and_shown_by_name_and_alias(rig, engine):
    await _ready(rig, engine)
    _, _, body = await rig.get("/v1/models")
    card = {"id": "m", "object": "model", "created": 1700000000, "owned_by": "llmgw", "aliases": ["vendor/M:latest"]}
    assert msgspec.json.decode(body) == {"object": "list", "data": [card]}
    for name in ("m", "vendor/M:latest", "vendor%2FM%3Alatest"):
        status, _, body = await rig.get(f"/v1/models/{name}")
        assert (status, msgspec.json.decode(body)) == (200, card)
    assert (await rig.get("/v1/models/nope"))[0] == 404
    assert (await rig.get("/v1/models/%ff%00"))[0] == 404


BAD = {
    "not json": (b"hello", 400, "bad_json", None),
    "empty": (b"", 400, "bad_json", None),
    "half": (b'{"model":"m"', 400, "bad_json", None),
    "more behind": (b'{"model":"m"} x', 400, "bad_json", None),
    "too deep": (b'{"model":"m","x":' + b"[" * 100_000, 400, "bad_json", None),
    "a list": (b"[]", 400, "bad_request", None),
    "no model": (b'{"stream":true}', 400, "bad_request", "model"),
    "model null": (b'{"model":null}', 400, "bad_request", "model"),
    "model a number": (b'{"model":7}', 400, "bad_request", "model"),
    "stream a word": (b'{"model":"m","stream":"yes"}', 400, "bad_request", "stream"),
    "model not utf-8": (b'{"model":"\xff"}', 400, "bad_json", None),
    "model unknown": (b'{"model":"gpt-4"}', 404, "model_not_found", "model"),
    "model empty": (b'{"model":""}', 404, "model_not_found", "model"),
}


@pytest.mark.parametrize(("body", "status", "code", "param"), BAD.values(), ids=BAD.keys())
async def test_a_body_that_cannot_be_used_is_said_to_be_in_openais_shape(rig, engine, body, status, code, param):
    await _ready(rig, engine)
    wire = await rig.connect()
    wire.send(chat(body))
    got, fields, said = await wire.reply()
    assert (got, _error(said)["code"], _error(said)["param"]) == (status, code, param)
    assert _error(said)["type"] == "invalid_request_error"
    assert fields[b"content-type"] == b"application/json"
    assert engine.calls == []
    wire.send(chat())
    assert (await wire.reply())[0] == 200


async def test_an_unknown_model_is_named_escaped_and_shortened(rig, engine):
    await _ready(rig, engine)
    _, _, said = await rig.ask(chat(msgspec.json.encode({"model": '"\x1b[31m\r\n' + "x" * 500})))
    assert b"\x1b" not in said
    assert b"\r" not in said
    assert len(said) < 500
    assert str(_error(said)["message"]).startswith('the model `"\x1b[31m\r\nxxx')


async def test_other_paths_are_404_and_other_methods_405_with_those_allowed(rig, engine):
    await _ready(rig, engine)
    assert _error((await rig.get("/v1/nope"))[2])["code"] == "unknown_url"
    assert (await rig.ask(chat(path=b"/props")))[0] == 404
    status, fields, said = await rig.get("/v1/chat/completions")
    assert (status, fields[b"allow"], _error(said)["code"]) == (405, b"POST, OPTIONS", "method_not_allowed")
    status, fields, _ = await rig.ask(chat(path=b"/v1/models"))
    assert (status, fields[b"allow"]) == (405, b"GET, HEAD, OPTIONS")
    status, fields, _ = await rig.ask(b"OPTIONS /v1/models HTTP/1.1\r\nHost: r\r\n\r\n")
    assert (status, fields[b"allow"]) == (204, b"GET, HEAD, OPTIONS")
    assert (await rig.ask(b"DELETE /v1/models/m HTTP/1.1\r\nHost: r\r\n\r\n"))[0] == 405
    assert engine.calls == []


async def test_a_body_over_the_configured_size_is_a_413_that_the_client_can_read(tmp_path, engine):
    """The client is still sending when it is told; it must see the answer and not a reset."""
    async with Rig(tmp_path, max_body=1024) as rig:
        await _ready(rig, engine)
        wire = await rig.connect()
        wire.send(chat(b"a" * 300_000))
        status, _, said = await wire.reply()
        assert (status, _error(said)["code"]) == (413, "body_too_large")
        assert engine.calls == []


async def test_a_router_that_never_heard_of_routes_says_so(rig):
    for answer in (await rig.get("/v1/models"), await rig.ask(chat())):
        assert (answer[0], _error(answer[2])["code"]) == (503, "no_routes")
        assert b"retry-after" in answer[1]
    status, _, said = await rig.get("/health")
    assert (status, msgspec.json.decode(said)["status"]) == (503, "no_routes")


async def test_health_is_the_routers_own(rig, engine):
    await _ready(rig, engine)
    status, _, said = await rig.get("/health")
    assert status == 200
    assert msgspec.json.decode(said) == {
        "status": "ok",
        "routes": "live",
        "revision": "1.1",
        "in_flight": 0,
        "drain": 0.0,
    }
    assert engine.calls == []


async def test_the_access_log_counts_and_shows_no_text_of_anybody(tmp_path, engine):
    async with Rig(tmp_path) as rig:
        await _ready(rig, engine)
        await rig.ask(chat(b'{"model":"m","messages":"a secret prompt"}', b"Authorization: Bearer sk-secret"))
        await rig.get("/v1/secret-path")
        await rig.ask(b"GET /secret\n\n")
    lines = rig.access()
    assert not [line for line in lines if "secret" in line or "engine-key" in line]
    mine = next(line for line in lines if "/v1/chat/completions" in line)
    for word in ("model=m", "replica=m/0", "status=200", "end=done", "in=42", "out=2", "tries=1", "client=127.0.0.1"):
        assert f" {word} " in mine + " "
    assert [line for line in lines if "refused status=400 code=bad_line_end" in line]


ORIGIN, JSON, TEXT = b"Origin: http://evil", b"Content-Type: application/json", b"Content-Type: text/plain"
PAGES = {
    "text": ((ORIGIN, TEXT), 415),
    "no type": ((ORIGIN,), 415),
    "a page without an origin": ((b"Origin: null", TEXT), 415),
    "two types": ((ORIGIN, JSON, TEXT), 415),
    "json within another type": ((ORIGIN, b"Content-Type: text/plain; application/json"), 415),
    "json": ((ORIGIN, JSON), 200),
    "json with a charset": ((ORIGIN, b"content-type: Application/JSON ; charset=utf-8"), 200),
    "text of no page": ((TEXT,), 200),
    "no type of no page": ((), 200),
}


@pytest.mark.parametrize(("fields", "status"), PAGES.values(), ids=PAGES.keys())
async def test_a_web_page_sends_json_or_nothing(rig, engine, fields, status):
    """Before it sends JSON to another site a browser asks whether it may, and this one never may."""
    await _ready(rig, engine)
    got, _, said = await rig.ask(chat(b'{"model":"m"}', *fields))
    assert (got, len(engine.calls)) == (status, int(status == 200))
    if status == 415:
        assert _error(said)["code"] == "unsupported_media_type"
        assert "application/json" in str(_error(said)["message"])


async def test_no_page_is_ever_given_leave(rig, engine):
    await _ready(rig, engine)
    ask = b"OPTIONS /v1/chat/completions HTTP/1.1\r\nHost: r\r\nOrigin: http://evil\r\n"
    status, fields, _ = await rig.ask(ask + b"Access-Control-Request-Method: POST\r\n\r\n")
    assert status == 204
    assert not [name for name in fields if name.startswith(b"access-control-")]


async def test_a_model_scaled_to_0_is_said_to_be(rig):
    await rig.routes(state=ModelState.STOPPED)
    status, _, said = await rig.ask(chat())
    assert (status, _error(said)["code"], _error(said)["message"]) == (503, "no_replica", "model m is scaled to 0")


@pytest.mark.parametrize("chunked", [False, True], ids=["length", "chunked"])
async def test_how_large_a_body_may_be_is_said_as_people_read_it(rig, chunked):
    wire = await rig.connect()
    framing = b"Transfer-Encoding: chunked\r\n\r\n2000001\r\n" if chunked else b"Content-Length: 33554433\r\n\r\n"
    wire.send(b"POST /v1/chat/completions HTTP/1.1\r\nHost: r\r\nx-request-id: mine\r\n" + framing)
    status, fields, said = await wire.reply()
    assert (status, _error(said)["message"]) == (413, "the body is over 32 MiB")
    assert fields[b"x-request-id"] == b"mine"


async def test_a_refused_request_has_an_id_that_the_log_has_too(tmp_path):
    async with Rig(tmp_path) as rig:
        ids = [
            (await rig.ask(b"GET /v1/models HTTP/1.1\r\nHost: r\r\n" + bad + b"\r\n"))[1][b"x-request-id"].decode()
            for bad in (b"X y: z\r\n", b"Host: r\r\n", b"Content-Length: x\r\n", b"X: " + b"a" * 9000 + b"\r\n")
        ]
    assert len(set(ids)) == 4
    for one in ids:
        assert [line for line in rig.access() if f" id={one} " in line and " refused " in line]
