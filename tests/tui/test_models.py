from typing import Any

import pytest
from textual.widgets import Input

from llmgw.core.catalog import MOST_REPLICAS
from llmgw.tui.app import Console
from tests import worlds
from tests.tui.feeds import FixedFeed, until

SIZE = (100, 30)
MODELS = ["colon", *"mo", "enter"]


def test_models_in_every_state_with_their_replicas(snap_compare: Any) -> None:
    """Replicas stand under their model, /10 after /9; one that no model wants any more is shown, too."""
    press = [*MODELS, "enter", "down", "down", "down", "enter", "down", "down"]
    assert snap_compare(Console(FixedFeed(worlds.many_states())), press=press, terminal_size=SIZE)


def test_a_model_that_every_node_refuses(snap_compare: Any) -> None:
    """The row counts the refusals, the lines under the table name them."""
    press = [*MODELS, "down"]
    assert snap_compare(Console(FixedFeed(worlds.nothing_fits())), press=press, terminal_size=SIZE)


def test_models_fit_into_80_by_24(snap_compare: Any) -> None:
    """Name, state, counts, place and problem stay; the rest makes room."""
    press = [*MODELS, "down", "enter"]
    assert snap_compare(Console(FixedFeed(worlds.many_states())), press=press, terminal_size=(80, 24))


def test_a_change_of_versions_is_told_with_what_each_replica_runs(snap_compare: Any) -> None:
    """And one that stopped with its reason, in full under the table; nobody is told to scale."""
    press = [*MODELS, "enter", "down", "down", "down", "down"]
    assert snap_compare(Console(FixedFeed(worlds.rolling())), press=press, terminal_size=(120, 30))


def test_scale_asks_names_the_model_and_says_what_comes_of_it(snap_compare: Any) -> None:
    """Cancel has the focus until a number is typed."""
    assert snap_compare(Console(FixedFeed(worlds.three_nodes())), press=[*MODELS, "s", "plus"], terminal_size=SIZE)


def test_read_only_has_no_scale_key(snap_compare: Any) -> None:
    """Neither in the hints nor anywhere: `s` does nothing."""
    app = Console(FixedFeed(worlds.three_nodes()), read_only=True)
    assert snap_compare(app, press=[*MODELS, "s"], terminal_size=SIZE)


def test_a_filter_leaves_what_matches(snap_compare: Any) -> None:
    """While it is typed; a model stays for its replica's sake."""
    press = [*MODELS, "down", "enter", "slash", *"fail"]
    assert snap_compare(Console(FixedFeed(worlds.many_states())), press=press, terminal_size=SIZE)


async def test_scale_is_done_after_two_enters_and_says_so() -> None:
    feed = FixedFeed(worlds.three_nodes())
    app = Console(feed)
    async with app.run_test(size=SIZE) as pilot:
        await pilot.press(*MODELS, "s", "3", "enter")
        assert feed.scaled == []
        await pilot.press("enter")
        await until(pilot, lambda: app.flashed is not None)
        assert feed.scaled == [("gemma", 3)]
        assert app.flashed is not None
        assert app.flashed[0] == "scaled gemma from 2 to 3, event 48214 "


@pytest.mark.parametrize(
    ("typed", "value"),
    [
        (["backspace"], ""),
        (["backspace", "4"], "4"),
        (["1", "2", "backspace"], "1"),
        (["7", "plus", "plus", "minus"], "8"),
        (["up", "up", "down"], "3"),
        (["5", "x", "enter"], None),
    ],
)
async def test_the_number_is_edited_from_wherever_the_focus_is(typed: list[str], value: str | None) -> None:
    """And a letter in the field changes nothing in it: enter goes on to the buttons then."""
    feed = FixedFeed(worlds.three_nodes())
    app = Console(feed)
    async with app.run_test(size=SIZE) as pilot:
        await pilot.press(*MODELS, "s", *typed)
        field = app.screen.query_one("#number", Input)
        assert field.value == (value if value is not None else "5")
        assert feed.scaled == []


async def test_letters_meant_for_something_else_do_not_scale() -> None:
    """Typed after the number was confirmed, and then enter, as a command line would be."""
    feed = FixedFeed(worlds.three_nodes())
    app = Console(feed)
    async with app.run_test(size=SIZE) as pilot:
        await pilot.press(*MODELS, "s", "3", "enter", *"ls", "enter")
        assert feed.scaled == [] and len(app.screen_stack) == 2, "the focus went back to Cancel"


async def test_y_on_scale_does_it() -> None:
    feed = FixedFeed(worlds.three_nodes())
    app = Console(feed)
    async with app.run_test(size=SIZE) as pilot:
        await pilot.press(*MODELS, "s", "y", "3", "y")
        assert feed.scaled == [], "not from anywhere else"
        await pilot.press("enter", "y")
        await until(pilot, lambda: feed.scaled != [])


async def test_more_than_a_model_may_have_cannot_be_asked_for() -> None:
    """The control plane would refuse it; the button is not there to find that out."""
    feed = FixedFeed(worlds.three_nodes())
    app = Console(feed)
    async with app.run_test(size=SIZE) as pilot:
        await pilot.press(*MODELS, "s", *str(MOST_REPLICAS + 1), "enter", "enter")
        assert len(app.screen_stack) == 3 and feed.scaled == []


async def test_a_number_of_several_digits_is_taken_as_it_was_typed() -> None:
    """The digit that opens the field must not be lost to the next one: 12 would become 2."""
    feed = FixedFeed(worlds.three_nodes())
    app = Console(feed)
    async with app.run_test(size=SIZE) as pilot:
        await pilot.press(*MODELS, "s", *"120", "enter", "enter")
        await until(pilot, lambda: feed.scaled != [])
        assert feed.scaled == [("gemma", 120)]


async def test_one_careless_enter_scales_nothing() -> None:
    feed = FixedFeed(worlds.three_nodes())
    app = Console(feed)
    async with app.run_test(size=SIZE) as pilot:
        await pilot.press(*MODELS, "s", "enter")
        assert len(app.screen_stack) == 2, "nothing was asked for, the dialog is closed"
        await pilot.press("s", "plus", "enter")
        assert len(app.screen_stack) == 3, "it goes on to the button, as after a digit"
        assert feed.scaled == []
        await pilot.press("enter")
        await until(pilot, lambda: feed.scaled != [])


async def test_read_only_scales_nothing_even_when_asked_in_another_way() -> None:
    feed = FixedFeed(worlds.three_nodes())
    app = Console(feed, read_only=True)
    async with app.run_test(size=SIZE) as pilot:
        await pilot.press(*MODELS, "s")
        await app.run_action("screen.scale")
        assert len(app.screen_stack) == 2
