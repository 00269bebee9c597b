import time
from dataclasses import replace
from typing import Any

from llmgw.tui.app import Console
from llmgw.tui.rows import why as rows
from llmgw.tui.screens import why
from llmgw.tui.view import Link
from llmgw.tui.widgets.line import Line
from tests import worlds
from tests.tui.feeds import FixedFeed, view_of

SIZE = (100, 30)


def test_why_says_how_many_replicas_are_away() -> None:
    """Of those that count as placed: without it nobody could tell why placed ones are not ready."""
    assert rows.head(worlds.nothing_fits().whys["llama4"], away=2)[1].endswith("; 2 replicas away, may still serve")


async def test_an_unknown_model_has_no_replicas_to_look_at() -> None:
    """The key is hinted where there is a row for it, once the answer is there."""
    for model, count in (("nosuch", 0), ("llama4", 4)):
        app = Console(FixedFeed(worlds.nothing_fits()))
        async with app.run_test(size=(80, 24)) as pilot:
            await pilot.press("colon", *f"why {model}", "enter")
            await pilot.pause()
            assert ("all about it" in str(app.screen.query_one("#hints", Line).render())) is (count > 0)


async def test_what_was_wrong_is_read_to_its_end() -> None:
    """It is all that there is to say, so it gets the room of the table."""
    many = {f"model-number-{number}": worlds.nothing_fits().whys["llama4"] for number in range(8)}
    long = replace(worlds.three_nodes(), whys=many)
    app = Console(FixedFeed(long))
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press("colon", *"why nosuch", "enter")
        await pilot.pause()
        drawn = "".join(strip.text for strip in app.screen._compositor.render_strips())
        assert "model-number-7" in drawn


def test_every_node_says_why_not(snap_compare: Any) -> None:
    """One line a node with its numbers, its verdict, and what would clear it."""
    press = ["colon", *"w llama4", "enter", "down", "down"]
    assert snap_compare(Console(FixedFeed(worlds.nothing_fits())), press=press, terminal_size=SIZE)


def test_why_of_a_served_model_names_the_nodes_that_fit(snap_compare: Any) -> None:
    """Asked by its alias, at 80 columns."""
    press = ["colon", *"w gemma-270m", "enter"]
    assert snap_compare(Console(FixedFeed(worlds.three_nodes())), press=press, terminal_size=(80, 24))


def test_why_of_an_unknown_model_names_those_there_are(snap_compare: Any) -> None:
    """The control plane's own words."""
    press = ["colon", *"w gemmma", "enter"]
    assert snap_compare(Console(FixedFeed(worlds.three_nodes())), press=press, terminal_size=SIZE)


async def test_why_is_asked_again_when_the_model_changed_and_not_for_every_change(monkeypatch: Any) -> None:
    monkeypatch.setattr(why, "PAUSE", 0.05)
    feed = FixedFeed(worlds.nothing_fits())
    app = Console(feed)
    async with app.run_test(size=SIZE) as pilot:
        await pilot.press("colon", *"w llama4", "enter")
        await pilot.pause()
        assert feed.asked == ["llama4"]
        world, start = worlds.nothing_fits(), time.monotonic()
        for promised in range(20):
            nodes = tuple(replace(node, promised=promised) for node in world.nodes)
            feed.say(view_of(replace(world, nodes=nodes)))
            await pilot.pause()
        await pilot.pause(0.1)
        # On a busy machine the twenty changes take longer than twenty pauses.
        assert 2 <= len(feed.asked) <= 2 + (time.monotonic() - start) / why.PAUSE


async def test_the_last_answer_stays_when_the_control_plane_is_away() -> None:
    feed = FixedFeed(worlds.nothing_fits())
    app = Console(feed)
    async with app.run_test(size=SIZE) as pilot:
        await pilot.press("colon", *"w llama4", "enter")
        await pilot.pause()
        feed.say(view_of(worlds.nothing_fits(), Link.STALE, problem="connection refused"))
        await pilot.pause()
        assert app.screen.table.current is not None  # type: ignore[attr-defined]
