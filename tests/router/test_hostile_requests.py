"""Requests that could be read in two ways are read in one, or not at all, however their bytes arrive."""

import pytest

from tests.router.cases import ACCEPT, CASES, CHUNKED, MIXED, REQUESTS, WAIT, G, P
from tests.router.memory import Client, responses

_EVERY = 1200


def _outcome(client: Client) -> tuple[object, ...]:
    return client.handler.requests, client.statuses, client.transport.ended


def _offsets(length: int) -> list[int]:
    """All of them, or for the long ones all near both ends and some between."""
    if length <= _EVERY:
        return list(range(1, length))
    return [*range(1, 90), *range(90, length - 60, 4001), *range(length - 60, length)]


@pytest.mark.parametrize(("name", "raw", "expected"), CASES, ids=[case[0] for case in CASES])
def test_a_request_is_read_one_way_however_it_arrives(name, raw, expected):
    whole = Client().feed(raw)
    _check(name, expected, whole)
    assert _outcome(Client().feed(*(raw[i : i + 1] for i in range(len(raw))))) == _outcome(whole)
    for at in _offsets(len(raw)):
        assert _outcome(Client().feed(raw[:at], raw[at:])) == _outcome(whole), f"split at {at}"


def _check(name: str, expected: int, client: Client) -> None:
    requests, statuses, ended = _outcome(client)
    if expected in (ACCEPT, 404):
        # 404 is what the router's paths make of it; the connection reads it as a request and does not decode it.
        assert statuses == [200] * REQUESTS.get(name, 1)
        assert len(requests) == len(statuses)
    elif expected == WAIT:
        assert (requests, statuses, ended) == ([], [], False)
    elif expected == MIXED:
        assert statuses == [200, 200, 400]
        assert len(requests) == 2
    elif expected == 100:
        assert bytes(client.transport.written) == b"HTTP/1.1 100 Continue\r\n\r\n"
    else:
        assert (requests, statuses, ended) == ([], [expected], True)
        assert responses(bytes(client.transport.written))[0][1][b"connection"] == b"close"


@pytest.mark.parametrize(("name", "raw", "expected"), CASES, ids=[case[0] for case in CASES])
def test_after_a_refusal_no_further_byte_is_read_and_none_is_repeated(name, raw, expected):
    client = Client().feed(raw)
    if not client.handler.refusals:
        return
    before = _outcome(client)
    client.feed(G + b"\r\n", P + b"Content-Length: 0\r\n\r\n")
    assert _outcome(client) == before
    assert b"hello" not in client.transport.written
    assert b"smuggled" not in client.transport.written


def test_a_body_without_its_end_times_out_and_is_not_handed_on():
    client = Client().feed(P + CHUNKED + b"0\r\n\r")
    client.pass_time(11)
    assert (client.statuses, client.handler.requests) == ([408], [])


def test_a_body_cut_short_by_the_clients_end_is_refused():
    client = Client().feed(P + b"Content-Length: 5\r\n\r\nhe")
    client.connection.eof_received()
    assert (client.statuses, client.handler.requests) == ([400], [])


def test_bytes_behind_a_closing_request_are_not_a_request():
    client = Client().feed(P + b"Content-Length: 3\r\nConnection: close\r\n\r\nabc" + G + b"\r\n")
    assert len(client.handler.requests) == 1
    assert client.transport.ended


def test_a_trailer_is_no_header():
    client = Client().feed(P + b"X: y\r\n" + CHUNKED + b"5\r\nhello\r\n0\r\nX-T: v\r\nHost: evil\r\n\r\n")
    assert client.handler.requests == [(b"POST", b"/v1/x", [b"x: y\r\n"], b"hello")]


def test_an_unwanted_body_is_answered_before_it_is_sent():
    client = Client().feed(b"POST /unwanted HTTP/1.1\r\nHost: r\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\n")
    assert client.statuses == [200]
    assert client.transport.ended


def test_no_100_is_sent_when_the_body_is_there_already():
    client = Client().feed(P + b"Content-Length: 2\r\nExpect: 100-continue\r\n\r\nhi")
    assert client.statuses == [200]
