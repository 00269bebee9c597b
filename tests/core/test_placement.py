"""One more replica, one answer per node."""

import re
from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from llmgw.config.units import byte_size
from llmgw.core.facts import EngineReport, Engines
from llmgw.core.inventory import Inventory
from llmgw.core.names import ModelName, NodeName
from llmgw.core.placement import CHECKS, Need, Placement, Room, Unplaced, fill, place, usable
from llmgw.core.presence import NodeState
from llmgw.core.refusals import (
    AddressNotTried,
    EngineBroken,
    EngineMissing,
    EngineNotProbed,
    EngineVersion,
    NodeAway,
    NotEnoughMemory,
    Refusal,
    RefusedByNode,
    UnreachableAddress,
    Verdict,
    WillNotObey,
    numbers,
)
from llmgw.core.state import Node
from llmgw.core.units import GIB, MIB, Bytes
from tests.core.stage import LLAMA, T0, inventory, profile

NEED = Need(model=ModelName("gemma"), profile=profile(memory=2 * GIB))


def room(name: str = "node01", **fields: object) -> Room:
    node = Node(
        name=NodeName(name),
        machine="m",
        state=NodeState.READY,
        since=T0,
        session=1,
        heard=T0,
        inventory=inventory(8 * GIB),
        engines=LLAMA,
    )
    own = {key: fields.pop(key) for key in ("promised", "same", "refused", "epoch", "unreached") if key in fields}
    if "node_epoch" in fields:
        fields["epoch"] = fields.pop("node_epoch")
    return Room(node=replace(node, **fields), **own)  # type: ignore[arg-type]


def refusal(**fields: object) -> Refusal:
    answer = place(NEED, [room(**fields)], T0)
    assert isinstance(answer, Unplaced)
    assert len(answer.refusals) == 1
    return answer.refusals[0]


def engines(*reports: EngineReport) -> Engines:
    return Engines(probed_at=T0, engines=reports)


def test_a_node_with_room_takes_it() -> None:
    assert place(NEED, [room()], T0) == Placement(node=NodeName("node01"), fits=(NodeName("node01"),))


def test_each_reason_has_its_own_refusal() -> None:
    missing = refusal(engines=engines(EngineReport(engine="vllm", version="0.33.0")))
    assert isinstance(missing, EngineMissing) and missing.has == ("vllm",)
    assert isinstance(refusal(engines=None), EngineNotProbed)
    broken = refusal(engines=engines(EngineReport(engine="llama.cpp", problem="libgomp.so.1 is missing")))
    assert isinstance(broken, EngineBroken) and broken.text == "libgomp.so.1 is missing"
    away = refusal(state=NodeState.LOST, session=None, since=T0 - 90)
    assert away == NodeAway(node=NodeName("node01"), lost=True, seconds=90)
    full = refusal(promised=Bytes(7 * GIB))
    assert full == NotEnoughMemory(node=NodeName("node01"), need=2 * GIB, free=GIB, total=8 * GIB, by_hand=True)
    assert full.verdict is Verdict.NOT_NOW
    refused = refusal(refused=("no such file", T0 + 30))
    assert isinstance(refused, RefusedByNode) and refused.seconds == 30


def test_a_version_other_than_the_profiles_is_refused_unless_it_names_none() -> None:
    need = Need(model=NEED.model, profile=replace(NEED.profile, version="b11000"))
    answer = place(need, [room()], T0)
    assert isinstance(answer, Unplaced)
    assert answer.refusals == (
        EngineVersion(node=NodeName("node01"), engine="llama.cpp", needs="b11000", has="b10991"),
    )


def test_never_is_not_hidden_behind_not_now() -> None:
    """A node that is away and could never take it says never."""
    small = refusal(state=NodeState.LOST, session=None, inventory=inventory(GIB))
    assert isinstance(small, NotEnoughMemory) and small.verdict is Verdict.NEVER
    missing = refusal(state=NodeState.UNREACHABLE, session=None, engines=engines())
    assert isinstance(missing, EngineMissing)


