"""An engine's connections: which are kept, for how long, and what is made of silence."""

import asyncio
from dataclasses import replace

import pytest

from llmgw.core.routing import Fault
from llmgw.router.limits import Limits
from llmgw.router.table import Table
from llmgw.router.upstream import EngineConnection, Upstream
from tests.router.memory import FakeClock, FakeTransport
from tests.router.rig import HERE, OK, STREAM, chunk, replica, table


class _Asker:
    """Remembers what it is told."""

    def __init__(self) -> None:
        self.told: list[object] = []
        self.wants = True

    def engine_head(self, head, pieces, end):
        self.told.append((head.status, b"".join(pieces), end))
        return self.wants

    def engine_body(self, pieces, end):
        self.told.append((b"".join(pieces), end))

    def engine_lost(self, fault, words):
        self.told.append((fault, words))


class _Transport(FakeTransport):
    def get_extra_info(self, name, default=None):
        return self if name == "socket" else default

    def setsockopt(self, *_: object) -> None:
        pass


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def upstream(clock) -> Upstream:
    return Upstream(replica(0, 21000), Limits(), clock)


def _connect(upstream: Upstream) -> tuple[EngineConnection, _Transport]:
    connection, transport = EngineConnection(upstream), _Transport()
    connection.connection_made(transport)
    return connection, transport


def test_an_engine_that_says_nothing_is_left_after_its_time(upstream, clock):
    connection, transport = _connect(upstream)
    asker = _Asker()
    connection.ask(asker, b"", b"")
    assert connection.deadline == clock.now + 600
    connection.expired()
    assert asker.told == [(Fault.SILENT, "said nothing for 600 s")]
    assert transport.aborted
    assert upstream.open == set()


def test_each_token_gives_an_engine_more_time(upstream, clock):
    connection, _ = _connect(upstream)
    connection.ask(_Asker(), b"", b"")
    clock.now += 500
    connection.data_received(STREAM + chunk(b"data: one\n\n"))
    assert connection.deadline == clock.now + 600


def test_an_engine_that_is_not_read_is_not_blamed_for_its_silence(upstream, clock):
    connection, transport = _connect(upstream)
    connection.ask(_Asker(), b"", b"")
    connection.data_received(STREAM)
    connection.pause()
    assert connection.deadline == float("inf")
    assert not transport.reading
    connection.resume()
    assert connection.deadline == clock.now + 600
    assert transport.reading


def test_a_connection_is_kept_for_less_time_than_engines_keep_theirs(upstream, clock):
    connection, transport = _connect(upstream)
    connection.ask(_Asker(), b"", b"")
    connection.data_received(OK)
    assert connection.deadline == clock.now + 4
    assert upstream.kept() is connection
    upstream.keep(connection)
    connection.expired()
    assert transport.aborted
    assert upstream.kept() is None


def test_the_connection_used_last_is_used_next_and_the_surplus_is_closed(clock):
    upstream = Upstream(replica(0, 21000), Limits(kept=2), clock)
    pairs = [_connect(upstream) for _ in range(3)]
    for connection, _ in pairs:
        connection.ask(_Asker(), b"", b"")
    for connection, _ in pairs:
        connection.data_received(OK)
    assert [transport.aborted for _, transport in pairs] == [False, False, True]
    assert [upstream.kept(), upstream.kept(), upstream.kept()] == [pairs[1][0], pairs[0][0], None]


def test_a_used_connection_that_ends_without_a_byte_is_stale_and_a_fresh_one_is_a_death(upstream):
    connection, _ = _connect(upstream)
    first, second = _Asker(), _Asker()
    connection.ask(first, b"", b"")
    connection.data_received(OK)
    connection.ask(second, b"", b"")
    connection.connection_lost(None)
    assert second.told == [(Fault.STALE, "closed the connection")]
    fresh, _ = _connect(upstream)
    third = _Asker()
    fresh.ask(third, b"", b"")
    fresh.connection_lost(ConnectionResetError("reset"))
    assert third.told == [(Fault.CLOSED, "lost the connection (reset)")]


def test_a_used_connection_that_ends_inside_a_head_is_a_death(upstream):
    """The engine took the request: to send it again as if it had not would be wrong."""
    connection, _ = _connect(upstream)
    connection.ask(_Asker(), b"", b"")
    connection.data_received(OK)
    asker = _Asker()
    connection.ask(asker, b"", b"")
    connection.data_received(b"HTTP/1.1 20")
    connection.connection_lost(None)
    assert asker.told[0][0] is Fault.CLOSED


def test_an_answer_that_is_not_wanted_ends_its_connection(upstream):
    connection, transport = _connect(upstream)
    asker = _Asker()
    asker.wants = False
    connection.ask(asker, b"", b"")
    connection.data_received(OK)
    assert transport.aborted
    assert upstream.kept() is None


def test_the_engines_key_is_in_no_repr(upstream):
    assert "engine-key" not in repr(upstream) + repr(upstream.replica)


def test_penalties_grow_with_failures_and_one_answer_ends_them(upstream, clock):
    for seconds in (0.5, 1.0, 2.0):
        upstream.failed()
        assert upstream.until == clock.now + seconds
    upstream.worked()
    assert (upstream.failures, upstream.until) == (0, 0.0)


def test_an_engine_keeps_its_load_over_tables_and_another_launch_starts_anew(clock):
    models = Table(HERE, Limits(), clock)
    models.update(table(replica(0, 21000), replica(1, 21001)))
    first = models.entry("m").upstreams[0]
    first.in_flight = 3
    connection, transport = _connect(first)
    models.update(table(replica(0, 21000)))
    assert models.entry("m").upstreams == (first,)
    models.update(table(replica(0, 21000, launch=2)))
    assert models.entry("m").upstreams[0].in_flight == 0
    assert connection in models.connections()
    clock.now += 5
    models.sweep(clock.now)
    assert transport.aborted
    first.in_flight = 0
    models.sweep(clock.now)
    assert list(models.connections()) == []


def test_a_models_name_wins_over_anothers_alias(clock):
    models = Table(HERE, Limits(), clock)
    routes = table()
    other = replace(routes.routes[0], model="vendor", aliases=("m",))
    models.update(replace(routes, routes=(routes.routes[0], other)))
    assert models.entry("m").route.model == "m"
    assert models.entry("nope") is None


async def test_a_connection_that_was_lost_before_it_was_used_is_no_connection(upstream, monkeypatch):
    """An engine that accepts and hangs up at once may have been seen to hang up before the request is written; then
    nobody would ever tell what became of the request."""

    async def connect(factory, host, port):
        connection, transport = factory(), _Transport()
        connection.connection_made(transport)
        connection.connection_lost(None)
        return transport, connection

    monkeypatch.setattr(asyncio.get_running_loop(), "create_connection", connect)
    with pytest.raises(ConnectionResetError, match="closed it at once"):
        await upstream.connect()
    assert upstream.open == set()


def test_a_connection_that_was_lost_is_not_kept(upstream):
    connection, _ = _connect(upstream)
    connection.connection_lost(None)
    assert not upstream.keep(connection)
    assert upstream.kept() is None
