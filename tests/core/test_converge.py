"""What an agent decides: as sentences, and as laws over whole lives of a node."""

from collections.abc import Mapping
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llmgw.core import local_shard
from llmgw.core.converge import Forget, Launch, Stop, admit, decide, next_due, objection
from llmgw.core.facts import Exposure, FailureKind, Profile, ShardOrder, ShardReport, Want
from llmgw.core.link import Desired
from llmgw.core.local_shard import (
    Doing,
    Ended,
    Forgotten,
    Healthy,
    Idle,
    Launched,
    LocalShard,
    NotStarted,
    OtherEngines,
    Outcome,
    Process,
    Unhealthy,
    Working,
)
from llmgw.core.names import ModelName, ShardId
from llmgw.core.shard import ShardState
from llmgw.core.units import MIB

NAMES = (ShardId("a/0.0"), ShardId("a/1.0"), ShardId("b/0.0"))
TIMEOUT = 600.0
S = ShardState


def order(name: ShardId = NAMES[0], want: Want = Want.RUN, drain: float = 30.0) -> ShardOrder:
    profile = Profile(engine="llama.cpp", weights="/w.gguf", memory=MIB)
    return ShardOrder(shard=name, model=ModelName("a"), want=want, profile=profile, drain=drain)


def wanted(*orders: ShardOrder, settled: bool = True, epoch: int = 1, cluster: str = "demo") -> Desired:
    return Desired(
        cluster=cluster, epoch=epoch, revision=1, settled=settled, exposure=Exposure.LOOPBACK, shards=tuple(orders)
    )


def check(shards: Mapping[ShardId, LocalShard]) -> None:
    """What must hold of every shard at every moment."""
    for name, shard in shards.items():
        assert name == shard.order.shard
        if shard.state in (S.STARTING, S.READY, S.DRAINING):
            assert shard.process is not None
        if shard.state in (S.PLACED, S.FETCHING, S.STOPPED):
            assert shard.process is None
        assert (shard.doing is Doing.LAUNCHING) <= (shard.process is None)
        assert (shard.doing is Doing.STOPPING) <= (shard.process is not None)
        assert (shard.doing is Doing.FORGETTING) <= (shard.process is None)


