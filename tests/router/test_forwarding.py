"""What an engine is sent is one request, rebuilt, whatever the client's looked like."""

import httptools
import pytest

from tests.router.cases import CASES
from tests.router.rig import Rig, chat, replica

_BODY = b'{"model":"m"}'
_HEAD = b"POST /v1/chat/completions HTTP/1.1\r\nHost: gateway\r\n"


class _Requests:
    """Counts requests with a parser that is not the router's way of reading."""

    def __init__(self) -> None:
        self.urls: list[bytes] = []
        self.headers: list[tuple[bytes, bytes]] = []
        self.bodies: list[bytes] = []
        self.done = 0

    def on_url(self, url: bytes) -> None:
        self.urls.append(url)
        self.bodies.append(b"")

    def on_header(self, name: bytes, value: bytes) -> None:
        self.headers.append((name.lower(), value))

    def on_body(self, body: bytes) -> None:
        self.bodies[-1] += body

    def on_message_complete(self) -> None:
        self.done += 1


def _parse(raw: bytes) -> _Requests:
    found = _Requests()
    httptools.HttpRequestParser(found).feed_data(raw)
    return found


ODD = {
    "plain": chat(_BODY),
    "chunked": _HEAD
    + b"Transfer-Encoding: chunked\r\n\r\n4\r\n"
    + _BODY[:4]
    + b"\r\n9\r\n"
    + _BODY[4:]
    + b"\r\n0\r\n\r\n",
    "trailers": _HEAD
    + b"Transfer-Encoding: chunked\r\n\r\nd\r\n"
    + _BODY
    + b"\r\n0\r\nContent-Length: 3\r\nX: y\r\n\r\n",
    "leading zeros": _HEAD + b"Content-Length: 0013\r\n\r\n" + _BODY,
    "expects": _HEAD + b"Expect: 100-continue\r\nContent-Length: 13\r\n\r\n" + _BODY,
    "absolute target": _HEAD.replace(b" /v1/chat/completions", b" http://other/v1/chat/completions?x=1")
    + b"Content-Length: 13\r\n\r\n"
    + _BODY,
    "old": b"POST /v1/chat/completions HTTP/1.0\r\nContent-Length: 13\r\n\r\n" + _BODY,
    "newer": b"POST /v1/chat/completions HTTP/1.9\r\nHost: gateway\r\nContent-Length: 13\r\n\r\n" + _BODY,
    "names hop": _HEAD + b"Connection: close, X-Hop, Content-Type\r\nX-Hop: 1\r\nContent-Length: 13\r\n\r\n" + _BODY,
}


@pytest.mark.parametrize("raw", ODD.values(), ids=ODD.keys())
async def test_an_odd_but_legal_request_reaches_the_engine_as_one_plain_request(rig, engine, raw):
    await rig.routes(replica(0, engine.port))
    wire = await rig.connect()
    wire.send(raw)
    await wire.until(b"{}")
    found = _parse(engine.calls[0])
    assert (found.done, found.urls, found.bodies) == (1, [b"/v1/chat/completions"], [_BODY])
    names = [name for name, _ in found.headers]
    assert names.count(b"host") == names.count(b"content-length") == 1
    assert dict(found.headers)[b"host"] == b"127.0.0.1:%d" % engine.port
    assert not {b"transfer-encoding", b"expect", b"connection", b"x-hop", b"te", b"trailer"} & set(names)


async def test_what_is_for_the_router_or_the_hop_stays_here_and_the_rest_goes_on(rig, engine):
    await rig.routes(replica(0, engine.port))
    dropped = [
        b"Authorization: Bearer clients-own",
        b"X-Api-Key: clients-own",
        b"Cookie: a=b",
        b"Proxy-Authorization: x",
        b"Proxy-Connection: x",
        b"TE: trailers",
        b"Trailer: X-T",
        b"Keep-Alive: 1",
        b"X-Llmgw-Role: admin",
        b"X_Under: 1",
        b"Connection: keep-alive, X-Listed",
        b"X-Listed: 1",
        b"X-Request-Id: bad id",
    ]
    kept = [b"Content-Type: application/json", b"Accept: */*", b"Traceparent: 00-1-2-01", b"User-Agent: test/1"]
    await rig.ask(chat(_BODY, *dropped, *kept))
    headers = _parse(engine.calls[0]).headers
    assert [v for n, v in headers if n == b"authorization"] == [b"Bearer engine-key"]
    allowed = {b"host", b"authorization", b"x-request-id", b"content-length"}
    allowed |= {line.split(b":")[0].lower() for line in kept}
    assert {name for name, _ in headers} == allowed
    assert b"clients-own" not in engine.calls[0]
    assert b"bad id" not in engine.calls[0]


async def test_the_id_of_a_request_goes_to_the_engine_and_back(rig, engine):
    await rig.routes(replica(0, engine.port))
    _, fields, _ = await rig.ask(chat(_BODY, b"X-Request-Id: trace-7"))
    assert fields[b"x-request-id"] == b"trace-7"
    assert dict(_parse(engine.calls[0]).headers)[b"x-request-id"] == b"trace-7"
    _, first, _ = await rig.ask(chat())
    _, second, _ = await rig.ask(chat(_BODY, b"X-Request-Id: no\tgood"))
    assert len({first[b"x-request-id"], second[b"x-request-id"], b"trace-7"}) == 3


@pytest.mark.parametrize(("name", "raw", "expected"), CASES, ids=[case[0] for case in CASES])
async def test_no_hostile_request_reaches_an_engine_over_a_real_socket(rig, engine, name, raw, expected):
    """The same requests, aimed at a path that goes to an engine: those refused leave no trace there."""
    await rig.routes(replica(0, engine.port))
    wire = await rig.connect()
    wire.send(raw.replace(b"/v1/x ", b"/v1/chat/completions "))
    if expected not in (0, 100, 200, 404):
        status = int((await wire.until(b"\r\n")).split(b" ")[1])
        assert status == (200 if expected < 0 else expected)
        await wire.rest()
    assert (await rig.ask(chat()))[0] == 200
    assert [_parse(call).done for call in engine.calls] == [1]


async def test_the_next_request_of_a_connection_is_its_own(tmp_path, engine):
    """Two clients over one kept engine connection: each gets its own answer."""
    async with Rig(tmp_path) as rig:
        await rig.routes(replica(0, engine.port))

        async def echo(call):
            body = call.raw.partition(b"\r\n\r\n")[2]
            await call.say(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body))

        engine.script = echo
        for n in range(5):
            body = b'{"model":"m","n":%d}' % n
            assert (await rig.ask(chat(body)))[2] == body
        assert engine.connections == 1
