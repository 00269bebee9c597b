"""What is drawn again after a change."""

from dataclasses import replace
from typing import Any

from textual.geometry import Region

from llmgw.core.safe import safe
from llmgw.tui.app import Console
from llmgw.tui.widgets.table import Table
from tests import worlds
from tests.tui.feeds import FixedFeed, until, view_of

SIZE = (100, 30)


def thousand() -> worlds.World:
    return replace(worlds.three_nodes(), nodes=tuple(worlds.node(f"node{number:04}") for number in range(1000)))


async def changed(app: Console, pilot: Any, feed: FixedFeed, world: worlds.World, monkeypatch: Any) -> list[Region]:
    """Show another world and return which regions of the table were asked to be drawn again."""
    asked: list[Region] = []
    refresh = Table.refresh

    def watched(self: Table, *regions: Region, **more: Any) -> Table:
        asked.extend(regions or [self.size.region])
        return refresh(self, *regions, **more)

    monkeypatch.setattr(Table, "refresh", watched)
    feed.say(view_of(world))
    await until(pilot, lambda: app.view is feed.view)
    await pilot.pause()
    monkeypatch.setattr(Table, "refresh", refresh)
    return asked


async def test_only_the_cell_that_reads_differently_is_drawn_again(monkeypatch: Any) -> None:
    world = thousand()
    feed = FixedFeed(world)
    app = Console(feed)
    async with app.run_test(size=SIZE) as pilot:
        await pilot.pause()
        nodes = list(world.nodes)
        nodes[3] = worlds.node(nodes[3].name, promised=700 * 2**20)
        nodes[800] = worlds.node(nodes[800].name, promised=700 * 2**20)
        [region] = await changed(app, pilot, feed, replace(world, nodes=tuple(nodes)), monkeypatch)
        assert (region.y, region.height) == (4, 1), "line 0 has the titles"
        assert region.width < 30


async def test_the_same_again_draws_nothing(monkeypatch: Any) -> None:
    world = thousand()
    feed = FixedFeed(world)
    app = Console(feed)
    async with app.run_test(size=SIZE) as pilot:
        await pilot.pause()
        assert await changed(app, pilot, feed, thousand(), monkeypatch) == []


async def test_ages_grow_where_they_read_differently(monkeypatch: Any) -> None:
    world = replace(worlds.empty(), nodes=(worlds.node("a", ago=5), worlds.node("b", ago=4000)))
    feed = FixedFeed(world)
    app = Console(feed)
    async with app.run_test(size=SIZE) as pilot:
        await pilot.pause()
        feed.time += 3
        [region] = await changed(app, pilot, feed, world, monkeypatch)
        assert (region.y, region.height) == (1, 1)


async def test_the_cursor_can_be_put_anywhere_among_a_thousand() -> None:
    app = Console(FixedFeed(thousand()))
    async with app.run_test(size=SIZE) as pilot:
        table = app.screen.table  # type: ignore[attr-defined]
        for press, name in (
            ("end", "node0999"),
            ("home", "node0000"),
            ("G", "node0999"),
            ("k", "node0998"),
            ("g", "node0000"),
        ):
            await pilot.press(press)
            assert table.current.key == name
            top = table.scroll_offset.y
            assert top <= int(name[4:]) < top + table.size.height - 1
        await pilot.press("pagedown")
        assert table.current.key == f"node{table.size.height - 1:04}"


async def test_the_mouse_moves_the_cursor_and_a_second_click_opens() -> None:
    app = Console(FixedFeed(worlds.three_nodes()))
    async with app.run_test(size=SIZE) as pilot:
        await pilot.click("#table", offset=(10, 3))
        assert app.screen.table.current.key == "node02"  # type: ignore[attr-defined]
        await pilot.click("#table", offset=(10, 3), times=2)
        await pilot.pause()
        assert app.screen.crumb() == safe("node02")  # type: ignore[attr-defined]


async def test_what_is_typed_behind_a_slash_or_a_colon_is_meant_for_the_prompt() -> None:
    """Over a slow line keys come in one lump; `s` behind `:` must not be the key that scales."""
    app = Console(FixedFeed(worlds.three_nodes()))
    async with app.run_test(size=SIZE) as pilot:
        await pilot.press("slash", *"a/b:c")
        assert app.screen.prompt.value == "a/b:c"  # type: ignore[attr-defined]
        assert app.screen.filter == "a/b:c"  # type: ignore[attr-defined]
        await pilot.press("escape")
        assert app.screen.filter == ""  # type: ignore[attr-defined]
