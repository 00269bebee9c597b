import asyncio
from dataclasses import replace
from typing import Any

import pytest

from llmgw.core.safe import safe
from llmgw.tui import keys
from llmgw.tui.app import Console
from llmgw.tui.commands import COMMANDS, BadCommand, parse
from llmgw.tui.view import Link
from llmgw.tui.widgets.header import header
from tests import worlds
from tests.tui.feeds import FixedFeed, view_of

SIZE = (100, 30)
PROBLEM = "control plane 127.0.0.1:7443: connection refused; is llmgwd running there?"


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
        line = header(view, safe("control-plane.example.net:7443  mTLS"), worlds.T0, room, read_only=True).plain
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


def test_the_table_of_keys_marks_what_is_dangerous() -> None:
    assert "| `s` | scale **!** | here |" in keys.markdown()
    assert [key for key in keys.allowed(keys.ALL, read_only=True) if key.dangerous] == []


def drawn(app: Console) -> str:
    return "\n".join("".join(part.text for part in strip) for strip in app.screen._compositor.render_strips())
