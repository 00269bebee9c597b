"""The control plane's decisions, told as what happens to a small cluster."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llmgw.core import placement
from llmgw.core.effects import EndSession, Fault, Publish, PublishRoutes, SendDesired
from llmgw.core.errors import TooMany, UnknownModel
from llmgw.core.events import EventKind
from llmgw.core.facts import EngineReport, Engines, Failure, FailureKind, Want
from llmgw.core.inputs import (
    AgentBeat,
    AgentGone,
    AgentRegistered,
    AgentReported,
    AgentTurnedAway,
    CatalogLoaded,
    Overslept,
    ScaleModel,
    Tick,
)
from llmgw.core.inventory import Gpu, Usage
from llmgw.core.link import Heartbeat, Refused, Report
from llmgw.core.names import ShardId, node_name
from llmgw.core.presence import NodeState
from llmgw.core.refusals import EngineMissing, NodeAway, NotEnoughMemory, RefusedByNode, Verdict, WillNotObey
from llmgw.core.shard import ShardState
from llmgw.core.units import GIB, MIB, Bytes
from llmgw.core.views import ModelState, Noun, ReplicaView
from tests.core.stage import LLAMA, SETTINGS, Agent, Stage, inventory, model, running, three_nodes


def test_two_replicas_come_up_on_two_nodes() -> None:
    stage = three_nodes()
    assert stage.replicas() == {"gemma/0": "node01", "gemma/1": "node02"}
    assert stage.model().state is ModelState.READY
    assert stage.model().ready == 2


def test_nothing_is_placed_before_the_cluster_is_settled() -> None:
    """With an empty store the engines of an earlier control plane may still run: let their agents come first."""
    stage = Stage(model())
    stage.join(Agent("node01"))
    assert stage.replicas() == {}
    assert stage.cluster.routes() is None
    stage.later(SETTINGS.settle)
    assert len(stage.replicas()) == 2
    assert stage.cluster.routes() is not None


def test_an_operators_act_does_not_wait_for_that() -> None:
    stage = Stage(model(replicas=0))
    stage.join(Agent("node01"))
    stage.scale("gemma", 1)
    assert stage.replicas() == {"gemma/0": "node01"}


def test_a_node_that_goes_is_unreachable_at_once_then_lost_and_its_replica_placed_elsewhere() -> None:
    stage = three_nodes()
    stage.leave(stage.agents["node01"])
    assert stage.node("node01").state is NodeState.UNREACHABLE
    assert stage.model().state is ModelState.DEGRADED
    assert stage.replicas() == {"gemma/0": "node01", "gemma/1": "node02"}
    stage.later(SETTINGS.lost_after)
    assert stage.node("node01").state is NodeState.LOST
    assert stage.replicas() == {"gemma/0": "node01", "gemma/1": "node02", "gemma/2": "node03"}
    placed, lost = stage.last(EventKind.REPLICA_PLACED), stage.last(EventKind.NODE_LOST)
    assert placed.cause == lost.seq


def test_a_silent_node_is_unreachable_after_three_beats() -> None:
    stage = three_nodes()
    stage.later(3 * SETTINGS.heartbeat - 0.1, beating=False)
    assert stage.node("node01").state is NodeState.READY
    stage.later(0.2, beating=False)
    assert stage.node("node01").state is NodeState.UNREACHABLE
    stage.beat(stage.agents["node01"])
    assert stage.node("node01").state is NodeState.READY


def test_the_lost_nodes_engine_is_adopted_when_it_returns_and_the_younger_surplus_goes() -> None:
    stage = three_nodes()
    away = stage.agents["node01"]
    stage.leave(away)
    stage.later(SETTINGS.lost_after)
    stage.obey()
    pid = away.shards[ShardId("gemma/0.0")].pid
    stage.join(away)
    assert stage.replicas() == {"gemma/0": "node01", "gemma/1": "node02", "gemma/2": "node03 leaving"}
    stage.obey()
    assert stage.replicas() == {"gemma/0": "node01", "gemma/1": "node02"}
    assert away.shards[ShardId("gemma/0.0")].pid == pid


def test_the_route_of_an_unreachable_and_even_of_a_lost_node_stays_until_its_replica_is_drained() -> None:
    stage = three_nodes()
    stage.leave(stage.agents["node01"])
    stage.later(SETTINGS.lost_after)
    stage.obey()
    routes = stage.cluster.routes()
    assert routes is not None
    assert [place.id for place in routes.routes[0].replicas] == ["gemma/0", "gemma/1", "gemma/2"]
    stage.join(stage.agents["node01"])
    routes = stage.cluster.routes()
    assert routes is not None
    assert [place.id for place in routes.routes[0].replicas] == ["gemma/0", "gemma/1"]


def test_why_explains_each_node_when_a_lost_replica_cannot_be_placed_elsewhere() -> None:
    stage = Stage(model(replicas=2, memory=5 * GIB))
    stage.join(Agent("node01"), Agent("node02"), Agent("node03", engines=Engines(probed_at=stage.now)))
    stage.later(SETTINGS.settle)
    stage.obey()
    stage.leave(stage.agents["node01"])
    stage.later(SETTINGS.lost_after + 10)
    why = stage.cluster.why("gemma", stage.now)
    assert (why.wanted, why.placed) == (2, 1)
    by_node = {refusal.node: refusal for refusal in why.refusals}
    assert isinstance(by_node["node01"], NodeAway) and by_node["node01"].lost
    assert isinstance(by_node["node02"], NotEnoughMemory)
    assert isinstance(by_node["node03"], EngineMissing)
    assert [refusal.verdict for refusal in why.refusals] == [Verdict.NOT_NOW, Verdict.NOT_NOW, Verdict.NEVER]
    assert stage.model().refusals
    assert stage.last(EventKind.PLACE_REFUSED).text == "1 more wanted; 3 nodes: 1 never, 2 not now"


def test_a_refusal_whose_numbers_only_grow_older_is_no_news() -> None:
    stage = Stage(model(replicas=1, memory=50 * GIB))
    stage.join(Agent("node01"))
    stage.later(SETTINGS.settle + 60)
    assert stage.kinds().count(EventKind.PLACE_REFUSED) == 1


def test_a_model_that_did_not_fit_is_placed_when_a_node_says_it_has_more_memory() -> None:
    stage = Stage(model(replicas=1, memory=10 * GIB))
    stage.join(Agent("node01"))
    stage.later(SETTINGS.settle)
    assert stage.model().state is ModelState.REFUSED
    stage.report(stage.agents["node01"], inventory=inventory(16 * GIB))
    assert stage.replicas() == {"gemma/0": "node01"}
    assert stage.model().refusals == ()


def test_memory_is_promised_until_a_leaving_replica_is_really_gone() -> None:
    stage = Stage(model(replicas=1, memory=5 * GIB), model("other", replicas=0, memory=5 * GIB))
    stage.join(Agent("node01"))
    stage.later(SETTINGS.settle)
    stage.obey()
    stage.scale("gemma", 0)
    stage.scale("other", 1)
    assert stage.model("other").state is ModelState.REFUSED
    stage.obey()
    assert stage.replicas() == {"other/0": "node01"}


def test_a_stop_given_while_the_node_is_away_is_not_lost() -> None:
    stage = three_nodes()
    away = stage.agents["node02"]
    stage.leave(away)
    stage.scale("gemma", 1)
    assert stage.replicas() == {"gemma/0": "node01", "gemma/1": "node02 leaving"}
    stage.join(away)
    order = next(order for order in stage.cluster.desired(away.registration().node).shards)
    assert order.want is Want.DRAIN
    stage.obey()
    assert stage.replicas() == {"gemma/0": "node01"}


def test_ordinals_are_never_used_again() -> None:
    stage = three_nodes()
    for replicas in (0, 2, 0, 1):
        stage.scale("gemma", replicas)
        stage.obey()
    assert stage.replicas() == {"gemma/4": "node01"}


def test_a_restarted_control_plane_restarts_nothing() -> None:
    before = three_nodes()
    after = Stage(model(), stored=before.stored(), epoch=2)
    after.join(*before.agents.values())
    assert after.cluster.settled
    after.obey()
    assert after.replicas() == before.replicas()
    assert EventKind.REPLICA_PLACED not in after.kinds()
    assert EventKind.SHARD_STARTING not in after.kinds()


def test_no_node_is_lost_before_the_settle_time_after_a_start() -> None:
    before = three_nodes()
    quick = replace(SETTINGS, lost_after=1.0)
    after = Stage(model(), stored=before.stored(), settings=quick, epoch=2)
    after.later(SETTINGS.settle - 0.1)
    assert EventKind.NODE_LOST not in after.kinds()
    after.later(1.0)
    assert after.kinds().count(EventKind.NODE_LOST) == 3


def test_an_empty_store_adopts_what_runs_and_stops_nothing() -> None:
    before = three_nodes()
    after = Stage(model(replicas=1), epoch=2)
    after.join(*before.agents.values())
    after.later(SETTINGS.settle)
    after.obey()
    assert after.replicas() == {"gemma/0": "node01", "gemma/1": "node02"}
    assert "adopted" in [warning.code for warning in after.node("node01").warnings]
    assert after.ordinals["gemma"] == 2  # type: ignore[index]


def test_an_operators_scale_makes_adopted_replicas_ordinary_ones() -> None:
    before = three_nodes()
    after = Stage(model(replicas=3), epoch=2)
    after.join(*before.agents.values())
    after.later(SETTINGS.settle)
    after.obey()
    after.scale("gemma", 1)
    after.obey()
    assert after.replicas() == {"gemma/0": "node01"}


def test_a_second_engine_of_the_same_name_is_a_stray_that_keeps_running_without_requests() -> None:
    stage = three_nodes()
    twin = Agent("node04")
    order = stage.agents["node01"].shards[ShardId("gemma/0.0")].order
    twin.shards[ShardId("gemma/0.0")] = running(ShardId("gemma/0.0"), stage.now, order=order, port=21999)
    stage.join(twin)
    stage.obey()
    assert ShardId("gemma/0.0") in twin.shards
    assert "stray_engine" in [warning.code for warning in stage.node("node04").warnings]
    routes = stage.cluster.routes()
    assert routes is not None
    assert 21999 not in [place.port for place in routes.routes[0].replicas]


def test_a_node_that_will_not_start_a_model_is_passed_over_for_a_while_in_its_own_words() -> None:
    stage = Stage(model(replicas=1))
    stage.join(Agent("node01"), Agent("node02"))
    stage.later(SETTINGS.settle)
    words = "weights /w/m.gguf are not there"
    stage.fails(stage.agents["node01"], "gemma/0.0", FailureKind.REFUSED, words)
    assert stage.replicas() == {"gemma/0": "node01 leaving", "gemma/1": "node02"}
    refusal = next(r for r in stage.cluster.why("gemma", stage.now).refusals if r.node == "node01")
    assert isinstance(refusal, RefusedByNode) and refusal.text == words
    stage.obey()
    stage.fails(stage.agents["node02"], "gemma/1.0", FailureKind.REFUSED, words)
    stage.obey()
    assert stage.model().state is ModelState.REFUSED
    stage.later(61)
    assert stage.replicas() == {"gemma/2": "node01"}


def test_an_engine_that_dies_is_an_event_with_its_last_lines_and_stays_where_it_is() -> None:
    stage = three_nodes()
    stage.fails(stage.agents["node01"], "gemma/0.0", FailureKind.EXITED, "killed by signal 9", signal=9)
    event = stage.last(EventKind.SHARD_FAILED)
    assert "killed by signal 9" in event.text and event.lines == ("last words",)
    assert stage.replicas() == {"gemma/0": "node01", "gemma/1": "node02"}
    assert stage.model().state is ModelState.DEGRADED


def test_a_second_machine_with_a_nodes_name_is_refused_until_the_first_is_lost() -> None:
    stage = three_nodes()
    first, second = stage.agents["node01"], Agent("node01", machine="another")
    stage.join(second)
    answer = stage.answers[4]
    assert isinstance(answer, Refused) and answer.code == "name_taken"
    assert "machine-of-node01" in answer.text and "another" in answer.text
    assert stage.node("node01").state is NodeState.READY
    stage.agents["node01"] = first
    stage.leave(first)
    stage.later(SETTINGS.lost_after)
    stage.join(second)
    assert stage.machines["node01"] == "another"  # type: ignore[index]


def test_a_refused_agent_that_tries_for_ever_does_not_fill_the_history() -> None:
    stage = three_nodes()
    for _ in range(50):
        stage.join(Agent("node01", machine="another"))
        stage.agents["node01"].session = None
    assert stage.kinds().count(EventKind.NODE_REFUSED) == 1


def test_a_certificate_for_another_node_is_one_event_in_a_while_for_each_node_that_is_claimed() -> None:
    stage = Stage()
    for claim in ("node02", "node02", "node03"):
        text = f"certificate is for node01, the agent says it is {claim}"
        stage.apply(AgentTurnedAway(node=node_name(claim), holder="node01", text=text))
    assert [one.subject for one in stage.events if one.kind is EventKind.NODE_REFUSED] == ["node02", "node03"]
    stage.later(600)
    stage.apply(AgentTurnedAway(node=node_name("node02"), holder="node01", text="again"))
    assert stage.last(EventKind.NODE_REFUSED).text == "again"


def test_an_agent_of_another_cluster_is_refused_with_the_way_out() -> None:
    stage = Stage(model())
    stage.join(Agent("node01", cluster="elsewhere"))
    answer = stage.answers[1]
    assert isinstance(answer, Refused) and answer.code == "other_cluster"
    assert "elsewhere" in answer.text and "test" in answer.text


def test_the_newest_session_of_a_machine_wins() -> None:
    stage = three_nodes()
    agent = stage.agents["node01"]
    old = agent.session
    assert old is not None
    stage._session += 1
    effects = stage.apply(AgentRegistered(session=stage._session, registration=agent.registration()))
    assert any(isinstance(effect, EndSession) and effect.session == old for effect in effects)
    agent.session = old
    stage.leave(agent)
    assert stage.node("node01").state is NodeState.READY, "the end of a session that was replaced is no news"


def test_every_session_is_sent_its_desired() -> None:
    stage = three_nodes()
    agent = stage.agents["node03"]
    stage.leave(agent)
    effects_before = len(stage.events)
    stage._session += 1
    effects = stage.apply(AgentRegistered(session=stage._session, registration=agent.registration()))
    assert SendDesired(agent.registration().node) in effects
    assert len(stage.events) > effects_before


def test_a_beat_that_changes_nothing_to_see_has_no_effects() -> None:
    stage = three_nodes()
    agent = stage.agents["node01"]
    stage.beat(agent)
    assert agent.session is not None
    beat = AgentBeat(
        session=agent.session,
        node=agent.registration().node,
        heartbeat=Heartbeat(at=stage.now, usage=Usage(memory_available=GIB)),
    )
    assert stage.apply(beat) == []


@pytest.mark.parametrize(("used", "shown"), [((5, 0), False), ((5, 79 * GIB), True), ((5 * GIB,), True)])
def test_a_beat_is_shown_when_the_memory_in_use_of_a_gpu_moved(used: tuple[int, ...], shown: bool) -> None:
    stage = three_nodes()
    agent = stage.agents["node01"]
    gpus = tuple(Gpu(index=index, uuid=f"GPU-{index}", memory=Bytes(80 * GIB)) for index in range(2))
    stage.report(agent, inventory=replace(inventory(), gpus=gpus))
    assert agent.session is not None
    for gpu_used in ((Bytes(0), Bytes(0)), tuple(map(Bytes, used))):
        usage = Usage(memory_available=GIB, gpu_used=gpu_used)
        beat = AgentBeat(
            session=agent.session, node=agent.registration().node, heartbeat=Heartbeat(at=stage.now, usage=usage)
        )
        effects = stage.apply(beat)
    assert (effects != []) is shown
    assert (stage.node("node01").usage == usage) is shown


def test_a_report_that_says_the_same_again_touches_no_replica() -> None:
    stage = three_nodes()
    agent = stage.agents["node01"]
    assert agent.session is not None
    effects = stage.apply(
        AgentReported(
            session=agent.session,
            node=agent.registration().node,
            report=Report(shards=tuple(agent.shards.values())),
        )
    )
    assert not [effect for effect in effects if isinstance(effect, SendDesired | PublishRoutes)]
    assert Publish(Noun.REPLICAS, "gemma/0") not in effects


def test_scale_refuses_what_makes_no_sense_and_changes_nothing() -> None:
    stage = three_nodes()
    events = len(stage.events)
    with pytest.raises(UnknownModel, match="known: gemma"):
        stage.scale("lama", 1)
    with pytest.raises(TooMany):
        stage.scale("gemma", 10_001)
    assert len(stage.events) == events


def test_the_file_overrules_a_scale_when_its_own_entry_changes() -> None:
    stage = three_nodes()
    stage.scale("gemma", 1)
    stage.apply(CatalogLoaded(models={model().name: model()}))
    assert stage.model().wanted == 1, "the same entry again changes nothing"
    stage.apply(CatalogLoaded(models={model().name: model(replicas=3)}))
    assert stage.model().wanted == 3
    text = stage.last(EventKind.OVERLAY_OVERRULED).text
    assert "3" in text and "1" in text


def test_a_model_that_leaves_the_file_is_drained() -> None:
    stage = three_nodes()
    stage.apply(CatalogLoaded(models={}))
    stage.obey()
    assert stage.replicas() == {}
    assert stage.kinds("gemma")[-1] is EventKind.MODEL_REMOVED


def test_an_engine_that_breaks_bars_new_placements_and_stops_nothing() -> None:
    stage = three_nodes()
    broken = Engines(probed_at=stage.now, engines=(EngineReport(engine="llama.cpp", problem="libgomp.so.1 is gone"),))
    stage.report(stage.agents["node01"], engines=broken)
    assert stage.replicas()["gemma/0"] == "node01"
    assert "libgomp.so.1 is gone" in stage.last(EventKind.ENGINES_CHANGED).text
    assert stage.node("node01").warnings[0].code == "engine_broken"


def test_causes_lead_from_a_failed_engine_back_to_the_act() -> None:
    stage = Stage(model(replicas=0))
    stage.join(Agent("node01"))
    stage.later(SETTINGS.settle)
    stage.scale("gemma", 2)
    stage.scale("gemma", 0)
    stage.obey()
    stage.scale("gemma", 1)
    stage.obey()
    stage.fails(stage.agents["node01"], "gemma/2.0", FailureKind.EXITED, "exit 1", exit_status=1)
    by_seq = {event.seq: event for event in stage.events}
    chain, event = [], by_seq[stage.last(EventKind.SHARD_FAILED).seq]
    while event.cause:
        chain.append(event.kind)
        event = by_seq[event.cause]
    assert [*chain, event.kind] == [
        EventKind.SHARD_FAILED,
        EventKind.SHARD_READY,
        EventKind.REPLICA_PLACED,
        EventKind.MODEL_SCALED,
    ]


ACTS = st.lists(
    st.one_of(
        st.tuples(st.just("scale"), st.sampled_from(["a", "b"]), st.integers(0, 4)),
        st.tuples(st.just("leave"), st.sampled_from(["node01", "node02", "node03"]), st.just(0)),
        st.tuples(st.just("join"), st.sampled_from(["node01", "node02", "node03"]), st.just(0)),
        st.tuples(st.just("obey"), st.sampled_from(["node01", "node02", "node03"]), st.just(0)),
        st.tuples(st.just("later"), st.just(""), st.integers(1, 40)),
        st.tuples(st.just("restart"), st.just(""), st.just(0)),
    ),
    max_size=25,
)


MODELS = (model("a", replicas=2, memory=3 * GIB), model("b", replicas=1, memory=500 * MIB))


@settings(max_examples=150, deadline=None)
@given(ACTS)
def test_laws_hold_whatever_happens(acts: list[tuple[str, str, int]]) -> None:
    """Memory is never over-promised; and when all is calm, what is wanted runs, or every node says why not."""
    stage = Stage(*MODELS)
    agents = {name: Agent(name) for name in ("node01", "node02", "node03")}
    for act, name, number in acts:
        stage = acted(stage, agents, act, name, number)
        for node in stage.cluster.names(Noun.NODES):
            assert stage.node(node).promised <= 8 * GIB
    stage.join(*(agent for agent in agents.values() if agent.session is None))
    stage.later(SETTINGS.settle + SETTINGS.lost_after)
    for _ in range(3):
        stage.obey()
    for view in (stage.model("a"), stage.model("b")):
        assert view.ready == view.wanted or len(view.refusals) == 3
    assert [where for where in stage.replicas().values() if "leaving" in where] == []


def acted(stage: Stage, agents: dict[str, Agent], act: str, name: str, number: int) -> Stage:
    """Do one act, where it can be done; a restart gives another stage."""
    connected = name in agents and agents[name].session is not None
    match act:
        case "scale":
            stage.scale(name, number)
        case "leave" if connected:
            stage.leave(agents[name])
        case "join" if not connected:
            stage.join(agents[name])
        case "obey" if connected:
            stage.obey(name)
        case "later":
            stage.later(number)
        case "restart":
            return restarted(stage, agents)
    return stage


def restarted(stage: Stage, agents: dict[str, Agent]) -> Stage:
    after = Stage(*MODELS, stored=stage.stored(), epoch=2)
    after.now = stage.now
    for agent in agents.values():
        agent.session = None
    return after


def test_stored_assignments_of_a_model_that_is_gone_are_drained_once_settled() -> None:
    before = three_nodes()
    after = Stage(stored=before.stored(), epoch=2)
    after.join(*before.agents.values())
    after.obey()
    assert after.replicas() == {}
    assert "no longer in server.yaml" in after.last(EventKind.REPLICA_DRAINED).text


def test_a_start_is_one_event_whatever_the_file_declares() -> None:
    stage = Stage(model(), model("other"))
    assert stage.kinds() == [EventKind.CONTROL_STARTED]
    assert stage.events[0].text == "epoch 1; 2 models declared, 0 replicas remembered"
    stage.apply(CatalogLoaded(models={one.name: one for one in (model(), model("third", replicas=1))}))
    assert stage.kinds()[1:] == [EventKind.MODEL_REMOVED, EventKind.MODEL_ADDED]


def test_an_unknown_node_in_the_store_counts_as_away() -> None:
    before = three_nodes()
    after = Stage(model(), stored=before.stored(), epoch=2)
    assert after.node("node01").inventory is None
    assert after.model().state is ModelState.STARTING
    refusals = after.cluster.why("gemma", after.now).refusals
    assert {type(refusal) for refusal in refusals} == {NodeAway}


def test_shard_states_of_a_replica_are_shown_as_reported() -> None:
    stage = Stage(model(replicas=1))
    stage.join(Agent("node01", engines=LLAMA))
    stage.later(SETTINGS.settle)
    view = stage.cluster.view(Noun.REPLICAS, "gemma/0")
    assert view.state is ShardState.PLACED  # type: ignore[union-attr]


# --- what must not happen again ---------------------------------------------------------------------------------


def test_a_control_plane_that_overslept_calls_no_node_unreachable() -> None:
    """It was stopped, or its disk was slow: nobody could be heard, and that is not their fault."""
    stage = three_nodes()
    stage.now += 500
    stage.apply(Overslept(seconds=500))
    stage.apply(Tick())
    assert [stage.node(name).state for name in stage.cluster.names(Noun.NODES)] == [NodeState.READY] * 3
    stage.later(3 * SETTINGS.heartbeat + 1, beating=False)
    assert stage.node("node01").state is NodeState.UNREACHABLE, "it is given that time, not more"


def test_after_oversleeping_at_a_start_the_nodes_still_have_their_time_to_return() -> None:
    before = three_nodes()
    after = Stage(model(), stored=before.stored(), settings=replace(SETTINGS, lost_after=1.0), epoch=2)
    after.now += 100
    after.apply(Overslept(seconds=100))
    after.apply(Tick())
    assert EventKind.NODE_LOST not in after.kinds()


def stray_on(stage: Stage, name: str = "node04", shard: str = "gemma/0.0") -> Agent:
    twin = Agent(name)
    order = stage.agents["node01"].shards[ShardId("gemma/0.0")].order
    assert order is not None
    order = replace(order, shard=ShardId(shard))
    twin.shards[ShardId(shard)] = running(ShardId(shard), stage.now, order=order, port=21999)
    stage.join(twin)
    return twin


def test_a_stray_that_ends_is_not_ordered_again() -> None:
    stage = three_nodes()
    twin = stray_on(stage)
    stage.fails(twin, "gemma/0.0", FailureKind.EXITED, "killed by hand", signal=15)
    assert stage.cluster.desired(twin.registration().node).shards == ()
    assert stage.node("node04").warnings == ()


def test_a_stray_whose_namesake_went_is_ordered_once_and_adopted_when_there_is_a_place() -> None:
    stage = three_nodes(model(memory=5 * GIB))
    twin = stray_on(stage)
    stage.scale("gemma", 0)
    stage.obey("node01", "node02")
    stage.report(twin)
    assert stage.replicas() == {}
    orders = stage.cluster.desired(twin.registration().node).shards
    assert [(order.shard, order.want) for order in orders] == [("gemma/0.0", Want.RUN)]
    stage.scale("gemma", 4)
    assert stage.replicas()["gemma/0"] == "node04", "before another is placed there"
    assert len(stage.replicas()) == 4
    assert stage.model().refusals == ()
    stage.scale("gemma", 0)
    stage.obey()
    assert stage.replicas() == {}


def test_a_node_that_says_it_runs_a_model_draws_nothing_to_itself() -> None:
    stage = three_nodes()
    twin = stray_on(stage, shard="gemma/70.0")
    assert stage.replicas() == {"gemma/0": "node01", "gemma/1": "node02"}
    assert stage.node("node04").promised == 600 * MIB, "its memory is in use all the same"
    assert "stray_engine" in [warning.code for warning in stage.node("node04").warnings]
    assert stage.last(EventKind.STRAY_FOUND).subject == "node04"
    stage.scale("gemma", 3)
    assert stage.replicas()["gemma/70"] == twin.name, "an operator made a place for it"
    assert stage.node("node04").warnings[0].code == "adopted" if stage.node("node04").warnings else True


def test_a_node_that_invents_engines_does_not_fill_the_history() -> None:
    stage = three_nodes()
    twin = stray_on(stage, shard="gemma/70.0")
    for number in range(100, 200):
        order = twin.shards[ShardId("gemma/70.0")].order
        assert order is not None
        twin.shards[ShardId(f"other/{number}.0")] = running(
            ShardId(f"other/{number}.0"), stage.now, order=replace(order, shard=ShardId(f"other/{number}.0"))
        )
        stage.report(twin)
    assert stage.kinds().count(EventKind.STRAY_FOUND) == 1


def test_what_was_found_fills_an_empty_place_also_later() -> None:
    stage = Stage(model(replicas=2))
    stage.later(SETTINGS.settle)
    lost = three_nodes().agents["node01"]
    lost.engines = Engines(probed_at=stage.now)
    stage.join(lost)
    assert stage.replicas() == {"gemma/0": "node01"}


def test_no_more_is_adopted_than_fits_the_node() -> None:
    stage = Stage(model(replicas=2))
    agent, order = Agent("node01"), three_nodes().agents["node01"].shards[ShardId("gemma/0.0")].order
    assert order is not None
    for number in range(100):
        shard = ShardId(f"gemma/{number}.0")
        agent.shards[shard] = running(shard, stage.now, order=replace(order, shard=shard))
    stage.join(agent)
    assert len(stage.replicas()) == 13, "of 600 MiB each in 8 GiB"
    agent.shards.clear()
    stage.report(agent)
    assert stage.replicas() == {}, "what was only found there ends with the report of it"


def test_an_invented_ordinal_does_not_use_up_the_names() -> None:
    stage = three_nodes()
    stray_on(stage, shard="gemma/999999999.0")
    stage.scale("gemma", 3)
    assert "gemma/2" in stage.replicas()


def test_what_was_found_of_a_model_that_is_not_declared_ends_when_an_operator_says_so() -> None:
    before = three_nodes()
    after = Stage(epoch=2)
    after.join(*before.agents.values())
    after.later(SETTINGS.settle)
    assert len(after.replicas()) == 2
    with pytest.raises(UnknownModel):
        after.scale("gemma", 1)
    after.scale("gemma", 0)
    after.obey()
    assert after.replicas() == {}


def test_a_changed_profile_is_said_and_shown_and_stops_nothing() -> None:
    stage = three_nodes()
    stage.apply(CatalogLoaded(models={model().name: model(context=9999)}))
    assert stage.replicas() == {"gemma/0": "node01", "gemma/1": "node02"}
    assert "2 replicas with the old profile" in stage.last(EventKind.MODEL_CHANGED).text
    view = stage.cluster.view(Noun.REPLICAS, "gemma/0")
    assert isinstance(view, ReplicaView) and view.outdated
    effects = stage.apply(CatalogLoaded(models={model().name: model()}))
    assert Publish(Noun.REPLICAS, "gemma/0") in effects, "that it is no longer outdated is said too"
    view = stage.cluster.view(Noun.REPLICAS, "gemma/0")
    assert isinstance(view, ReplicaView) and not view.outdated
    stage.apply(CatalogLoaded(models={model().name: model(context=9999)}))
    after = Stage(model(context=9999), stored=stage.stored(), epoch=2)
    assert "2 of them with an older profile" in after.last(EventKind.CONTROL_STARTED).text


@pytest.mark.parametrize("where", ["sessions.shards.take", "placing.fill", "cluster.Cluster._send_desired"])
def test_a_fault_of_ours_loses_nothing_that_was_done_before_it(monkeypatch: pytest.MonkeyPatch, where: str) -> None:
    """What is in memory must be in the store too, or a restart knows another cluster than its nodes."""

    def broken(*_: object) -> None:
        raise RuntimeError("ours")

    stage = Stage(model(replicas=1))
    stage.later(SETTINGS.settle)
    monkeypatch.setattr(f"llmgw.core.{where}", broken)
    effects = stage.apply(AgentRegistered(session=1, registration=Agent("node01").registration()))
    assert isinstance(effects[-1], Fault)
    assert stage.machines["node01"] == "machine-of-node01"  # type: ignore[index]
    assert stage.answers[1]


def test_an_act_long_ago_is_not_the_cause_of_what_happens_now() -> None:
    stage = three_nodes()
    stage.scale("gemma", 3)
    stage.obey()
    stage.later(600)
    stage.agents["node02"].inventory = inventory(MIB)
    for name in ("node01", "node03"):
        stage.leave(stage.agents[name])
    stage.leave(stage.agents["node02"])
    stage.later(SETTINGS.lost_after + 1)
    scaled = stage.last(EventKind.MODEL_SCALED)
    assert stage.last(EventKind.PLACE_REFUSED).cause > scaled.seq
    cause = next(event for event in stage.events if event.seq == stage.last(EventKind.PLACE_REFUSED).cause)
    assert cause.kind is EventKind.NODE_LOST


def test_nothing_is_placed_on_a_node_that_obeyed_a_later_epoch() -> None:
    stage = Stage(model(replicas=1), epoch=7)
    ahead = Agent("node01")
    stage.join(ahead, epoch=8)
    stage.later(SETTINGS.settle)
    assert stage.replicas() == {}
    assert isinstance(stage.model().refusals[0], WillNotObey)
    assert "epoch_ahead" in [warning.code for warning in stage.node("node01").warnings]


def test_an_older_stream_that_registers_late_replaces_no_newer_one() -> None:
    stage = three_nodes()
    agent = stage.agents["node01"]
    stage.apply(AgentRegistered(session=99, registration=agent.registration()))
    stage.apply(AgentRegistered(session=98, registration=agent.registration()))
    answer = stage.answers[98]
    assert isinstance(answer, Refused) and answer.code == "superseded"
    stage.apply(AgentGone(session=98, node=agent.registration().node, reason="superseded"))
    assert stage.node("node01").state is NodeState.READY


def test_how_long_until_a_retry_is_counted_on_the_nodes_own_clock() -> None:
    stage = three_nodes()
    agent = stage.agents["node01"]
    skewed = stage.now + 86_400
    failure = Failure(kind=FailureKind.EXITED, text="exit 1", exit_status=1, at=skewed)
    there = agent.shards[ShardId("gemma/0.0")]
    agent.shards[ShardId("gemma/0.0")] = replace(
        there, state=ShardState.FAILED, failure=failure, attempts=1, retry_at=skewed + 2
    )
    stage.report(agent)
    assert stage.last(EventKind.SHARD_FAILED).text.endswith("tried again in 2s")


def test_a_cluster_without_models_still_gives_routers_its_empty_table() -> None:
    stage = Stage()
    stage.now += SETTINGS.settle
    assert PublishRoutes() in stage.apply(Tick())


def test_a_node_that_rebooted_says_so_when_it_is_back() -> None:
    stage = three_nodes()
    agent = stage.agents["node01"]
    stage.leave(agent)
    stage.join(agent, boot="another")
    assert stage.last(EventKind.NODE_READY).text.startswith("rebooted and back")


def test_a_fork_shares_nothing_that_changes() -> None:
    stage = three_nodes()
    before = {noun: [stage.cluster.view(noun, name) for name in stage.cluster.names(noun)] for noun in Noun}
    fork = stage.cluster.fork()
    fork.apply(ScaleModel(model="gemma", replicas=0, by="root"), stage.now)
    fork.apply(CatalogLoaded(models={}), stage.now + 1)
    fork.apply(AgentGone(session=1, node=stage.agents["node01"].registration().node, reason="x"), stage.now + 100)
    assert before == {noun: [stage.cluster.view(noun, name) for name in stage.cluster.names(noun)] for noun in Noun}
    stage.cluster.check()
    fork.check()
    stage.cluster.become(fork)
    assert stage.cluster.names(Noun.MODELS) == []
    stage.cluster.check()


def test_one_death_is_one_event_though_the_next_launch_is_counted_before_it_runs() -> None:
    stage = three_nodes()
    agent = stage.agents["node01"]
    stage.fails(agent, "gemma/0.0", FailureKind.EXITED, "killed by signal 9", signal=9)
    failed = agent.shards[ShardId("gemma/0.0")]
    agent.shards[ShardId("gemma/0.0")] = replace(failed, launch=failed.launch + 1)
    stage.report(agent)
    assert stage.kinds().count(EventKind.SHARD_FAILED) == 1
    stage.fails(agent, "gemma/0.0", FailureKind.EXITED, "killed by signal 9", signal=9)
    assert stage.kinds().count(EventKind.SHARD_FAILED) == 2


def test_replicas_of_nodes_that_are_away_are_counted_apart_and_never_as_nothing() -> None:
    """Their engines serve on, and routers still reach them: "refused, 0 ready" would be a false alarm."""
    stage = Stage(model(replicas=2))
    stage.join(Agent("node01"))
    stage.later(SETTINGS.settle)
    stage.obey()
    stage.leave(stage.agents["node01"])
    assert (stage.model().ready, stage.model().away, stage.model().state) == (0, 2, ModelState.DEGRADED)
    stage.later(SETTINGS.lost_after)
    assert (stage.model().ready, stage.model().away, stage.model().state) == (0, 2, ModelState.DEGRADED)


def test_a_big_scale_is_one_plan() -> None:
    """Placing each replica anew took seconds for what is one pass over the nodes."""
    looks = 0
    stage = Stage(model(replicas=0, memory=100 * MIB))
    stage.join(*(Agent(f"node{number:02}") for number in range(20)))
    original = placement.refusal_of

    def counted(*args: object) -> object:
        nonlocal looks
        looks += 1
        return original(*args)  # type: ignore[arg-type]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(placement, "refusal_of", counted)
        stage.scale("gemma", 400)
    assert len(stage.replicas()) == 400
    assert looks <= 2 * 20 + 400
