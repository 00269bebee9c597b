"""How far a node's clock is from ours, by its heartbeats."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmgw.core import skew
from llmgw.core.effects import Publish
from llmgw.core.inputs import AgentBeat, Overslept
from llmgw.core.inventory import Usage
from llmgw.core.link import Heartbeat
from llmgw.core.names import NodeName
from llmgw.core.units import GIB
from llmgw.core.views import Noun
from tests.core.stage import SETTINGS, Agent, Stage, model, three_nodes

BEAT = SETTINGS.heartbeat


@pytest.mark.parametrize(
    ("behind", "words"), [(95.0, "95 s behind"), (-40.0, "40 s ahead of")], ids=["behind", "ahead"]
)
def test_a_wrong_clock_is_a_warning_within_three_beats_and_goes_within_three(behind: float, words: str) -> None:
    stage = three_nodes()
    node = stage.agents["node01"]
    stage.later(3 * BEAT)
    node.behind = behind
    stage.later(3 * BEAT)
    assert stage.warned("node01") == [f"its clock is {words} the control plane's"]
    assert stage.warned("node02") == []
    node.behind = 0.0
    stage.later(3 * BEAT)
    assert stage.warned("node01") == []


def test_one_or_two_beats_that_come_late_are_no_wrong_clock() -> None:
    stage = three_nodes()
    node = stage.agents["node01"]
    stage.later(3 * BEAT)
    for late in (0.0, 30.0, 30.0, 0.0, 30.0, 0.0):
        stage.now += BEAT
        stage.beat(node, late=late)
        assert stage.warned("node01") == []


def test_the_first_beats_of_a_stream_decide_nothing() -> None:
    stage = Stage(model(replicas=0))
    node = Agent("node01", behind=60.0)
    stage.join(node)
    for warned in (0, 0, 1):
        stage.now += BEAT
        stage.beat(node)
        assert len(stage.warned("node01")) == warned


def test_beats_that_lay_unread_for_a_minute_are_no_wrong_clock() -> None:
    """Their sockets were read late: by a sleeper, or one with much to do."""
    for slept in (True, False):
        stage = three_nodes()
        node = stage.agents["node01"]
        stage.later(3 * BEAT)
        stage.now += 60.0
        if slept:
            stage.apply(Overslept(seconds=60.0))
        for number in range(31):
            stage.now += 0.02
            stage.beat(node, late=60.0 - number * BEAT)
            assert stage.warned("node01") == []


def test_a_difference_is_shown_anew_when_it_moved_by_a_tenth_not_on_each_beat() -> None:
    stage = three_nodes()
    node = stage.agents["node01"]
    node.behind = 100.0
    stage.later(3 * BEAT)
    shown = 0
    for _ in range(20):
        stage.now += BEAT
        node.behind += 1.0
        heartbeat = Heartbeat(at=stage.now - node.behind, usage=Usage(memory_available=GIB))
        assert node.session is not None
        effects = stage.apply(AgentBeat(session=node.session, node=NodeName("node01"), heartbeat=heartbeat))
        shown += Publish(Noun.NODES, "node01") in effects
    assert shown == 1


def test_a_difference_around_the_limit_does_not_flicker() -> None:
    stage = three_nodes()
    node = stage.agents["node01"]
    node.behind = 3.1
    stage.later(3 * BEAT)
    assert stage.warned("node01") == ["its clock is 3 s behind the control plane's"]
    node.behind = 2.9
    stage.later(3 * BEAT)
    assert stage.warned("node01") == ["its clock is 3 s behind the control plane's"]


_TIMES = st.floats(allow_nan=False, allow_infinity=False)


@given(st.lists(st.tuples(_TIMES, st.floats(0, 100)), max_size=12))
def test_whatever_times_a_node_claims_there_are_at_most_three_beats_and_a_number(
    beats: list[tuple[float, float]],
) -> None:
    window: tuple[skew.Beat, ...] = ()
    now, shown = 1e9, 0.0
    for at, passed in beats:
        now += passed
        window = skew.heard(window, at=at, now=now, apart=1.0)
        shown = skew.shown(shown, window)
        assert len(window) <= skew.BEATS
        assert shown == 0.0 or skew.GONE_BELOW <= abs(shown) < 4e9
