"""What people read."""

from dataclasses import replace

import pytest

from llmgw.core.events import Event, EventKind
from llmgw.core.fold import Fold
from llmgw.core.presence import NodeState
from llmgw.core.views import AboutView, ModelState, Why
from llmgw.core.warnings import OtherWarning
from llmgw.ctl import tables
from tests.ctl.fixture import (
    AWAY,
    EVENTS,
    FULL,
    GEMMA,
    MISSING,
    MODELS,
    NODE01,
    NODES,
    NOW,
    REPLICAS,
    node,
    replica,
    revision,
)


def world(**more: object) -> Fold:
    held = {
        "nodes": {view.name: view for view in NODES},
        "models": {view.name: view for view in MODELS},
        "replicas": {view.id: view for view in REPLICAS},
    }
    return Fold(revision=revision(), now=NOW, whole=True, **(held | more))  # type: ignore[arg-type]


def test_nodes_show_what_is_known_and_say_what_is_not() -> None:
    assert tables.nodes(world(), wide=False) == [
        "NAME    STATE  FOR    ENGINES           PROMISED           GPUS    WARNINGS",
        "node01  ready  4m12s  llama.cpp b10991  600 MiB of 4 GiB   -       exposed",
        "node02  ready  4m12s  not said          600 MiB of ?       ?       -",
        "node03  lost   4m12s  llama.cpp broken  600 MiB of 15 GiB  2×H100  -",
    ]


def test_models_show_where_and_why_not() -> None:
    lines = tables.models(world(), wide=False)
    assert lines[0].split() == ["NAME", "STATE", "READY", "ENGINE", "MEMORY", "ON", "NOTE"]
    assert "node01, node02 (failed)" in lines[1]
    assert lines[1].endswith("server.yaml says 2; 2 not now, 1 never; see: llmgw ctl why gemma")
    assert lines[2].split() == ["tiny", "ready", "1/1", "llama.cpp", "600", "MiB", "node01", "-"]


def test_wide_models_have_a_line_a_replica_with_its_failure() -> None:
    failed = next(line for line in tables.models(world(), wide=True) if line.startswith("  gemma/1"))
    assert failed.split()[1:7] == ["failed", "-", "1m00s", "node02", "llama.cpp", "b10991"]
    assert failed.endswith("ended by itself with exit status 1, tried again in 38s")


def test_a_replica_with_an_older_profile_is_named_with_the_way_out() -> None:
    """Nothing else shows that a change of server.yaml did not reach what runs already."""
    old = [replica("gemma", ordinal, "node01", outdated=True) for ordinal in (0, 1)]
    says = "runs an older profile; scale it down and up to change it"
    shown = world(replicas={one.id: one for one in old[:1]}, models={GEMMA: MODELS[1]})
    assert tables.models(shown, wide=False)[1].endswith(f"gemma/0 {says}")
    assert tables.models(shown, wide=True)[2].endswith(says)
    both = world(replicas={one.id: one for one in old}, models={GEMMA: MODELS[1]})
    assert tables.models(both, wide=False)[1].endswith(f"gemma/0 and 1 more {says}")
    leaving = world(replicas={GEMMA: replica("gemma", 0, "node01", outdated=True, leaving=True)})
    assert says not in "".join(tables.models(leaving, wide=True)), "it goes already"


@pytest.mark.parametrize("wide", [False, True])
def test_a_change_of_versions_is_told_in_the_words_of_the_control_plane(wide: bool) -> None:
    roll = "moves to llama.cpp b20001: 0 of 1 done"
    shown = world(models={GEMMA: replace(MODELS[1], name=GEMMA, roll=roll)}, replicas={})
    assert tables.models(shown, wide)[1].endswith(roll)


def test_an_ipv6_address_stands_in_brackets() -> None:
    one = replica("gemma", 0, "node01")
    one = replace(one, shards=(replace(one.shards[0], host="::1"),))
    assert "[::1]:21000" in tables.models(world(replicas={one.id: one}), wide=True)[2]


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
        "node02  never    engine: needs llama.cpp, has none             "
        "llama.cpp under engines: in server.yaml or in its agent.yaml",
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
    assert "ended by itself with exit status 1 (by operator ada)" in tables.events(EVENTS, wide=False)[2]


def test_an_event_that_comes_later_stands_in_the_same_columns() -> None:
    table, [line] = tables.events(EVENTS, wide=False), tables.event(EVENTS[1], wide=False)
    assert tables.EVENT_HEAD.split() == table[0].split()
    assert line.split() == table[2].split()
    assert all(line[tables.EVENT_HEAD.index(word) - 1] == " " for word in tables.EVENT_HEAD.split()[1:])


def test_replicas_of_nodes_that_are_away_may_still_serve() -> None:
    """`0/1` alone would say that nobody is served."""
    shown = world(
        nodes={NODE01: node("node01", NodeState.UNREACHABLE)},
        models={GEMMA: replace(MODELS[0], ready=0, wanted=1, away=1, refusals=())},
        replicas={"gemma/0": replica("gemma", 0, "node01")},
    )
    assert (
        "  0/1, 1 away  " in tables.models(shown, wide=False)[1] and "node01 (away)" in tables.models(shown, False)[1]
    )
    assert tables.models(shown, wide=True)[2].endswith("node away, may still serve")
    about = AboutView(
        cluster="demo", version="1", revision=revision(), now=NOW, started=NOW, settled=True, exposure="loopback"
    )
    assert "replicas  0 of 1 ready, 1 on nodes that are away, may still serve" in tables.status(about, shown)
    assert "1 replica on nodes that are away, and may still serve" in tables.why(why(), False, away=1)


def test_what_holds_for_the_whole_cluster_is_warned_of_once() -> None:
    exposed = OtherWarning(code="engines_exposed", text="its engines listen on its address")
    shown = world(nodes={NODE01: node("node01", warnings=(exposed,))})
    about = AboutView(
        cluster="demo", version="1", revision=revision(), now=NOW, started=NOW, settled=True, exposure="direct"
    )
    assert sum(line.startswith("warning") for line in tables.status(about, shown)) == 1


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
    empty = Fold(now=NOW, whole=True)
    assert tables.nodes(empty, wide=False) == ["no node has joined yet"]
    assert "server.yaml" in tables.models(empty, wide=False)[0]
    assert tables.events([], wide=False) == ["nothing has happened yet"]


def test_a_time_that_no_calendar_holds_is_a_question_mark() -> None:
    assert tables.clock(1e300) == "?"
