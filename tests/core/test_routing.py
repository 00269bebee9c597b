"""Which replica gets a request."""

from dataclasses import dataclass, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmgw.core.names import ModelName, NodeName, ReplicaId
from llmgw.core.routes import Route, RouteReplica
from llmgw.core.routing import TRIES, Fault, NoReplica, Reason, again, choose, penalty, reachable
from llmgw.core.views import ModelState


def _replica(number: int, host: str = "127.0.0.1", machine: str = "here") -> RouteReplica:
    return RouteReplica(
        id=ReplicaId(f"m/{number}"),
        launch=1,
        node=NodeName(f"node{number:02}"),
        machine=machine,
        host=host,
        port=21000 + number,
    )


def _route(*replicas: RouteReplica, not_now: int = 0, never: int = 0) -> Route:
    return Route(model=ModelName("m"), replicas=replicas, state=ModelState.READY, not_now=not_now, never=never)


@dataclass(frozen=True)
class _Load:
    replica: RouteReplica
    in_flight: int = 0
    chosen: int = 0
    until: float = 0.0


_loads = st.lists(
    st.builds(
        _Load,
        replica=st.integers(0, 99).map(_replica),
        in_flight=st.integers(0, 5),
        chosen=st.integers(0, 5),
        until=st.floats(0, 20),
    ),
    max_size=8,
    unique_by=lambda load: load.replica.id,
)


def test_the_replica_with_the_fewest_requests_is_chosen():
    loads = [
        _Load(_replica(0), in_flight=2),
        _Load(_replica(1), in_flight=1, chosen=9),
        _Load(_replica(2), in_flight=3),
    ]
    assert choose(_route(), loads, now=0.0) is loads[1]


def test_of_equal_replicas_the_one_longest_not_chosen_is_next_and_names_break_ties():
    loads = [_Load(_replica(0), chosen=7), _Load(_replica(1), chosen=3), _Load(_replica(2), chosen=5)]
    assert choose(_route(), loads, now=0.0) is loads[1]
    fresh = [_Load(_replica(2)), _Load(_replica(1))]
    assert choose(_route(), fresh, now=0.0) is fresh[1]


def test_a_replica_that_just_failed_is_passed_over_until_its_penalty_ends():
    loads = [_Load(_replica(0), until=10.0), _Load(_replica(1), in_flight=50)]
    assert choose(_route(), loads, now=9.9) is loads[1]
    assert choose(_route(), loads, now=10.0) is loads[0]


def test_when_all_have_just_failed_the_first_to_be_free_again_is_asked():
    loads = [_Load(_replica(0), until=12.0), _Load(_replica(1), until=11.0)]
    assert choose(_route(), loads, now=10.0) is loads[1]


@given(_loads, st.floats(0, 20))
def test_a_replica_under_a_penalty_is_never_chosen_while_another_is_free(loads, now):
    chosen = choose(_route(), loads, now=now)
    free = [load for load in loads if load.until <= now]
    if free:
        assert chosen in free
        assert chosen.in_flight == min(load.in_flight for load in free)
    elif loads:
        assert chosen in loads
    else:
        assert isinstance(chosen, NoReplica)


@given(_loads, st.sets(st.integers(0, 99)))
def test_no_replica_is_asked_twice_for_one_request(loads, numbers):
    tried = {_replica(n) for n in numbers}
    chosen = choose(_route(), loads, now=0.0, tried=tried)
    if isinstance(chosen, NoReplica):
        assert all(load.replica in tried for load in loads)
    else:
        assert chosen.replica not in tried


def test_another_launch_of_a_tried_replica_is_another_engine():
    fresh = _Load(replace(_replica(0), launch=2))
    assert choose(_route(), [fresh], now=0.0, tried={_replica(0)}) is fresh


def test_a_loopback_engine_of_another_machine_is_out_of_reach_and_said_to_be():
    near, far = reachable(_route(_replica(2, machine="there"), _replica(1, "::1", "there")), "here")
    assert (near, far) == ((), ("node01", "node02"))
    why = choose(_route(), [], now=0.0, elsewhere=far)
    assert isinstance(why, NoReplica)
    assert why.reason is Reason.ELSEWHERE
    assert str(why) == (
        "model m: engines on node01, node02 listen on loopback; set exposure: direct or run a router there"
    )
    assert "node" not in why.public


def test_engines_on_an_address_and_those_of_this_machine_are_within_reach():
    replicas = _replica(1), _replica(2, "192.0.2.9", "there"), _replica(3, "localhost", "there")
    assert reachable(_route(*replicas), "here") == (replicas[:2], ("node03",))


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "::ffff:127.0.0.1"])
def test_an_address_that_leads_back_to_the_router_is_no_way_to_another_machine(host):
    replica = _replica(1, host, "there")
    assert reachable(_route(replica), "here") == ((), ("node01",))
    assert reachable(_route(replica), "there") == ((replica,), ())


def test_a_router_that_does_not_know_its_machine_reaches_no_loopback_engine():
    assert reachable(_route(_replica(1, machine="")), "") == ((), ("node01",))


def test_when_nothing_serves_the_counts_of_refusals_are_given():
    why = choose(_route(not_now=2, never=1), [], now=0.0)
    assert isinstance(why, NoReplica)
    assert (why.reason, why.not_now, why.never) == (Reason.NONE_READY, 2, 1)


@pytest.mark.parametrize(
    ("state", "counts", "words"),
    [
        (ModelState.STOPPED, (2, 1), "model m is scaled to 0"),
        (ModelState.REFUSED, (2, 1), "model m is refused by all nodes; nodes: 2 not now, 1 never"),
        (ModelState.REFUSED, (0, 3), "model m is refused by all nodes; nodes: 3 never"),
        (ModelState.STARTING, (0, 3), "model m is starting; no replica serves yet"),
        (ModelState.FAILED, (0, 0), "model m has failed; no replica serves"),
        (ModelState.DEGRADED, (0, 0), "model m has no replica that can serve now"),
        (ModelState.READY, (1, 0), "model m has no replica that can serve now; nodes: 1 not now"),
    ],
)
def test_a_model_that_nothing_serves_is_said_to_be_as_it_is(state, counts, words):
    """`0 never` says nothing, and what nodes would say of a model that nobody wants is not why."""
    why = choose(replace(_route(not_now=counts[0], never=counts[1]), state=state), [], now=0.0)
    assert isinstance(why, NoReplica)
    assert (str(why), why.public) == (words, words)


def test_the_penalty_grows_and_is_bounded():
    assert [penalty(n) for n in (0, 1, 2, 3, 4, 5, 6, 1000)] == [0.0, 0.5, 1.0, 2.0, 4.0, 8.0, 8.0, 8.0]


def test_a_request_that_kills_engines_is_given_to_two_at_most():
    assert again(Fault.CLOSED, 1, 1)
    assert not again(Fault.CLOSED, 2, 2)


def test_a_broken_or_missing_answer_is_not_asked_for_again():
    assert not again(Fault.BROKEN, 1, 0)
    assert not again(Fault.SILENT, 1, 0)


def test_tries_are_bounded_whatever_happens():
    assert not any(again(fault, TRIES, 0) for fault in Fault)