class Node:
    """The pure part of an agent, driven by hand."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.desired: Desired | None = None
        self.shards: dict[ShardId, LocalShard] = {}
        self.steps: list[Launch | Stop | Forget] = []

    def decide(self) -> list[Launch | Stop | Forget]:
        if self.desired is not None:
            self.shards = admit(self.desired, self.shards, self.now)
        decision = decide(self.desired, self.shards, self.now, TIMEOUT)
        self.shards = dict(decision.shards)
        check(self.shards)
        again = decide(self.desired, self.shards, self.now, TIMEOUT)
        assert not again.steps
        assert again.shards == self.shards
        self.steps += decision.steps
        return list(decision.steps)

    def want(self, desired: Desired) -> list[Launch | Stop | Forget]:
        self.desired = desired
        return self.decide()

    def hear(self, outcome: Outcome, name: ShardId = NAMES[0]) -> list[Launch | Stop | Forget]:
        after = local_shard.happened(self.shards.pop(name), outcome, self.now, TIMEOUT)
        self.shards |= {} if after is None else {name: after}
        check(self.shards)
        return self.decide()

    def launched(self, name: ShardId = NAMES[0]) -> None:
        launch = self.shards[name].launch
        self.hear(Launched(launch=launch, process=Process(pid=100 + launch, host="127.0.0.1", port=21000)), name)

    def ready(self, name: ShardId = NAMES[0]) -> None:
        self.launched(name)
        self.hear(Healthy(launch=self.shards[name].launch), name)

    def shard(self, name: ShardId = NAMES[0]) -> LocalShard:
        return self.shards[name]

    def wait(self, seconds: float) -> list[Launch | Stop | Forget]:
        self.now += seconds
        return self.decide()


@pytest.fixture
def node() -> Node:
    node = Node()
    node.want(wanted(order()))
    return node


# --- a life -----------------------------------------------------------------------------------------------------


def test_a_wanted_shard_is_launched_becomes_ready_and_is_left_in_peace(node: Node):
    assert isinstance(node.steps[0], Launch)
    node.ready()
    assert node.shard().state is S.READY
    assert node.wait(10_000) == []
    assert next_due(node.shards.values()) is None


def test_failures_in_a_row_wait_longer_up_to_a_minute(node: Node):
    waits = []
    for _ in range(9):
        node.launched()
        node.hear(Ended(launch=node.shard().launch, exit_status=1))
        retry_at = node.shard().retry_at
        assert retry_at is not None
        waits.append(retry_at - node.now)
        assert node.wait(waits[-1] - 0.01) == []
        assert isinstance(node.wait(0.01)[0], Launch)
    assert waits == [1, 2, 4, 8, 16, 32, 60, 60, 60]


def test_a_minute_of_being_ready_makes_earlier_failures_forgotten(node: Node):
    for _ in range(3):
        node.launched()
        node.hear(Ended(launch=node.shard().launch, exit_status=1))
        node.wait(60)
    node.ready()
    assert (node.shard().attempts, node.shard().failure is None) == (3, False)
    assert next_due(node.shards.values()) == node.now + 60
    node.wait(60)
    assert (node.shard().attempts, node.shard().failure) == (0, None)


def test_a_failure_before_that_minute_counts_on(node: Node):
    node.launched()
    node.hear(Ended(launch=1, exit_status=1))
    node.wait(1)
    node.ready()
    node.wait(59)
    node.hear(Ended(launch=2, signal=9))
    assert node.shard().attempts == 2


def test_a_failure_long_after_is_a_first_one_even_when_nobody_looked_in_between(node: Node):
    node.launched()
    node.hear(Ended(launch=1, exit_status=1))
    node.wait(1)
    node.ready()
    node.now += 61
    node.hear(Ended(launch=2, signal=9))
    assert node.shard().attempts == 1


def test_a_refused_profile_is_looked_at_again_after_a_minute_and_counts_as_no_launch(node: Node):
    node.hear(NotStarted(launch=1, text="weights /w.gguf: cannot be read"))
    shard = node.shard()
    assert shard.failure is not None
    assert (shard.state, shard.failure.kind, shard.attempts) == (S.FAILED, FailureKind.REFUSED, 0)
    assert node.wait(59.9) == []
    assert isinstance(node.wait(0.1)[0], Launch)


def test_what_was_refused_is_looked_at_at_once_when_there_are_other_engines(node: Node):
    node.hear(OtherEngines(launch=1))
    assert node.steps[-1:] == [Launch(order=order(), launch=1, exposure=Exposure.LOOPBACK)], "it is being launched"
    node.hear(NotStarted(launch=1, text="engine llama.cpp: libgomp.so.1 is missing"))
    node.hear(OtherEngines(launch=1))
    (*_, step) = node.steps
    assert isinstance(step, Launch) and step.launch == 2
    node.launched()
    node.hear(Ended(launch=2, exit_status=1))
    node.hear(OtherEngines(launch=2))
    assert node.shard().retry_at == node.now + 1, "other failures count as ever"


def test_an_engine_that_takes_too_long_is_stopped_and_tried_again(node: Node):
    node.launched()
    (step,) = node.wait(TIMEOUT)
    assert isinstance(step, Stop)
    failure = node.shard().failure
    assert failure is not None and failure.kind is FailureKind.TIMEOUT
    node.hear(Ended(launch=1, signal=15, last_lines=("loading tensors",)))
    failure = node.shard().failure
    assert failure is not None
    assert (failure.kind, failure.last_lines, failure.signal) == (FailureKind.TIMEOUT, ("loading tensors",), None)
    assert isinstance(node.wait(1)[0], Launch)


def test_an_engine_that_is_unwell_and_does_nothing_has_as_long_as_at_its_start(node: Node):
    node.ready()
    node.wait(5000)
    node.hear(Unhealthy(launch=1))
    assert node.shard().state is S.STARTING
    assert node.wait(TIMEOUT - 1) == []
    (step,) = node.wait(1)
    assert isinstance(step, Stop)
    # Three days after its launch, "was not ready after its launch" would be wrong.
    assert step.why == "it did not answer and did nothing for 10m00s"
    failure = node.shard().failure
    assert failure is not None and failure.text == "did not answer and did nothing for 10m00s"


def test_an_engine_that_works_on_requests_and_does_not_answer_is_not_ended(node: Node):
    """It may be so deep in them that it answers nothing else; for now nothing new is sent to it."""
    node.ready()
    node.hear(Unhealthy(launch=1))
    for _ in range(10):
        assert node.wait(TIMEOUT - 1) == []
        assert node.hear(Working(launch=1)) == []
    assert (node.shard().state, node.shard().attempts) == (S.STARTING, 0)
    node.hear(Healthy(launch=1))
    assert node.shard().state is S.READY
    node.hear(Unhealthy(launch=1))
    assert isinstance(node.wait(TIMEOUT)[0], Stop)


def test_an_engine_that_was_never_ready_has_no_more_time_for_working(node: Node):
    """How long loading may take is the operator's to say."""
    node.launched()
    node.wait(TIMEOUT - 1)
    assert node.hear(Working(launch=1)) == []
    assert isinstance(node.wait(1)[0], Stop)


