import asyncio
import re
from dataclasses import replace
from typing import Any

import pytest
from textual.widgets import Static

from llmgw.core.safe import safe
from llmgw.tui import keys
from llmgw.tui.app import Console
from llmgw.tui.commands import COMMANDS, BadCommand, parse
from llmgw.tui.screens import keytable
from llmgw.tui.screens.table import TableScreen
from llmgw.tui.view import Link
from llmgw.tui.widgets.header import header
from tests import worlds
from tests.tui.feeds import FixedFeed, view_of

SIZE = (100, 30)
PROBLEM = "control plane 127.0.0.1:7443: connection refused; is llmgwd running there?"


def test_a_note_is_in_the_header_while_there_is_room() -> None:
    """And goes after the address and the revision went, before the name of the cluster does."""
    view, note = view_of(worlds.three_nodes()), safe("gateway http://127.0.0.1:8080/v1")

    def line(room: int) -> str:
        return header(view, safe("cp.example:7443  mTLS"), worlds.T0, room, read_only=False, note=note).plain

    assert "gateway http://127.0.0.1:8080/v1" in line(120) and "gateway http://127.0.0.1:8080/v1" in line(80)
    assert "gateway" not in line(40)


async def test_a_note_is_in_the_help_too() -> None:
    app = Console(FixedFeed(worlds.three_nodes()), note="gateway http://127.0.0.1:8080/v1")
    async with app.run_test() as pilot:
        await pilot.press("question_mark")
        assert "gateway http://127.0.0.1:8080/v1" in str(app.screen.query_one(Static).content)


@pytest.mark.parametrize(("place", "marked"), [([], False), (["colon", *"mo", "enter"], True)])
async def test_help_explains_a_mark_only_where_there_is_one(place: list[str], marked: bool) -> None:
    app = Console(FixedFeed(worlds.three_nodes()))
    async with app.run_test() as pilot:
        await pilot.press(*place, "question_mark")
        assert ("! changes the cluster" in str(app.screen.query_one(Static).content)) is marked


async def test_why_a_scale_failed_is_read_to_its_end() -> None:
    """However narrow the terminal: it is wrapped over lines that the trail gives up."""
    app = Console(FixedFeed(worlds.three_nodes()))
    async with app.run_test(size=(80, 24)) as pilot:
        app.flash(safe("not scaled: " + "word " * 30 + "END"), "$error")
        await pilot.pause()
        drawn = "\n".join(strip.text for strip in app.screen._compositor.render_strips())
        assert "END" in drawn and "not scaled" in drawn


async def test_where_one_is_and_what_happened_stand_apart() -> None:
    app = Console(FixedFeed(worlds.nothing_fits()))
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press("colon", *"why llama4", "enter")
        await pilot.pause()
        last = app.screen._compositor.render_strips()[-1].text
        assert re.search(r"nodes > why llama4\s{2,}place_refused llama4", last), last


def test_without_a_stream_the_last_figures_stay_dimmed_with_their_age(snap_compare: Any) -> None:
    """Never an empty table that looks like an empty cluster."""
    view = view_of(worlds.three_nodes(), Link.STALE, ago=14, problem=PROBLEM)
    assert snap_compare(Console(FixedFeed(worlds.three_nodes(), view)), terminal_size=SIZE)


def test_engines_open_to_the_network_are_a_warning_on_every_screen(snap_compare: Any) -> None:
    """exposure: direct."""
    world = replace(worlds.three_nodes(), about=worlds.about(exposure="direct"))
    assert snap_compare(Console(FixedFeed(world)), press=["colon", *"ev", "enter"], terminal_size=SIZE)


def test_help_shows_the_keys_of_the_screen_below(snap_compare: Any) -> None:
    """And the commands."""
    press = ["colon", *"mo", "enter", "question_mark"]
    assert snap_compare(Console(FixedFeed(worlds.three_nodes())), press=press, terminal_size=(80, 24))


def test_a_wrong_command_says_which_there_are(snap_compare: Any) -> None:
    """In the last line."""
    press = ["colon", *"pods", "enter"]
    assert snap_compare(Console(FixedFeed(worlds.three_nodes())), press=press, terminal_size=SIZE)


def test_the_prompt_names_the_commands(snap_compare: Any) -> None:
    """While one is typed."""
    assert snap_compare(Console(FixedFeed(worlds.three_nodes())), press=["colon", *"why g"], terminal_size=(80, 24))


def test_everything_in_ascii(snap_compare: Any) -> None:
    """Frames, bars, marks, scroll bars and data."""
    press = ["colon", *"mo", "enter", "down", "enter"]
    assert snap_compare(Console(FixedFeed(worlds.many_states()), ascii=True), press=press, terminal_size=(80, 24))


