"""A node says anew what it is: what is told of it, what it changes for models, and what is remembered."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llmgw.core.effects import Publish
from llmgw.core.events import EventKind
from llmgw.core.facts import EngineReport, Engines
from llmgw.core.inputs import AgentReported, CatalogLoaded
from llmgw.core.inventory import ByHand, Disk, Gpu, Inventory
from llmgw.core.link import Report
from llmgw.core.names import ModelName, NodeName
from llmgw.core.telling import BURST, EACH
from llmgw.core.units import GIB, MIB, TIB, Bytes
from llmgw.core.views import ModelState, Noun
from tests.core.stage import LLAMA, SETTINGS, T0, Agent, Stage, inventory, model, three_nodes

H100 = [Gpu(index=index, uuid=f"GPU-{index}", name="NVIDIA H100", memory=Bytes(80 * GIB)) for index in range(8)]
FAILED = "nvidia-smi: couldn't communicate with the NVIDIA driver (exit 9)"


def measured(memory: int, **fields: object) -> Inventory:
    """Of a machine whose agent.yaml states nothing."""
    return replace(inventory(memory), by_hand=(), **fields)  # type: ignore[arg-type]


def stated(memory: int) -> Inventory:
    return replace(inventory(memory), by_hand=(ByHand(field="memory", stated="6GiB", measured="8 GiB", differs=True),))


def vllm(version: str, problem: str = "") -> Engines:
    return Engines(
        probed_at=T0, engines=(*LLAMA.engines, EngineReport(engine="vllm", version=version, problem=problem))
    )


def served(*agents: Agent, models: tuple[object, ...] = ()) -> Stage:
    stage = Stage(*(models or (model(replicas=0),)))  # type: ignore[arg-type]
    stage.join(*agents)
    stage.later(SETTINGS.settle)
    return stage


# --- what it changes for models ---------------------------------------------------------------------------------


def test_a_vm_that_is_given_more_ram_makes_a_model_placed_and_the_event_says_why() -> None:
    stage = served(
        Agent("node01", inventory=measured(2 * GIB)), Agent("node02"), models=(model("big", 1, memory=10 * GIB),)
    )
    assert stage.model("big").state is ModelState.REFUSED
    stage.report(stage.agents["node01"], inventory=measured(16 * GIB))
    assert stage.replicas() == {"big/0": "node01"}
    placed = stage.last(EventKind.REPLICA_PLACED)
    assert stage.causes(placed) == [EventKind.REPLICA_PLACED, EventKind.NODE_QUALIFIES, EventKind.NODE_CHANGED]
    assert stage.last(EventKind.NODE_CHANGED).text == "memory 2 GiB → 16 GiB"
    assert stage.last(EventKind.NODE_QUALIFIES).text == "for big: memory 2 GiB → 16 GiB"


def test_the_same_when_it_had_to_be_rebooted_for_it() -> None:
    node = Agent("node01", inventory=measured(2 * GIB))
    stage = served(node, models=(model("big", 1, memory=10 * GIB),))
    stage.leave(node)
    node.inventory = measured(16 * GIB)
    stage.join(node, boot="another")
    placed = stage.last(EventKind.REPLICA_PLACED)
    assert stage.causes(placed) == [
        EventKind.REPLICA_PLACED,
        EventKind.NODE_QUALIFIES,
        EventKind.NODE_CHANGED,
        EventKind.NODE_READY,
    ]


def test_an_engine_that_is_newly_there_makes_the_node_qualify_for_its_models() -> None:
    models = [model(name, 0, engine="vllm") for name in ("llama3", "qwen")]
    stage = served(Agent("node01"), models=(model(), *models))
    stage.report(stage.agents["node01"], engines=vllm("0.33.0"))
    qualifies = stage.last(EventKind.NODE_QUALIFIES)
    assert qualifies.text == "for llama3, qwen: engine vllm 0.33.0 is newly there"
    assert stage.causes(qualifies) == [EventKind.NODE_QUALIFIES, EventKind.ENGINES_CHANGED]


def test_an_engine_that_breaks_disqualifies_the_node_in_its_own_words_and_what_runs_stays() -> None:
    stage = three_nodes()
    words = "libgomp.so.1 is missing"
    broken = Engines(probed_at=T0, engines=(EngineReport(engine="llama.cpp", problem=words),))
    before = stage.replicas()
    stage.report(stage.agents["node01"], engines=broken)
    assert stage.last(EventKind.NODE_DISQUALIFIED).text == f"no longer for gemma: engine broken: {words}"
    assert stage.replicas() == before
    stage.report(stage.agents["node01"], engines=LLAMA)
    assert stage.last(EventKind.NODE_QUALIFIES).text == "for gemma: engine llama.cpp b10991 works now"


def test_another_version_of_an_engine_qualifies_for_one_model_and_no_longer_for_another() -> None:
    models = (model("new", 0, engine="vllm", version="0.34"), model("old", 0, engine="vllm", version="0.33"))
    stage = served(Agent("node01", engines=vllm("0.33")), models=models)
    stage.report(stage.agents["node01"], engines=vllm("0.34"))
    assert stage.last(EventKind.NODE_QUALIFIES).text == "for new: engine vllm 0.34 is there now, it was 0.33"
    assert stage.last(EventKind.NODE_DISQUALIFIED).text == "no longer for old: engine: vllm 0.34, needs 0.33"


def test_a_node_that_lost_memory_is_no_longer_for_a_model_by_what_it_is_and_not_by_what_is_free() -> None:
    stage = served(Agent("node01", inventory=measured(8 * GIB)), models=(model("big", 1, memory=5 * GIB),))
    assert stage.replicas() == {"big/0": "node01"}, "so that nothing of it is free"
    stage.report(stage.agents["node01"], inventory=measured(4 * GIB))
    words = "memory: needs 5 GiB, engines may use 3.6 GiB (memory 8 GiB → 4 GiB)"
    assert stage.last(EventKind.NODE_DISQUALIFIED).text == f"no longer for big: {words}"
    assert stage.replicas() == {"big/0": "node01"}


def test_a_reserve_that_comes_with_measured_memory_is_told_with_enough_digits() -> None:
    stage = served(Agent("node01", inventory=stated(GIB)), models=(model("big", 0, memory=1000 * MIB),))
    stage.report(stage.agents["node01"], inventory=measured(GIB))
    words = "memory: needs 1000 MiB, engines may use 922 MiB (memory for engines 1 GiB → 922 MiB)"
    assert stage.last(EventKind.NODE_DISQUALIFIED).text == f"no longer for big: {words}"


def test_at_most_five_models_are_named_in_an_event() -> None:
    models = [model(f"m{number}", 0, memory=10 * GIB) for number in range(8)]
    stage = served(Agent("node01", inventory=measured(2 * GIB)), models=tuple(models))
    stage.report(stage.agents["node01"], inventory=measured(16 * GIB))
    text = stage.last(EventKind.NODE_QUALIFIES).text
    assert text == "for m0, m1, m2, m3, m4: memory 2 GiB → 16 GiB; and 3 more"


def test_a_node_that_is_new_says_what_it_is_good_for() -> None:
    stage = served(Agent("node01"), models=(model(replicas=1), model("big", 0, memory=10 * GIB)))
    joined, qualifies = stage.last(EventKind.NODE_JOINED), stage.last(EventKind.NODE_QUALIFIES)
    assert (qualifies.text, qualifies.cause) == ("for gemma", joined.seq)
    stage.join(Agent("node02", engines=Engines(probed_at=T0)))
    event = stage.last(EventKind.NODE_DISQUALIFIED)
    assert event.subject == "node02" and event.text == "not for big, gemma: engine: needs llama.cpp, has none"


def test_of_a_node_that_joins_where_there_are_no_models_nothing_more_is_said() -> None:
    stage = Stage()
    stage.join(Agent("node01"))
    assert stage.kinds("node01") == [EventKind.NODE_JOINED]


def test_what_is_placed_on_a_node_that_joins_is_placed_because_it_qualifies() -> None:
    stage = served(models=(model(replicas=1),))
    stage.join(Agent("node01"))
    placed = stage.last(EventKind.REPLICA_PLACED)
    assert stage.causes(placed) == [EventKind.REPLICA_PLACED, EventKind.NODE_QUALIFIES, EventKind.NODE_JOINED]


def test_a_node_that_comes_back_as_it_was_is_no_news_but_that_it_is_back() -> None:
    stage = three_nodes()
    node = stage.agents["node03"]
    stage.leave(node)
    seen = len(stage.events)
    stage.join(node)
    assert [event.kind for event in stage.events[seen:]] == [EventKind.NODE_READY]


def test_after_a_restart_of_the_control_plane_nothing_is_said_to_have_changed() -> None:
    before = three_nodes()
    after = Stage(model(), stored=before.stored(), epoch=2)
    after.join(*before.agents.values())
    kinds = set(after.kinds())
    assert not kinds & {EventKind.NODE_CHANGED, EventKind.NODE_QUALIFIES, EventKind.ENGINES_CHANGED}


def test_what_only_wobbles_touches_no_model() -> None:
    stage = three_nodes()
    disk = Disk(directory="/var/lib/llmgw", total=TIB, free=Bytes(TIB // 2))
    for free in (TIB // 2, TIB // 3):
        report = Report(
            shards=tuple(stage.agents["node01"].shards.values()),
            inventory=replace(inventory(), disks=(replace(disk, free=Bytes(free)),)),
        )
        seen = len(stage.events)
        effects = stage.apply(AgentReported(session=1, node=NodeName("node01"), report=report))
        assert [effect.noun for effect in effects if isinstance(effect, Publish)] == [Noun.NODES]
        assert stage.events[seen:] == []


def test_a_model_that_comes_or_changes_says_how_many_nodes_qualify() -> None:
    stage = three_nodes()
    stage.join(Agent("node04", inventory=measured(32 * GIB)))
    gemma, big = model(), model("big", 0, memory=10 * GIB)
    stage.apply(CatalogLoaded(models={one.name: one for one in (gemma, big)}))
    assert stage.last(EventKind.MODEL_ADDED).text == "0 replicas wanted; 1 of 4 nodes qualifies"
    bigger = model("big", 0, memory=7 * GIB)
    stage.apply(CatalogLoaded(models={one.name: one for one in (gemma, bigger)}))
    assert stage.last(EventKind.MODEL_CHANGED).text == "its entry in server.yaml changed; 4 of 4 nodes qualify"


def test_a_catalog_that_changes_as_a_whole_is_not_counted_on_a_large_fleet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("llmgw.core.models._MOST_COUNTED", 5)
    stage = three_nodes()
    new = [model(name, 0) for name in ("a", "b")]
    stage.apply(CatalogLoaded(models={one.name: one for one in (model(), *new)}))
    assert stage.last(EventKind.MODEL_ADDED).text == "0 replicas wanted"


# --- GPUs -------------------------------------------------------------------------------------------------------


def with_gpus(*gpus: Gpu, problem: str = "") -> Inventory:
    return measured(64 * GIB, gpus=gpus, gpu_problem=problem)


def test_a_gpu_that_was_there_and_is_gone_is_an_event_and_a_warning_until_it_is_back() -> None:
    stage = served(Agent("node01", inventory=with_gpus(*H100)))
    node = stage.agents["node01"]
    stage.report(node, inventory=with_gpus(*H100[:3], *H100[4:]))
    gone = stage.last(EventKind.GPU_GONE)
    assert gone.text == "GPU 3 NVIDIA H100 (GPU-3) was there and is gone; 7 GPUs left"
    assert stage.causes(gone) == [EventKind.GPU_GONE, EventKind.NODE_CHANGED]
    assert "NVIDIA H100 (GPU-3) was there and is gone" in stage.warned("node01")
    stage.leave(node)
    node.inventory = with_gpus(*H100[:3], *H100[4:])
    stage.join(node, boot="another")
    assert stage.kinds().count(EventKind.GPU_GONE) == 1
    assert "NVIDIA H100 (GPU-3) was there and is gone" in stage.warned("node01")
    stage.report(node, inventory=with_gpus(*H100))
    assert stage.warned("node01") == []
    assert stage.last(EventKind.NODE_CHANGED).text == "GPU 3 (NVIDIA H100) newly there, 8 GPUs now"


def test_a_probe_that_fails_is_no_loss_of_gpus_and_seven_of_eight_after_it_are() -> None:
    stage = served(Agent("node01", inventory=with_gpus(*H100)))
    node = stage.agents["node01"]
    stage.report(node, inventory=with_gpus(problem=FAILED))
    assert stage.last(EventKind.NODE_CHANGED).text == f"GPU probe failed: {FAILED}"
    assert EventKind.GPU_GONE not in stage.kinds()
    assert stage.warned("node01") == [f"GPUs: {FAILED}"]
    stage.report(node, inventory=with_gpus(*H100[1:]))
    text = "GPU probe works again; GPU 0 (NVIDIA H100) gone, 7 of 8 left"
    assert stage.last(EventKind.NODE_CHANGED).text == text
    assert stage.last(EventKind.GPU_GONE).text.startswith("GPU 0 NVIDIA H100 (GPU-0)")


def test_a_tool_that_lists_fewer_cards_and_says_so_has_not_failed() -> None:
    stage = served(Agent("node01", inventory=with_gpus(*H100)))
    words = "nvidia-smi lists 7 of 8 NVIDIA devices on the PCI bus"
    stage.report(stage.agents["node01"], inventory=with_gpus(*H100[:7], problem=words))
    assert stage.last(EventKind.GPU_GONE).text.startswith("GPU 7 ")


def test_of_many_cards_that_go_at_once_eight_have_an_event_each() -> None:
    many = [replace(H100[0], index=index, uuid=f"GPU-{index}") for index in range(16)]
    stage = served(Agent("node01", inventory=with_gpus(*many)))
    stage.report(stage.agents["node01"], inventory=with_gpus())
    assert stage.kinds().count(EventKind.GPU_GONE) == 9
    assert stage.last(EventKind.GPU_GONE).text == "and 8 GPUs more that were there and are gone"
    assert stage.last(EventKind.NODE_CHANGED).text == "16 × NVIDIA H100 gone, 0 of 16 left"


def test_parts_of_a_card_that_are_cut_anew_are_no_loss() -> None:
    card = replace(H100[0], divided=True)
    parts = [
        Gpu(index=0, uuid=f"MIG-{number}", name=name, parent=card.uuid)
        for number, name in enumerate(["MIG 1g.10gb", "MIG 1g.10gb", "MIG 3g.40gb"])
    ]
    stage = served(Agent("node01", inventory=with_gpus(card, *parts[:2])))
    stage.report(stage.agents["node01"], inventory=with_gpus(card, parts[2]))
    text = "GPU 0 parts 2 × MIG 1g.10gb → 1 × MIG 3g.40gb"
    assert stage.last(EventKind.NODE_CHANGED).text == text
    assert EventKind.GPU_GONE not in stage.kinds()


def test_another_machine_under_a_lost_nodes_name_has_lost_nothing() -> None:
    stage = served(Agent("node01", inventory=with_gpus(*H100)))
    stage.report(stage.agents["node01"], inventory=with_gpus(*H100[1:]))
    stage.leave(stage.agents["node01"])
    stage.later(SETTINGS.lost_after)
    stage.join(Agent("node01", machine="another", inventory=measured(4 * GIB)))
    assert stage.warned("node01") == []
    assert stage.kinds().count(EventKind.NODE_CHANGED) == 1
    assert stage.last(EventKind.NODE_READY).text.startswith("another machine under its name after ")
    assert stage.memories["node01"] == 4 * GIB  # type: ignore[index]


# --- memory -----------------------------------------------------------------------------------------------------


def test_less_memory_than_it_registered_with_is_a_warning_after_a_restart_too() -> None:
    stage = served(Agent("node01", inventory=measured(8 * GIB)))
    node = stage.agents["node01"]
    node.inventory = measured(6 * GIB)
    stage.report(node, inventory=node.inventory)
    words = "memory is 6 GiB, it had 8 GiB"
    assert words in stage.warned("node01")
    after = Stage(model(replicas=0), stored=stage.stored(), epoch=2)
    after.join(node)
    assert words in after.warned("node01")


def test_memory_that_is_given_back_ends_the_warning_and_a_kernels_share_is_none() -> None:
    stage = served(Agent("node01", inventory=measured(8 * GIB)))
    node = stage.agents["node01"]
    stage.report(node, inventory=measured(6 * GIB))
    stage.report(node, inventory=measured(int(7.9 * GIB)))
    assert stage.warned("node01") == []


def test_less_memory_that_is_meant_is_said_by_hand_and_holds_when_that_is_taken_out_again() -> None:
    stage = served(Agent("node01", inventory=measured(8 * GIB)))
    node = stage.agents["node01"]
    stage.report(node, inventory=measured(6 * GIB))
    stage.report(node, inventory=stated(6 * GIB))
    assert stage.memories["node01"] == 6 * GIB  # type: ignore[index]
    assert "memory_shrunk" not in [warning.code for warning in stage.node("node01").warnings]
    stage.report(node, inventory=measured(6 * GIB))
    assert stage.warned("node01") == []


def test_memory_that_grows_is_stored_once() -> None:
    stage = served(Agent("node01", inventory=measured(8 * GIB)))
    stage.report(stage.agents["node01"], inventory=measured(16 * GIB))
    assert stage.stored().memories == {"node01": 16 * GIB}


# --- a node that is another all the time -------------------------------------------------------------------------


def flapping(stage: Stage, name: str, times: int, apart: float = 0.5) -> None:
    """Its memory is 4 GiB, 16 GiB, 4 GiB, … by what it says."""
    for number in range(times):
        stage.later(apart)
        stage.report(stage.agents[name], inventory=measured(4 * GIB if number % 2 == 0 else 16 * GIB))


def test_a_nervous_node_is_told_of_a_few_times_and_then_now_and_then_summed_up() -> None:
    stage = served(Agent("node01", inventory=measured(16 * GIB)), models=(model("big", 0, memory=10 * GIB),))
    seen = len(stage.events)
    flapping(stage, "node01", 120)
    events = stage.events[seen:]
    assert len(events) <= 2 * (BURST + 60 / EACH + 1)
    assert [event.text for event in events if event.kind is EventKind.NODE_CHANGED] == [
        "memory 16 GiB → 4 GiB",
        "memory 4 GiB → 16 GiB",
        "memory 16 GiB → 4 GiB",
        "changed 57 times in 28s; now: memory 4 GiB → 16 GiB",
    ]
    flapping(stage, "node01", 1)
    stage.later(2 * EACH)
    assert stage.last(EventKind.NODE_CHANGED).text.endswith("→ 4 GiB"), "what it is in the end is told"
    seen = len(stage.events)
    stage.later(10 * EACH)
    assert stage.events[seen:] == [], "nothing is held for ever, nor told twice"
    stage.report(stage.agents["node01"], inventory=measured(8 * GIB))
    assert stage.last(EventKind.NODE_CHANGED).at == stage.now, "one that was quiet is told of at once"


def test_what_was_held_says_what_is_gained_and_lost_since_it_was_last_told() -> None:
    stage = served(Agent("node01", inventory=with_gpus(*H100)), models=(model("big", 0, memory=70 * GIB),))
    node = stage.agents["node01"]
    for _ in range(BURST):
        stage.report(node, inventory=replace(with_gpus(*H100), kernel=f"6.{len(stage.events)}"))
    seen = len(stage.events)
    stage.report(node, inventory=with_gpus(*H100[1:]))
    stage.report(node, inventory=replace(with_gpus(*H100[1:]), memory=Bytes(128 * GIB)))
    assert stage.events[seen:] == []
    assert stage.node("node01").inventory == replace(with_gpus(*H100[1:]), memory=Bytes(128 * GIB)), "shown at once"
    assert "NVIDIA H100 (GPU-0) was there and is gone" in stage.warned("node01")
    stage.later(EACH)
    changed, gone, qualifies = stage.events[seen:]
    assert (changed.kind, changed.cause) == (EventKind.NODE_CHANGED, 0)
    assert changed.text.startswith("changed 2 times in 30s; now: memory 64 GiB → 128 GiB; GPU 0 (NVIDIA H100) gone")
    assert (gone.kind, gone.cause) == (EventKind.GPU_GONE, changed.seq)
    assert (qualifies.kind, qualifies.cause) == (EventKind.NODE_QUALIFIES, changed.seq)


def test_one_change_that_had_to_wait_is_told_in_its_own_words() -> None:
    stage = served(Agent("node01", inventory=measured(2 * GIB)))
    for memory in (3, 4, 5, 6):
        stage.report(stage.agents["node01"], inventory=measured(memory * GIB))
    stage.later(EACH)
    assert stage.last(EventKind.NODE_CHANGED).text == "memory 5 GiB → 6 GiB"


def test_what_follows_from_a_change_that_was_not_told_follows_at_once_from_the_last_that_was() -> None:
    stage = served(Agent("node01", inventory=measured(2 * GIB)), models=(model("big", 1, memory=10 * GIB),))
    for memory in (3, 4, 5):
        stage.report(stage.agents["node01"], inventory=measured(memory * GIB))
    told = stage.last(EventKind.NODE_CHANGED)
    stage.report(stage.agents["node01"], inventory=measured(16 * GIB))
    assert stage.last(EventKind.NODE_CHANGED) == told
    assert stage.replicas() == {"big/0": "node01"}
    assert stage.last(EventKind.REPLICA_PLACED).cause == told.seq


def test_nervous_engines_and_registrations_are_held_like_inventories() -> None:
    stage = served(Agent("node01"))
    node = stage.agents["node01"]
    for number in range(20):
        node.engines = vllm(f"0.{number}")
        node.inventory = measured((number + 4) * GIB)
        stage.join(node)
    told = [event for event in stage.events if event.kind in (EventKind.ENGINES_CHANGED, EventKind.NODE_CHANGED)]
    assert len(told) == 2 * BURST
    stage.later(EACH)
    assert stage.last(EventKind.NODE_CHANGED).text == "changed 17 times in 30s; now: memory 6 GiB → 23 GiB"
    assert stage.last(EventKind.ENGINES_CHANGED).text == "llama.cpp b10991; vllm 0.19"


def test_another_machine_under_the_name_begins_anew() -> None:
    stage = served(Agent("node01", inventory=measured(16 * GIB)))
    flapping(stage, "node01", 7)
    stage.leave(stage.agents["node01"])
    stage.later(SETTINGS.lost_after, beating=False)
    seen = len(stage.events)
    stage.join(Agent("node01", machine="another", inventory=measured(4 * GIB)))
    stage.later(2 * EACH)
    assert EventKind.NODE_CHANGED not in {event.kind for event in stage.events[seen:]}


# --- always -----------------------------------------------------------------------------------------------------

_SOME = st.sampled_from(
    [
        measured(2 * GIB),
        measured(16 * GIB),
        stated(6 * GIB),
        with_gpus(*H100),
        with_gpus(*H100[2:]),
        with_gpus(problem=FAILED),
    ]
)
_ENGINES = st.sampled_from([LLAMA, vllm("0.33"), vllm("0.34"), vllm("0.33", "broken"), Engines(probed_at=T0), None])


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(["report", "join"]), _SOME, _ENGINES), max_size=8))
def test_every_event_comes_after_its_cause_whatever_a_node_says(said: list[tuple[str, Inventory, Engines]]) -> None:
    stage = three_nodes(model(), model("big", 1, memory=10 * GIB), model("v", 1, engine="vllm", version="0.34"))
    node = stage.agents["node01"]
    for how, described, engines in said:
        node.inventory, node.engines = described, engines
        if how == "report":
            stage.report(node, inventory=described, engines=engines)
        else:
            stage.leave(node)
            stage.join(node)
        stage.obey()
    seqs = {event.seq for event in stage.events}
    assert all(event.cause < event.seq and event.cause in {0, *seqs} for event in stage.events)
    assert ModelName("gemma") in stage.cluster.names(Noun.MODELS)