def test_a_new_launch_is_as_if_it_had_never_been_ready(node: Node):
    node.ready()
    node.hear(Ended(launch=1, signal=9))
    node.wait(1)
    node.launched()
    node.wait(TIMEOUT - 1)
    node.hear(Working(launch=2))
    assert isinstance(node.wait(1)[0], Stop)
    failure = node.shard().failure
    assert failure is not None and failure.text == "was not ready 10m00s after its launch"


def test_what_an_earlier_launch_did_changes_nothing(node: Node):
    node.ready()
    before = node.shard()
    node.hear(Ended(launch=0, exit_status=1))
    assert node.shard() == before


# --- stopping ---------------------------------------------------------------------------------------------------


def test_a_shard_that_is_stopped_on_purpose_has_not_failed(node: Node):
    node.ready()
    (step,) = node.want(wanted(order(want=Want.STOP)))
    assert isinstance(step, Stop)
    assert node.shard().state is S.DRAINING  # nothing is sent to it any more
    node.hear(Ended(launch=1, signal=15))
    assert (node.shard().state, node.shard().failure) == (S.STOPPED, None)
    assert node.wait(10_000) == []


def test_a_drain_waits_for_the_last_request(node: Node):
    node.ready()
    assert node.want(wanted(order(want=Want.DRAIN))) == []
    assert next_due(node.shards.values()) == node.now + 30
    assert isinstance(node.hear(Idle(launch=1))[0], Stop)


def test_a_drain_does_not_wait_for_ever(node: Node):
    node.ready()
    node.want(wanted(order(want=Want.DRAIN)))
    assert node.wait(29) == []
    assert isinstance(node.wait(1)[0], Stop)


def test_a_drain_that_was_begun_is_finished_before_the_shard_runs_again(node: Node):
    node.ready()
    node.want(wanted(order(want=Want.DRAIN)))
    assert node.want(wanted(order())) == []
    assert isinstance(node.hear(Idle(launch=1))[0], Stop)
    (step,) = node.hear(Ended(launch=1, exit_status=0))
    assert isinstance(step, Launch)
    assert step.launch == 2


def test_a_stop_given_while_it_is_launched_comes_after_the_launch(node: Node):
    assert node.want(wanted(order(want=Want.STOP))) == []
    node.launched()
    assert isinstance(node.steps[-1], Stop)


def test_a_shard_that_was_stopped_and_is_wanted_again_may_be_refused(node: Node):
    node.ready()
    node.want(wanted(order(want=Want.STOP)))
    node.hear(Ended(launch=1, exit_status=0))
    node.want(wanted(order()))
    node.hear(NotStarted(launch=2, text="its weights are gone"))
    assert node.shard().state is S.FAILED


# --- omission ---------------------------------------------------------------------------------------------------


def test_omission_by_a_leader_that_is_not_settled_stops_nothing(node: Node):
    node.ready()
    assert node.want(wanted(settled=False)) == []
    assert node.wait(10_000) == []
    assert node.shard().state is S.READY


def test_omission_by_a_settled_leader_stops_and_then_forgets(node: Node):
    node.ready()
    assert isinstance(node.want(wanted())[0], Stop)
    (step,) = node.hear(Ended(launch=1, exit_status=0))
    assert isinstance(step, Forget)
    assert node.shard().state is S.STOPPED  # told until nothing of it is left
    node.hear(Forgotten(launch=1))
    assert not node.shards


def test_what_is_wanted_again_while_it_is_forgotten_is_launched_when_nothing_of_it_is_left(node: Node):
    """A launch whose directory is being removed would lose it."""
    node.ready()
    node.want(wanted())
    node.hear(Ended(launch=1, exit_status=0))
    assert node.want(wanted(order())) == []
    assert node.wait(10_000) == []
    assert isinstance(node.hear(Forgotten(launch=1))[0], Launch)


