"""Whose turn it is to download."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llmgw.core.engines.terms import Install, InstallStep
from llmgw.core.engines.turns import Claim, Turns, claim_of
from llmgw.core.names import NodeName
from llmgw.core.units import Bytes

NOW = 100.0
S = InstallStep


def install(step: InstallStep, **fields: object) -> Install:
    return Install(engine="llama.cpp", version="b10991", step=step, since=1.0, **fields)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("said", "claim"),
    [
        (None, Claim.WAITS),
        (install(S.RESOLVE), Claim.WAITS),
        (install(S.DOWNLOAD), Claim.WORKS),
        (install(S.VERIFY), Claim.WORKS),
        (install(S.UNPACK), None),
        (install(S.LIBRARIES), None),
        (install(S.PROVE), None),
        (install(S.READY), None),
        (install(S.RESOLVE, problem="no build for riscv64"), None),
        (install(S.DOWNLOAD, problem="HTTP 500", turn=True, retry_at=NOW + 1), None),
        (install(S.DOWNLOAD, problem="HTTP 500", turn=True, retry_at=NOW), Claim.FAILED),
        (install(S.PROVE, problem="SIGILL", retry_at=NOW - 1), None),
        (install(S.READY, problem="a library is gone"), None),
        (install(S.READY, problem="a library is gone", turn=True), Claim.FAILED),
        (install(S.READY, problem="a library is gone", turn=True, total=Bytes(9)), Claim.WORKS),
        (install(S.READY, turn=True), Claim.WAITS),
        (install(S.READY, turn=True, total=Bytes(9)), Claim.WORKS),
    ],
)
def test_who_needs_one(said: Install | None, claim: Claim | None) -> None:
    assert claim_of(said, NOW) is claim


def turns(most: int, **claims: Claim) -> Turns:
    made = Turns(most=most)
    for name, claim in claims.items():
        made.put(NodeName(name), claim)
    made.give()
    return made


def test_they_are_given_by_name_and_what_works_already_goes_first() -> None:
    made = turns(2, c=Claim.WAITS, b=Claim.WAITS, a=Claim.FAILED, d=Claim.WORKS)
    assert sorted(made.holding) == ["b", "d"] and sorted(made.waiting) == ["a", "c"]


def test_one_that_is_given_back_is_given_to_the_next() -> None:
    made = turns(1, a=Claim.WAITS, b=Claim.WAITS)
    assert made.put(NodeName("a"), None) and made.give() == {"b"}
    assert not made.put(NodeName("a"), None) and made.give() == set()


def test_who_failed_gives_way_and_comes_back_when_there_is_room() -> None:
    made = turns(1, a=Claim.WAITS)
    made.put(NodeName("a"), Claim.FAILED)
    assert made.give() == set(), "nobody else waits"
    made.put(NodeName("b"), Claim.FAILED)
    assert made.give() == set(), "b is no better"
    made.put(NodeName("c"), Claim.WAITS)
    assert made.give() == {"a", "c"} and sorted(made.holding) == ["c"]
    made.put(NodeName("c"), None)
    assert made.give() == {"a"}


def test_who_makes_no_use_of_one_goes_behind_all_others() -> None:
    made = turns(1, a=Claim.WAITS)
    assert not made.stalled(NodeName("a")), "while nobody waits it may as well keep it"
    made.put(NodeName("b"), Claim.WAITS)
    assert made.stalled(NodeName("a")) and made.give() == {"b"}
    made.put(NodeName("c"), Claim.WAITS)
    made.put(NodeName("b"), None)
    assert made.give() == {"c"}, "a has had one"
    made.put(NodeName("c"), None)
    assert made.give() == {"a"}
    made.put(NodeName("a"), None)
    made.put(NodeName("a"), Claim.WAITS)
    made.put(NodeName("b"), Claim.WAITS)
    assert made.give() == {"a"}, "what was is forgotten once it was done"


NAMES = [NodeName(f"node{number}") for number in range(6)]
ACTS = st.lists(st.tuples(st.sampled_from(NAMES), st.sampled_from([*Claim, None, "stall"])), max_size=40)


@settings(max_examples=200, deadline=None)
@given(ACTS, st.integers(0, 4))
def test_never_more_than_may_none_idle_and_the_same_for_the_same(
    acts: list[tuple[NodeName, Claim | str | None]], most: int
) -> None:
    made, again = Turns(most=most), Turns(most=most)
    for name, act in acts:
        for one in (made, again):
            one.stalled(name) if isinstance(act, str) else one.put(name, act)
        before = dict(made.holding)
        changed = made.give()
        assert changed == again.give() and made == again
        assert changed == before.keys() ^ made.holding.keys()
        assert len(made.holding) <= most and not made.holding.keys() & made.waiting.keys()
        assert not made.waiting or len(made.holding) == most
        again = made.copy()


@settings(max_examples=100, deadline=None)
@given(ACTS, st.integers(1, 3))
def test_everybody_gets_one(acts: list[tuple[NodeName, Claim | str | None]], most: int) -> None:
    """Whatever was before: if each that has one is done at last, or never is, all had one in the end."""
    made = Turns(most=most)
    for name, act in acts:
        made.stalled(name) if isinstance(act, str) else made.put(name, act)
        made.give()
    left, idle = set(made.waiting), NAMES[0]
    for _ in range(3 * len(NAMES)):
        for name in list(made.holding):
            made.stalled(name) if name == idle else made.put(name, None)
        made.give()
        left -= made.holding.keys()
    assert not left
