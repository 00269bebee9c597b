"""Liveness and due times."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from llmgw.core.deadlines import Deadlines
from llmgw.core.liveness import beat, next_change, state_at
from llmgw.core.names import NodeName
from llmgw.core.presence import NodeState
from llmgw.core.state import Node

NODE = Node(name=NodeName("n"), machine="m", state=NodeState.READY, since=0.0, session=1, heard=100.0)
RULES = {"beat": 2.0, "lost_after": 60.0, "not_before": 0.0}


def test_a_silent_node_goes_from_ready_to_unreachable_to_lost() -> None:
    assert state_at(NODE, 105.9, **RULES) == (NodeState.READY, 0.0)
    assert state_at(NODE, 106.0, **RULES) == (NodeState.UNREACHABLE, 106.0)
    away = replace(NODE, state=NodeState.UNREACHABLE, since=106.0)
    assert state_at(away, 165.9, **RULES) == (NodeState.UNREACHABLE, 106.0)
    assert state_at(away, 166.0, **RULES) == (NodeState.LOST, 166.0)
    lost = replace(away, state=NodeState.LOST, since=166.0)
    assert state_at(lost, 999.0, **RULES) == (NodeState.LOST, 166.0)


def test_no_node_is_lost_before_the_time_it_was_given() -> None:
    away = replace(NODE, state=NodeState.UNREACHABLE, since=0.0, session=None)
    assert state_at(away, 90.0, beat=2.0, lost_after=60.0, not_before=100.0)[0] is NodeState.UNREACHABLE
    assert state_at(away, 100.0, beat=2.0, lost_after=60.0, not_before=100.0)[0] is NodeState.LOST


@given(st.sampled_from(NodeState), st.booleans(), st.floats(0, 300), st.floats(0, 300))
def test_the_state_changes_when_it_was_said_to_and_not_before(
    state: NodeState, connected: bool, since: float, heard: float
) -> None:
    node = replace(NODE, state=state, since=since, heard=heard, session=1 if connected else None)
    if state is NodeState.READY and not connected:
        return  # never: a node without a stream is not ready
    due = next_change(node, **RULES)
    if due is None:
        assert state is NodeState.LOST
        return
    if due > heard + 6.0 or not connected:
        assert state_at(node, due - 0.001, **RULES)[0] in (state, NodeState.READY)
    assert state_at(node, max(due, heard + 6.0), **RULES)[0] is not NodeState.READY


def test_beats_are_stretched_for_a_large_fleet() -> None:
    assert beat(2.0, 100) == 2.0
    assert beat(2.0, 550) == 3.5
    assert beat(2.0, 1000) == beat(2.0, 5000) == 5.0
    assert beat(10.0, 1000) == 10.0


@given(st.lists(st.tuples(st.sampled_from("abcd"), st.one_of(st.none(), st.floats(0, 100))), max_size=60))
def test_what_is_due_comes_once_in_order_and_never_late(sets: list[tuple[str, float | None]]) -> None:
    deadlines, real = Deadlines[str](), dict[str, float]()
    for subject, at in sets:
        deadlines.set(subject, at)
        if at is None:
            real.pop(subject, None)
        else:
            real[subject] = at
    taken: list[str] = []
    now = 0.0
    while (due := deadlines.next()) is not None:
        earliest = min((at for subject, at in real.items() if subject not in taken), default=None)
        assert earliest is None or due <= earliest
        now = max(now, due)
        taken += deadlines.take(now)
    assert sorted(taken) == sorted(real)
    assert [real[subject] for subject in taken] == sorted(real.values())
