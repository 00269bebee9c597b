"""A client's connection keeps to its bounds: sizes, times, order."""

import pytest

from llmgw.router import answers
from llmgw.router.limits import Limits
from tests.router.cases import CHUNKED, G, P
from tests.router.memory import Client, responses

GET = G + b"\r\n"


# --- order ------------------------------------------------------------------------------------------------------


def test_answers_come_in_the_order_of_requests_one_at_a_time():
    client = Client()
    client.handler.hold = True
    client.feed(b"".join(b"GET /%d HTTP/1.1\r\nHost: r\r\n\r\n" % n for n in range(3)))
    for n in range(3):
        assert [r[1] for r in client.handler.requests] == [b"/%d" % i for i in range(n + 1)]
        client.handler.held[n].whole(answers.Answer(200, b"%d" % n))
    assert [body for _, _, body in responses(bytes(client.transport.written))] == [b"0", b"1", b"2"]


async def test_what_comes_ahead_is_bounded_and_reading_pauses_beyond():
    client = Client(limits=Limits(ahead=1000))
    client.handler.hold = True
    client.feed(GET, GET * 20)
    assert client.transport.reading
    client.feed(GET * 20)
    assert not client.transport.reading
    assert len(client.handler.requests) == 1
    client.handler.hold = False
    client.handler.held[0].whole(answers.Answer(200, b""))
    await _turns(5)
    assert client.transport.reading
    assert len(client.handler.requests) == 41


async def test_a_flood_of_small_requests_lets_others_have_their_turn():
    client = Client().feed(GET * 40)
    assert len(client.handler.requests) == 16
    await _turns(3)
    assert len(client.handler.requests) == 40


def test_a_client_that_reads_no_answers_gets_no_more_requests_taken():
    client = Client()
    client.connection.pause_writing()
    client.feed(GET * 3)
    assert client.handler.requests == []
    client.connection.resume_writing()
    assert len(client.handler.requests) == 3


def test_an_old_client_gets_one_answer_and_the_end():
    client = Client().feed(b"GET /v1/models HTTP/1.0\r\nConnection: keep-alive\r\n\r\n")
    assert responses(bytes(client.transport.written))[0][1][b"connection"] == b"close"
    assert client.transport.ended


def test_head_is_answered_without_a_body_and_the_next_answer_follows():
    client = Client().feed(b"HEAD /v1/models HTTP/1.1\r\nHost: r\r\n\r\n" + GET)
    head, _, rest = bytes(client.transport.written).partition(b"\r\n\r\n")
    assert b"Content-Length: 2" in head
    assert rest.startswith(b"HTTP/1.1 200")


# --- sizes ------------------------------------------------------------------------------------------------------


def test_a_body_that_says_it_is_too_large_is_refused_before_it_comes():
    client = Client(limits=Limits(max_body=10)).feed(P + b"Content-Length: 11\r\n\r\n")
    assert (client.statuses, client.handler.requests) == ([413], [])


def test_a_chunked_body_is_refused_when_it_grows_too_large():
    client = Client(limits=Limits(max_body=10)).feed(P + CHUNKED + b"6\r\naaaaaa\r\n")
    assert client.statuses == []
    client.feed(b"6\r\n")
    assert (client.statuses, client.handler.requests) == ([413], [])


def test_a_body_of_just_the_largest_size_passes_both_ways():
    client = Client(limits=Limits(max_body=10)).feed(
        P + b"Content-Length: 10\r\n\r\n" + b"a" * 10, P + CHUNKED + b"a\r\n" + b"a" * 10 + b"\r\n0\r\n\r\n"
    )
    assert client.statuses == [200, 200]


def test_all_bodies_together_are_bounded_and_room_is_given_back():
    client = Client(limits=Limits(bodies=15))
    second = Client(limits=client.limits)
    second.connection.shared = second.shared = client.shared
    client.feed(P + b"Content-Length: 20\r\n\r\n" + b"a" * 10)
    second.feed(P + b"Content-Length: 20\r\n\r\n" + b"a" * 10)
    assert second.statuses == [503]
    assert b"retry-after" in responses(bytes(second.transport.written))[0][1]
    client.connection.connection_lost(None)
    assert client.shared.held == 0


