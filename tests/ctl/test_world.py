"""A watch becomes one whole value."""

from llmgw.core.views import Gone, ModelState, NodeState, Noun, Page
from llmgw.ctl.world import World
from tests.ctl.fixture import EVENTS, MODELS, NODES, REPLICAS, change, model, node, replica, revision


def snapshot(*items: object, first: bool = True, complete: bool = True) -> Page:
    return Page(revision=revision(), now=1.0, snapshot=True, first=first, complete=complete, items=items)  # type: ignore[arg-type]


def test_it_is_whole_only_with_the_last_page_of_the_snapshot() -> None:
    world = World()
    world.take(snapshot(NODES[0], complete=False))
    assert not world.complete
    world.take(snapshot(NODES[1], first=False))
    assert world.complete and set(world.nodes) == {"node01", "node02"}


def test_a_change_replaces_one_entity_and_a_gone_one_leaves() -> None:
    world = World()
    world.take(snapshot(*NODES, *MODELS, *REPLICAS))
    world.take(
        change(
            node("node01", NodeState.UNREACHABLE),
            Gone(noun=Noun.NODES, name="node02"),
            Gone(noun=Noun.MODELS, name="tiny"),
            Gone(noun=Noun.REPLICAS, name="tiny/0"),
            Gone(noun=Noun.NODES, name="never-was"),
        )
    )
    assert world.nodes["node01"].state is NodeState.UNREACHABLE  # type: ignore[index]
    assert set(world.nodes) == {"node01", "node03"} and set(world.models) == {"gemma"}
    assert world.replicas.keys() == {"gemma/0", "gemma/1"} and world.revision == revision(50)


def test_a_new_snapshot_drops_what_was_there() -> None:
    world = World()
    world.take(snapshot(*NODES, *MODELS))
    world.take(snapshot(node("node09"), complete=False))
    assert set(world.nodes) == {"node09"} and not world.models and not world.complete


def test_events_are_those_of_the_last_step() -> None:
    world = World()
    world.take(snapshot(EVENTS[0], complete=False))
    world.take(snapshot(EVENTS[1], first=False))
    assert world.events == list(EVENTS)
    world.take(change())
    assert world.events == []


def test_replicas_come_by_their_number_and_a_model_by_its_alias() -> None:
    world = World()
    many = [replica("gemma", ordinal, "node01") for ordinal in (10, 2, 1)]
    world.take(snapshot(*many, replica("gemma.x", 0, "node01"), *MODELS))
    assert [one.id for one in world.replicas_of(MODELS[0].name)] == ["gemma/1", "gemma/2", "gemma/10"]
    assert world.model("gemma-270m") == MODELS[0] == world.model("gemma")
    assert world.model("other") is None
    assert model("a", ModelState.READY, 1, 1).aliases == ()
