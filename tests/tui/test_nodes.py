from dataclasses import replace
from typing import Any

from llmgw.tui.app import Console
from llmgw.tui.view import View
from tests import worlds
from tests.tui.feeds import FixedFeed, until, view_of

SIZE = (100, 30)


def test_three_nodes_with_their_promises_and_engines(snap_compare: Any) -> None:
    """The demo's cluster: what a node promised of its memory, what is free, which engine it has."""
    assert snap_compare(Console(FixedFeed(worlds.three_nodes())), terminal_size=SIZE)


def test_a_lost_node_keeps_its_last_figures(snap_compare: Any) -> None:
    """Lost and unreachable are words before they are colours; a broken engine and a warning are marked."""
    assert snap_compare(Console(FixedFeed(worlds.one_node_lost())), press=["end", "up"], terminal_size=SIZE)


def test_an_empty_cluster_says_how_to_get_a_node(snap_compare: Any) -> None:
    """An empty table would leave an operator guessing."""
    assert snap_compare(Console(FixedFeed(worlds.empty())), terminal_size=(80, 24))


def test_before_the_first_word_nothing_looks_like_an_empty_cluster(snap_compare: Any) -> None:
    """No snapshot has come yet: the table says that it waits."""
    assert snap_compare(Console(FixedFeed(worlds.empty(), View(since=worlds.T0))), terminal_size=(80, 24))


def test_enter_shows_the_replicas_of_a_node(snap_compare: Any) -> None:
    """With why the failed one failed, in the engine's last words."""
    press = ["down", "down", "enter"]
    assert snap_compare(Console(FixedFeed(worlds.one_node_lost())), press=press, terminal_size=SIZE)


def test_what_the_table_leaves_empty_is_for_the_lines_about_a_row(snap_compare: Any) -> None:
    """80×24: what is wrong with a node is read to its end, or says where it was cut."""
    assert snap_compare(Console(FixedFeed(worlds.sick_node())), press=["down"], terminal_size=(80, 24))


async def test_the_lines_about_a_row_leave_the_table_its_rows() -> None:
    sick = worlds.sick_node()
    many = replace(sick, nodes=(*(worlds.node(f"node{number:02}") for number in range(20, 33)), *sick.nodes))
    app = Console(FixedFeed(many))
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press("down")
        table, detail = app.screen.table, app.screen.query_one("#detail")  # type: ignore[attr-defined]
        await until(pilot, lambda: table.current.key == "node07")
        await pilot.pause()
        assert detail.size.height == 4
        await pilot.resize_terminal(80, 30)
        await until(pilot, lambda: detail.size.height > 4)
        assert table.size.height >= 1 + len(many.nodes)


def test_a_wide_terminal_shows_more_columns(snap_compare: Any) -> None:
    """Load, address and the agent's version have room here."""
    assert snap_compare(Console(FixedFeed(worlds.one_node_lost())), terminal_size=(150, 30))


async def test_the_cursor_stays_on_its_node_when_others_come_and_go() -> None:
    feed = FixedFeed(worlds.three_nodes())
    app = Console(feed)
    async with app.run_test(size=SIZE) as pilot:
        await pilot.press("down")
        more = worlds.three_nodes()
        nodes = (worlds.node("aaa"), *more.nodes[1:], worlds.node("zzz"))
        feed.say(view_of(worlds.World(about=more.about, nodes=nodes)))
        await pilot.pause()
        await pilot.pause()
        assert app.screen.table.current.key == "node02"  # type: ignore[attr-defined]
        feed.say(view_of(worlds.World(about=more.about, nodes=(worlds.node("aaa"),))))
        await pilot.pause()
        await pilot.pause()
        assert app.screen.table.current.key == "aaa"  # type: ignore[attr-defined]
