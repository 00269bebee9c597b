from dataclasses import replace
from typing import Any

from llmgw.core.events import EventKind
from llmgw.tui.app import Console
from llmgw.tui.rows import events
from llmgw.tui.rows.row import made
from tests import worlds
from tests.tui.feeds import FixedFeed, view_of

SIZE = (100, 30)
EVENTS = ["colon", *"ev", "enter"]


def test_events_newest_last(snap_compare: Any) -> None:
    """The cursor starts at the newest; what it printed last is under the table."""
    assert snap_compare(Console(FixedFeed(worlds.one_node_lost())), press=EVENTS, terminal_size=SIZE)


def test_enter_shows_what_led_to_an_event(snap_compare: Any) -> None:
    """A node was lost, so a replica was placed, so an engine was started, and it failed."""
    press = [*EVENTS, "up", "enter"]
    assert snap_compare(Console(FixedFeed(worlds.one_node_lost())), press=press, terminal_size=SIZE)


def test_events_of_one_node(snap_compare: Any) -> None:
    """By `e` on its row."""
    press = ["down", "e"]
    assert snap_compare(Console(FixedFeed(worlds.one_node_lost())), press=press, terminal_size=(80, 24))


async def test_the_cursor_follows_new_events_only_from_the_last_one() -> None:
    feed = FixedFeed(worlds.three_nodes())
    app = Console(feed)

    async def happens(seq: int) -> None:
        new = worlds.event(seq, 0, EventKind.NODE_READY, "node01", "back")
        feed.say(replace(feed.view, events=(*feed.view.events, new)))
        await pilot.pause()
        await pilot.pause()

    async with app.run_test(size=SIZE) as pilot:
        await pilot.press(*EVENTS)
        table = app.screen.table  # type: ignore[attr-defined]
        assert table.current.key == "48195"
        await happens(48300)
        assert table.current.key == "48300"
        await pilot.press("up")
        await happens(48301)
        assert table.current.key == "48195"


def test_a_story_ends_even_when_events_cause_each_other() -> None:
    """Nothing that a control plane of ours sends, but the console must not hang on it."""
    one = worlds.event(5, 0, EventKind.NODE_LOST, "a", "x", cause=9)
    two = worlds.event(9, 0, EventKind.NODE_LOST, "b", "y", cause=5)
    assert [row.key for row in made(events.story((one, two), 5))] == ["5", "9"]
    assert [row.key for row in made(events.story((one, two), 9))] == ["5", "9"]
    assert events.story((one,), 77) == []


def test_the_events_of_a_model_are_those_of_its_replicas_and_shards_too() -> None:
    told = made(events.entries(view_of(worlds.three_nodes()).events, "gemma"))
    assert [row.key for row in told] == ["48190", "48191", "48192", "48195"]
    assert made(events.entries(view_of(worlds.three_nodes()).events, "gem")) == []