def test_without_any_desired_nothing_is_started_or_stopped():
    node = Node()
    node.shards = {
        NAMES[0]: LocalShard(order=order(), since=0.0, state=S.READY, process=Process(pid=1, host="", port=1))
    }
    assert node.wait(10_000) == []


def test_a_shard_that_failed_is_not_tried_again_when_nobody_lists_it(node: Node):
    node.launched()
    node.want(wanted(settled=False))
    node.hear(Ended(launch=1, exit_status=1))
    assert node.wait(10_000) == []


@pytest.mark.parametrize(
    ("desired", "words"),
    [
        (wanted(cluster="other", epoch=9), "cluster other"),
        (wanted(epoch=4), "epoch 4, epoch 5 was obeyed"),
    ],
)
def test_a_stale_or_foreign_leader_is_not_obeyed(desired: Desired, words: str):
    assert words in (objection(desired, 5, "demo") or "")


def test_the_same_epoch_and_the_first_one_ever_are_obeyed():
    assert objection(wanted(epoch=5), 5, "demo") is None
    assert objection(wanted(epoch=1), 0, "demo") is None


# --- coming back ------------------------------------------------------------------------------------------------

PROCESS = Process(pid=7, host="127.0.0.1", port=21001)


@pytest.mark.parametrize("state", list(ShardState))
@pytest.mark.parametrize("process", [None, PROCESS])
@pytest.mark.parametrize("ready", [True, False])
def test_whatever_was_kept_a_shard_comes_back_in_order(state: ShardState, process: Process | None, ready: bool):
    record = ShardReport(shard=NAMES[0], state=state, since=5.0, launch=3, attempts=2, order=order())
    shard = local_shard.recalled(
        record, order(), process, ready=ready and process is not None, now=900.0, start_timeout=60.0
    )
    check({NAMES[0]: shard})
    assert (shard.launch, shard.attempts) == (3, 2)
    node = Node()
    node.shards = {NAMES[0]: shard}
    node.want(wanted(order()))


def test_an_adopted_engine_that_answers_is_ready_since_it_became_so():
    record = ShardReport(shard=NAMES[0], state=S.READY, since=5.0, launch=1, order=order())
    shard = local_shard.recalled(record, order(), PROCESS, ready=True, now=900.0, start_timeout=60.0)
    assert (shard.state, shard.since) == (S.READY, 5.0)


def test_an_adopted_engine_that_does_not_answer_yet_gets_its_whole_time():
    record = ShardReport(shard=NAMES[0], state=S.READY, since=5.0, launch=1, order=order())
    shard = local_shard.recalled(record, order(), PROCESS, ready=False, now=900.0, start_timeout=60.0)
    assert (shard.state, shard.since, shard.start_by) == (S.STARTING, 900.0, 960.0)
    # Ready before, it may be at work: it is not taken for one that never gets ready.
    later = local_shard.happened(shard, Working(launch=1), 950.0, 60.0)
    assert later is not None and later.start_by == 1010.0


def test_after_a_power_cut_a_shard_is_launched_at_once_and_nothing_has_failed():
    record = ShardReport(shard=NAMES[0], state=S.READY, since=5.0, launch=4, order=order())
    node = Node()
    shard = local_shard.recalled(record, order(), None, ready=False, now=900.0, start_timeout=60.0)
    node.shards = {NAMES[0]: shard}
    (step,) = node.want(wanted(order()))
    assert isinstance(step, Launch)
    assert (step.launch, shard.failure) == (5, None)


# --- laws -------------------------------------------------------------------------------------------------------

orders = st.builds(order, st.sampled_from(NAMES), st.sampled_from(Want), st.sampled_from([0.0, 3.0, 30.0]))
desires = st.builds(
    lambda them, settled: wanted(*{one.shard: one for one in them}.values(), settled=settled),
    st.lists(orders, max_size=3),
    st.booleans(),
)
outcomes = st.sampled_from([Launched, NotStarted, OtherEngines, Healthy, Unhealthy, Working, Idle, Ended, Forgotten])
moments = st.one_of(
    st.tuples(st.just("want"), desires),
    st.tuples(st.just("hear"), st.tuples(st.sampled_from(NAMES), outcomes, st.integers(-1, 0))),
    st.tuples(st.just("wait"), st.sampled_from([0.1, 1.0, 30.0, 60.0, 700.0])),
)


