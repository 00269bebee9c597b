"""What people read."""

import pytest

from llmgw.core.events import Event, EventKind
from llmgw.core.views import ModelState, Why
from llmgw.ctl import tables
from llmgw.ctl.world import World
from tests.ctl.fixture import AWAY, EVENTS, FULL, GEMMA, MISSING, MODELS, NODE01, NODES, NOW, REPLICAS, node, revision


def world(**more: object) -> World:
    held = {
        "nodes": {view.name: view for view in NODES},
        "models": {view.name: view for view in MODELS},
        "replicas": {view.id: view for view in REPLICAS},
    }
    return World(revision=revision(), now=NOW, complete=True, **(held | more))  # type: ignore[arg-type]


def test_nodes_show_what_is_known_and_say_what_is_not() -> None:
    assert tables.nodes(world(), wide=False) == [
        "NAME    STATE  FOR    ENGINES           PROMISED           GPUS    WARNINGS",
        "node01  ready  4m12s  llama.cpp b10991  600 MiB of 4 GiB   -       exposed",
        "node02  ready  4m12s  not said          600 MiB of ?       ?       -",
        "node03  lost   4m12s  llama.cpp broken  600 MiB of 16 GiB  2×H100  -",
    ]


def test_models_show_where_and_why_not() -> None:
    lines = tables.models(world(), wide=False)
    assert lines[0].split() == ["NAME", "STATE", "READY", "ENGINE", "MEMORY", "ON", "NOTE"]
    assert "node01, node02 (failed)" in lines[1]
    assert lines[1].endswith("server.yaml says 2, 2 not now, 1 never; see: llmgw ctl why gemma")
    assert lines[2].split() == ["tiny", "ready", "1/1", "llama.cpp", "600", "MiB", "node01", "-"]


def test_wide_models_have_a_line_a_replica_with_its_failure() -> None:
    failed = next(line for line in tables.models(world(), wide=True) if line.startswith("  gemma/1"))
    assert failed.split()[1:6] == ["failed", "1m00s", "node02", "127.0.0.1:21001", "4242"]
    assert failed.endswith("the engine ended (exit 1), tried again in 38s")


def why(**more: object) -> Why:
    held: dict[str, object] = {
        "model": GEMMA,
        "state": ModelState.DEGRADED,
        "wanted": 3,
        "placed": 2,
        "memory": MODELS[0].memory,
        "engine": "llama.cpp",
        "refusals": (FULL, AWAY, MISSING),
        "revision": revision(),
        "now": NOW,
    }
    return Why(**(held | more))  # type: ignore[arg-type]


def test_why_says_the_sum_then_a_line_a_node() -> None:
    assert tables.why(why(), wide=False) == [
        "gemma is degraded: wants 3 replicas, 2 placed; each takes 600 MiB and llama.cpp",
        "one more would fit on 0 of 3 nodes (2 not now, 1 never)",
        "NODE    VERDICT  REASON                                        CLEARS WHEN",
        "node01  not now  memory: needs 600 MiB, 200 MiB of 4 GiB free  400 MiB is freed",
        "node03  not now  lost for 4m12s                                its agent reconnects",
        "node02  never    engine: needs llama.cpp, has none             engines: {llama.cpp: PATH} in its agent.yaml",
    ]


def test_why_without_any_node_says_so() -> None:
    lines = tables.why(why(refusals=(), wanted=1), wide=False)
    assert lines[0].startswith("gemma is degraded: wants 1 replica, ")
    assert lines[1:] == ["no node has joined, so there is none to ask"]


def test_why_names_the_nodes_that_fit() -> None:
    lines = tables.why(why(fits=(NODE01,), refusals=(AWAY,)), wide=False)
    assert lines[1] == "one more would fit on 1 of 2 nodes (1 not now, 0 never)"
    assert lines[3].split() == ["node01", "fits", "-", "-"]


def test_wide_events_show_the_last_words_of_an_engine() -> None:
    assert [line.split() for line in tables.events(EVENTS, wide=True)[-2:]] == [
        ["|", "loading"],
        ["|", "error:", "no", "such", "file"],
    ]
    assert "the engine ended (exit 1) (by operator ada)" in tables.events(EVENTS, wide=False)[2]
    assert tables.event(EVENTS[1], wide=False)[0].endswith("(because of 40)")


@pytest.mark.parametrize("text", ["\x1b[2J", "a\nb", "\x9b31m", "\u202egnp", "\x00"])
def test_text_from_outside_cannot_steer_the_terminal(text: str) -> None:
    """Node names pass a grammar; everything else that a node says does not."""
    hostile = node("node01", address=text, agent_version=text)
    event = Event(seq=1, at=NOW, kind=EventKind.NODE_READY, subject=text, text=text, lines=(text,))
    lines = [
        *tables.nodes(world(nodes={NODE01: hostile}), wide=True),
        *tables.events([event], wide=True),
        *tables.event(event, wide=True),
    ]
    assert all(character.isprintable() for line in lines for character in line)


def test_columns_align_by_cells_not_by_characters() -> None:
    assert tables.align([("a", "x"), ("節点", "y")]) == ["a     x", "節点  y"]


def test_an_empty_cluster_says_what_to_do() -> None:
    empty = World(now=NOW, complete=True)
    assert tables.nodes(empty, wide=False) == ["no node has joined yet"]
    assert "server.yaml" in tables.models(empty, wide=False)[0]
    assert tables.events([], wide=False) == ["nothing has happened yet"]


def test_a_time_that_no_calendar_holds_is_a_question_mark() -> None:
    assert tables.clock(1e300) == "?"