def test_spread_comes_before_the_tightest_fit_and_that_before_the_name() -> None:
    rooms = [
        room("a", same=1, promised=Bytes(5 * GIB)),
        room("c", promised=Bytes(GIB)),
        room("b", promised=Bytes(GIB)),
        room("d"),
    ]
    answer = place(NEED, rooms, T0)
    assert isinstance(answer, Placement)
    assert answer.fits == ("b", "c", "d", "a")


def test_refusals_come_nearest_to_fitting_first() -> None:
    rooms = [
        room("a", inventory=inventory(GIB)),
        room("b", promised=Bytes(8 * GIB)),
        room("c", promised=Bytes(7 * GIB)),
    ]
    answer = place(NEED, rooms, T0)
    assert [refusal.node for refusal in answer.refusals] == ["c", "b", "a"]


def test_a_node_that_is_lost_is_farther_than_one_that_lacks_a_little_memory() -> None:
    lost = room("a", state=NodeState.LOST, session=None)
    away = room("b", state=NodeState.UNREACHABLE, session=None)
    answer = place(NEED, [lost, away, room("c", refused=("no", T0 + 9)), room("d", promised=Bytes(7 * GIB))], T0)
    assert [refusal.node for refusal in answer.refusals] == ["d", "c", "b", "a"]


def test_a_node_that_obeyed_a_later_epoch_is_given_nothing() -> None:
    assert isinstance(refusal(node_epoch=8, epoch=7), WillNotObey)
    assert isinstance(place(NEED, [room(node_epoch=7, epoch=7)], T0), Placement)


def test_a_node_that_no_router_reaches_is_refused_after_those_that_are_away() -> None:
    name = NodeName("node01")
    unreachable = UnreachableAddress(node=name, router="r1", address="10.0.0.1", port=21000, error="connection refused")
    assert refusal(unreached=unreachable) == unreachable
    assert refusal(unreached=AddressNotTried(node=name)) == AddressNotTried(node=name)
    assert isinstance(refusal(unreached=unreachable, state=NodeState.LOST, session=None), NodeAway)
    assert isinstance(refusal(unreached=unreachable, engines=engines()), EngineMissing), "that never passes"
    assert refusal(unreached=unreachable, promised=Bytes(7 * GIB)) == unreachable
    assert unreachable.verdict is AddressNotTried.verdict is Verdict.NOT_NOW


def test_what_a_node_refused_is_over_when_its_time_is() -> None:
    assert isinstance(place(NEED, [room(refused=("x", T0))], T0), Placement)


def test_measured_memory_leaves_something_to_the_system_and_written_memory_does_not() -> None:
    assert usable(replace(inventory(4 * GIB), by_hand=())) == 4 * GIB - 4 * GIB // 10
    assert usable(replace(inventory(64 * GIB), by_hand=())) == 63 * GIB
    assert usable(inventory(4 * GIB)) == 4 * GIB


def test_every_refusal_reads_as_a_sentence_with_a_way_out() -> None:
    full = refusal(promised=Bytes(7 * GIB))
    assert str(full) == "memory: needs 2 GiB, 1 GiB of 8 GiB free"
    assert full.clears == "1 GiB is freed"
    told = {"need": 2 * GIB, "free": GIB, "total": 8 * GIB, "more": 0, "by_hand": True, "limited": False}
    assert numbers(full) == told


@pytest.mark.parametrize(
    ("fields", "words", "way"),
    [
        ({"by_hand": ()}, "memory: needs 2 GiB, engines may use 922 MiB", "1.3 GiB more RAM"),
        ({}, "memory: needs 2 GiB, engines may use 1 GiB", "1 GiB more in memory: of its agent.yaml"),
        (
            {"by_hand": (), "memory_limit": GIB},
            "memory: needs 2 GiB, engines may use 922 MiB",
            "1.3 GiB more in the limit of its control group",
        ),
    ],
)
def test_what_an_empty_node_lacks_is_said_by_what_bounds_its_memory(
    fields: dict[str, object], words: str, way: str
) -> None:
    small = refusal(inventory=replace(inventory(GIB), **fields), promised=GIB)  # type: ignore[arg-type]
    assert str(small) == words
    assert small.clears == f"{way}, or a smaller `memory:` in the profile"