def possible(node: Node, name: ShardId, kind: type, back: int) -> Outcome | None:
    """An outcome that could really come now: nothing is launched that is not being launched."""
    shard = node.shards.get(name)
    if shard is None:
        return None
    launch = shard.launch + back
    if kind in (Launched, NotStarted) and shard.doing is not Doing.LAUNCHING:
        return None
    if kind is Forgotten and shard.doing is not Doing.FORGETTING:
        return None
    if kind not in (Launched, NotStarted, OtherEngines, Forgotten) and shard.process is None:
        return None
    match kind:
        case local_shard.Launched:
            return Launched(launch=launch, process=PROCESS)
        case local_shard.NotStarted:
            return NotStarted(launch=launch, text="no")
        case local_shard.Ended:
            return Ended(launch=launch, signal=9)
        case _:
            made: Outcome = kind(launch=launch)
            return made


def play(node: Node, moment: tuple) -> None:
    match moment:
        case ("want", desired):
            node.want(desired)
        case ("wait", seconds):
            node.wait(seconds)
        case ("hear", (name, kind, back)):
            outcome = possible(node, name, kind, back)
            if outcome is not None:
                node.hear(outcome, name)


@settings(deadline=None)
@given(st.lists(moments, max_size=40))
def test_no_life_breaks_the_table_or_an_invariant(life: list):
    node = Node()
    launches: dict[ShardId, int] = {}
    for moment in life:
        before, seen = dict(node.shards), len(node.steps)
        play(node, moment)
        for name in before.keys() - node.shards.keys():
            launches.pop(name, None)
        for step in node.steps[seen:]:
            match step:
                case Launch():
                    name = step.order.shard
                    new = before.get(name) is None or before[name].doing is Doing.FORGETTING
                    assert new or step.launch > launches.get(name, 0)
                    launches[name] = step.launch
                case Stop():
                    listed = node.desired and any(one.shard == step.shard for one in node.desired.shards)
                    overdue = node.shards[step.shard].state is S.FAILED
                    draining = before[step.shard].state is S.DRAINING
                    assert listed or overdue or draining or (node.desired and node.desired.settled)
                case Forget():
                    assert node.desired is not None and node.desired.settled
        for shard in node.shards.values():
            if shard.retry_at is not None and shard.state is S.FAILED:
                assert shard.retry_at <= node.now + 60.0


@settings(deadline=None)
@given(st.lists(moments, max_size=25), desires)
def test_in_a_world_that_works_every_node_becomes_what_is_desired(life: list, desired: Desired):
    node = Node()
    for moment in life:
        play(node, moment)
    node.want(replace(desired, settled=True))
    for _ in range(60):
        for name, shard in list(node.shards.items()):
            if shard.doing is Doing.LAUNCHING:
                node.launched(name)
            elif shard.doing is Doing.STOPPING:
                node.hear(Ended(launch=shard.launch, exit_status=0), name)
            elif shard.doing is Doing.FORGETTING:
                node.hear(Forgotten(launch=shard.launch), name)
            elif shard.state is S.STARTING:
                node.hear(Healthy(launch=shard.launch), name)
            elif shard.state is S.DRAINING:
                node.hear(Idle(launch=shard.launch), name)
        node.wait(2.0)
    states = {one.shard: S.READY if one.want is Want.RUN else S.STOPPED for one in desired.shards}
    assert {name: shard.state for name, shard in node.shards.items()} == states


@settings(deadline=None)
@given(st.lists(moments, max_size=30))
def test_every_shard_can_be_reported(life: list):
    node = Node()
    for moment in life:
        play(node, moment)
    for shard in node.shards.values():
        told = local_shard.report(shard)
        assert (told.pid is None) == (told.port is None) == (shard.process is None)
        assert told.retry_at is None or told.state is S.FAILED


def test_many_failures_do_not_make_a_message_without_end():
    """The newest failures keep their lines; a control plane refuses what is too long, with all that it says."""
    failed = []
    for number in range(100):
        node = Node()
        node.want(wanted(order()))
        node.launched()
        node.now += number
        node.hear(Ended(launch=1, exit_status=1, last_lines=("x" * 500,) * 40))
        failed.append(node.shard())
    told = local_shard.reports(failed)
    lines = [report.failure.last_lines for report in told if report.failure]
    assert len(lines) == 100
    assert sum(len(line) for them in lines for line in them) <= local_shard.MOST_LINES_TEXT
    assert [bool(them) for them in lines] == [False] * 90 + [True] * 10