def test_without_colour_the_words_say_it(snap_compare: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """NO_COLOR."""
    monkeypatch.setenv("NO_COLOR", "1")
    assert snap_compare(Console(FixedFeed(worlds.one_node_lost())), terminal_size=SIZE)


async def test_nothing_but_ascii_is_drawn_in_ascii() -> None:
    app = Console(FixedFeed(worlds.speaking("é日本▓\x1b")), ascii=True)
    async with app.run_test(size=(80, 24)) as pilot:
        for press in (["enter"], ["colon", *"mo", "enter"], ["s"], ["escape", "question_mark"]):
            await pilot.press(*press)
            await pilot.pause()
            assert drawn(app).isascii()


def test_the_header_drops_what_matters_least_and_keeps_how_fresh_it_is() -> None:
    view = view_of(worlds.three_nodes(), Link.STALE, ago=14)
    for room in (30, 50, 80, 100):
        line = header(
            view, safe("control-plane.example.net:7443  mTLS"), worlds.T0, room, read_only=True, note=safe("")
        ).plain
        assert "stale 14s" in line
        assert "demo" in line
        assert len(line) <= max(room, 42)


@pytest.mark.parametrize("how", [["colon", "q", "enter"], ["ctrl+q"], ["ctrl+c", "ctrl+c"]])
async def test_leaving_takes_no_time_with_a_watch_open(how: list[str]) -> None:
    app = Console(FixedFeed(worlds.three_nodes()))
    async with asyncio.timeout(2), app.run_test(size=SIZE) as pilot:
        await pilot.press(*how)
        assert app._exit


async def test_esc_clears_the_filter_then_goes_back_and_stays_at_the_first_screen() -> None:
    app = Console(FixedFeed(worlds.three_nodes()))
    async with app.run_test(size=SIZE) as pilot:
        await pilot.press("enter", "slash", *"gem", "enter")
        assert (app.screen.filter, app.screen.crumb()) == ("gem", "node01")  # type: ignore[attr-defined]
        await pilot.press("escape")
        assert (app.screen.filter, app.screen.crumb()) == ("", "node01")  # type: ignore[attr-defined]
        await pilot.press("escape")
        assert app.screen.crumb() == "nodes"  # type: ignore[attr-defined]
        await pilot.press("escape", "q")
        assert app.screen.crumb() == "nodes"  # type: ignore[attr-defined]


def test_commands_have_short_forms_and_say_what_is_wrong() -> None:
    assert parse(" :mo ")[0].name == "models"
    assert parse("why gemma") == (next(c for c in COMMANDS if c.name == "why"), "gemma")
    for line, words in (("pods", "not a command"), ("nodes x", "takes no argument"), ("why", ":why MODEL")):
        with pytest.raises(BadCommand, match=words):
            parse(line)
    every = [word for command in COMMANDS for word in (command.name, *command.aliases)]
    assert len(every) == len(set(every))
    assert {command.name for command in COMMANDS} == set(Console.ALL_COMMANDS)


def test_the_table_of_keys_says_where_each_works_and_nothing_twice() -> None:
    rows = keytable.markdown().splitlines()[2:]
    assert len(rows) == len(set(rows)) == len(keys.ALL)
    assert "| `s` | scale **!** | models |" in rows
    assert "| `e` | its events | nodes, models, engines |" in rows
    assert "| `S` | sort by next (column) | nodes, a node, models, engines, events |" in rows
    assert {row.split(" | ")[2].rstrip(" |") for row in rows} & {"here", "table", "move", ""} == set()


def test_the_table_of_keys_knows_every_screen() -> None:
    assert set(TableScreen.__subclasses__()) == set(keytable.SCREENS)
    assert {key for screen in keytable.SCREENS for key in (*screen.own_keys, *screen.usual_keys())} <= set(keys.ALL)


async def test_a_screen_offers_no_key_that_does_nothing_there() -> None:
    """The order of refusals tells which node is nearest to taking it: there is no other."""
    app = Console(FixedFeed(worlds.nothing_fits()))
    async with app.run_test(size=SIZE) as pilot:
        await pilot.pause()
        assert "sort by next" in drawn(app)
        await pilot.press("colon", *"why llama4", "enter")
        await pilot.pause()
        assert "filter" in drawn(app) and "sort by next" not in drawn(app)
        await pilot.press("question_mark")
        assert "sort by next" not in drawn(app)


def test_with_read_only_no_key_is_dangerous() -> None:
    assert [key for key in keys.allowed(keys.ALL, read_only=True) if key.dangerous] == []


def drawn(app: Console) -> str:
    return "\n".join("".join(part.text for part in strip) for strip in app.screen._compositor.render_strips())