def _more(inventory: Inventory, need: int) -> tuple[NotEnoughMemory, Callable[[int], bool]]:
    """The refusal of an empty node, and whether it takes the replica with so much more memory."""
    wants = Need(model=NEED.model, profile=profile(memory=need))

    def takes(more: int) -> bool:
        grown = replace(inventory, memory=Bytes(inventory.memory + more))
        return isinstance(place(wants, [room(inventory=grown)], T0), Placement)

    answer = place(wants, [room(inventory=inventory)], T0)
    assert isinstance(answer, Unplaced)
    (small,) = answer.refusals
    assert isinstance(small, NotEnoughMemory) and small.verdict is Verdict.NEVER
    return small, takes


@given(st.integers(0, 40 * GIB), st.integers(1, 20 * GIB), st.booleans())
@example(9 * GIB, 1, False)
@example(10 * GIB - 1, 1, False)
@example(0, 9, False)
def test_with_as_much_more_memory_as_a_refusal_says_it_fits_and_with_less_it_does_not(
    memory: int, beyond: int, by_hand: bool
) -> None:
    there = inventory(memory) if by_hand else replace(inventory(memory), by_hand=())
    small, takes = _more(there, usable(there) + beyond)
    assert takes(small.more) and not takes(small.more - 1)
    said = re.match(r"[\d.]+ [KMGT]?i?B", small.clears)
    assert said is not None and takes(byte_size(said[0])), "the words are rounded up"


ROOMS = st.lists(
    st.builds(
        room,
        st.sampled_from([f"n{i}" for i in range(9)]),
        promised=st.integers(0, 9 * GIB),
        same=st.integers(0, 3),
        state=st.sampled_from(NodeState),
        engines=st.sampled_from([None, LLAMA, engines(), engines(EngineReport(engine="llama.cpp", problem="p"))]),
        inventory=st.sampled_from([None, inventory(GIB), inventory(8 * GIB)]),
        refused=st.sampled_from([None, ("no", T0 + 5), ("no", T0 - 5)]),
    ),
    max_size=9,
    unique_by=lambda one: one.node.name,
)


@given(ROOMS, st.integers(MIB, 9 * GIB))
def test_every_node_answers_once_and_memory_is_never_promised_twice(rooms: list[Room], memory: int) -> None:
    need = Need(model=NEED.model, profile=profile(memory=memory))
    answer = place(need, rooms, T0)
    fits = answer.fits if isinstance(answer, Placement) else ()
    assert sorted([*fits, *(r.node for r in answer.refusals)]) == sorted(one.node.name for one in rooms)
    for one in rooms:
        if one.node.name in fits:
            assert one.node.inventory is not None
            assert one.promised + memory <= usable(one.node.inventory)
    assert answer == place(need, reversed(rooms), T0)


@given(ROOMS, st.integers(MIB, 9 * GIB), st.integers(1, 12))
def test_filling_is_placing_one_after_the_other(rooms: list[Room], memory: int, count: int) -> None:
    need = Need(model=NEED.model, profile=profile(memory=memory))
    expected, left = [], {one.node.name: one for one in rooms}
    refusals: tuple[Refusal, ...] = ()
    for _ in range(count):
        answer = place(need, left.values(), T0)
        if isinstance(answer, Unplaced):
            refusals = answer.refusals
            break
        expected.append(answer.node)
        taken = left[answer.node]
        left[answer.node] = replace(taken, promised=Bytes(taken.promised + memory), same=taken.same + 1)
    assert fill(need, rooms, count, T0) == (tuple(expected), refusals)


def test_no_check_that_can_pass_later_comes_before_one_that_never_can() -> None:
    assert [check.__name__ for check in CHECKS[:2]] == ["_engine_never", "_memory_never"]