def test_a_body_that_came_at_once_counts_until_it_is_answered():
    first = Client(limits=Limits(bodies=15))
    second = Client(limits=first.limits)
    second.connection.shared = second.shared = first.shared
    first.handler.hold = True
    post = P + b"Content-Length: 10\r\n\r\n" + b"a" * 10
    first.feed(post)
    second.feed(post)
    assert second.statuses == [503]
    first.handler.held[0].whole(answers.Answer(200, b""))
    assert first.shared.held == 0


def test_a_refused_client_is_listened_to_for_a_while_but_not_for_ever():
    client = Client(limits=Limits(linger=100)).feed(b"\x16\x03\x01")
    assert client.transport.ended
    client.feed(b"a" * 100)
    assert not client.transport.closed
    client.feed(b"a")
    assert client.transport.aborted


def test_more_connections_than_the_limit_are_told_so():
    first = Client(limits=Limits(connections=1))
    second = Client(limits=first.limits)
    second.shared.connections.add(first.connection)
    third = type(second.connection)(second.shared)
    third.connection_made(second.transport)
    assert second.statuses == [503]


# --- times ------------------------------------------------------------------------------------------------------


def test_a_header_must_be_complete_in_time_however_steadily_it_drips():
    client = Client()
    for byte in GET[:12]:
        client.feed(bytes([byte]))
        client.pass_time(1.0)
    assert client.statuses == [408]
    assert client.transport.ended


def test_an_idle_connection_is_closed_without_a_word():
    client = Client().feed(GET)
    written = bytes(client.transport.written)
    client.pass_time(74)
    assert not client.transport.closed
    client.pass_time(2)
    assert client.transport.closed
    assert client.transport.written == written


def test_a_slow_body_is_refused_and_a_steady_one_is_not():
    slow, steady = Client(), Client()
    for client in (slow, steady):
        client.feed(P + b"Content-Length: 100000\r\n\r\n")
    for _ in range(30):
        slow.feed(b"a" * 10)
        steady.feed(b"a" * 2048)
        slow.pass_time(1.0)
        steady.pass_time(1.0)
    assert slow.statuses == [408]
    assert steady.statuses == []


def test_an_answer_that_takes_long_has_no_deadline():
    client = Client()
    client.handler.hold = True
    client.feed(GET)
    client.pass_time(100_000)
    assert not client.transport.closed


def test_a_client_that_leaves_its_answer_unread_is_dropped():
    client = Client()
    client.handler.hold = True
    client.feed(GET)
    client.connection.pause_writing()
    client.pass_time(59)
    assert not client.transport.closed
    client.pass_time(2)
    assert client.transport.aborted


def test_a_slow_reader_of_a_last_answer_gets_it_whole():
    """Closing after an answer must not throw away what the client has not read yet, as long as it reads."""
    client = Client()
    client.transport.unsent = 3000
    client.feed(b"GET / HTTP/1.0\r\n\r\n")
    for unsent in (2000, 1000, 500):
        client.pass_time(59)
        assert not client.transport.closed
        client.transport.unsent = unsent
        client.pass_time(2)
        assert not client.transport.closed
    client.pass_time(61)
    assert client.transport.aborted


def test_a_refused_client_that_never_closes_is_dropped():
    client = Client().feed(b"\x16\x03\x01")
    client.pass_time(3)
    assert client.transport.aborted


@pytest.mark.parametrize("count", [1, 3])
def test_idle_clients_are_left_alone_until_their_time(count):
    clients = [Client() for _ in range(count)]
    for client in clients:
        client.pass_time(10)
        assert not client.transport.closed


async def _turns(count: int) -> None:
    import asyncio

    for _ in range(count):
        await asyncio.sleep(0)
