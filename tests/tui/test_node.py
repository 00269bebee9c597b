"""The screen of one node: its description over its replicas."""

from dataclasses import replace
from typing import Any

import pytest

from llmgw.core.safe import safe
from llmgw.core.units import GIB, Bytes
from llmgw.tui.app import Console
from llmgw.tui.rows import node
from llmgw.tui.rows.row import Tone
from llmgw.tui.screens.node import NodeScreen
from llmgw.tui.text import to_ascii, width
from llmgw.tui.view import Link
from llmgw.tui.widgets.sheet import laid_out
from tests import worlds
from tests.tui.feeds import FixedFeed, until, view_of

SIZE = (100, 30)


def test_a_server_with_eight_gpus_and_their_adapters(snap_compare: Any) -> None:
    """Memory in use as bars with numbers, the fabric of each adapter, the GPU that is nearest to it."""
    assert snap_compare(Console(FixedFeed(worlds.gpu_server())), press=["enter"], terminal_size=(130, 56))


def test_a_node_with_all_that_can_be_wrong(snap_compare: Any) -> None:
    """What is wrong comes first, each with what to do; never probed is not none, not known is not none."""
    assert snap_compare(Console(FixedFeed(worlds.sick_node())), press=["down", "enter"], terminal_size=(110, 66))


def test_a_small_terminal_shows_the_beginning_and_how_to_scroll(snap_compare: Any) -> None:
    """80×24: both halves are there."""
    assert snap_compare(Console(FixedFeed(worlds.sick_node())), press=["down", "enter"], terminal_size=(80, 24))


def test_the_description_scrolls_to_its_end(snap_compare: Any) -> None:
    """With one replica or none the keys move in the upper half at once."""
    press = ["down", "enter", "end"]
    assert snap_compare(Console(FixedFeed(worlds.sick_node())), press=press, terminal_size=(80, 24))


def test_a_broken_stream_dims_the_description(snap_compare: Any) -> None:
    """The last figures stay, without colours, in a dashed frame."""
    world = worlds.gpu_server()
    lost = view_of(world, Link.STALE, ago=42, problem="control plane 127.0.0.1:7443: it closed the connection")
    assert snap_compare(Console(FixedFeed(world, lost)), press=["enter"], terminal_size=SIZE)


async def test_ages_in_the_description_grow_while_it_is_watched() -> None:
    feed = FixedFeed(worlds.gpu_server())
    app = Console(feed)
    async with app.run_test(size=(130, 56)) as pilot:
        await pilot.press("enter")
        await until(pilot, lambda: isinstance(app.screen, NodeScreen))
        assert "probed 30s ago" in drawn(app)
        feed.time += 12
        app._tick()
        await until(pilot, lambda: "probed 42s ago" in drawn(app))


def with_replicas(count: int) -> worlds.World:
    """`node07` with so many."""
    replicas = tuple(worlds.replica("gemma", number, "node07") for number in range(count))
    return replace(worlds.sick_node(), replicas=replicas)


@pytest.mark.parametrize("count", [0, 1])
async def test_the_keys_move_in_the_description_where_there_is_no_choice_of_replicas(count: int) -> None:
    app = Console(FixedFeed(with_replicas(count)))
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press("down", "enter")
        await until(pilot, lambda: isinstance(app.screen, NodeScreen))
        about = app.screen.query_one("#about")
        await pilot.press("pagedown")
        await until(pilot, lambda: about.scroll_offset.y > 0)
        await pilot.press("G")
        await until(pilot, lambda: about.scroll_offset.y == about.max_scroll_y)
        await pilot.press("g")
        await until(pilot, lambda: about.scroll_offset.y == 0)
        await pilot.press("colon", "escape", "G")
        await until(pilot, lambda: about.scroll_offset.y == about.max_scroll_y)


@pytest.mark.parametrize(("count", "seen"), [(0, 17), (1, 14), (8, 7)])
async def test_the_replicas_leave_the_description_what_they_do_not_need(count: int, seen: int) -> None:
    app = Console(FixedFeed(with_replicas(count)))
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press("down", "enter")
        await until(pilot, lambda: isinstance(app.screen, NodeScreen))
        await pilot.pause()
        assert app.screen.query_one("#about").size.height == seen
        assert ("nothing runs here" in drawn(app)) is (count == 0)
        assert ("<tab>" in drawn(app)) is (count > 0), "the other half is there"
        assert ("<w>" in drawn(app)) is (count > 0)


async def test_a_half_that_goes_leaves_its_keys_to_the_other() -> None:
    feed = FixedFeed(with_replicas(2))
    app = Console(feed)
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press("down", "enter")
        await until(pilot, lambda: isinstance(app.screen, NodeScreen))
        about, table = app.screen.query_one("#about"), app.screen.table  # type: ignore[attr-defined]
        assert table.has_focus
        feed.say(view_of(with_replicas(0)))
        await until(pilot, lambda: about.has_focus and not table.display)
        gone = with_replicas(0)
        feed.say(view_of(replace(gone, nodes=gone.nodes[:1])))
        await until(pilot, lambda: table.has_focus and not about.display)
        assert "this node is no more" in drawn(app)


async def test_tab_goes_to_the_description_and_back() -> None:
    app = Console(FixedFeed(with_replicas(2)))
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press("down", "enter")
        await until(pilot, lambda: isinstance(app.screen, NodeScreen))
        about = app.screen.query_one("#about")
        await pilot.press("tab", "j", "j")
        await until(pilot, lambda: about.scroll_offset.y == 2)
        await pilot.press("tab", "j")
        await pilot.pause()
        assert about.scroll_offset.y == 2 and app.screen.table.has_focus  # type: ignore[attr-defined]


async def test_a_node_is_opened_by_its_name() -> None:
    app = Console(FixedFeed(worlds.sick_node()))
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press("colon", *"node node08", "enter")
        await until(pilot, lambda: app.flashed is not None)
        assert app.flashed is not None and app.flashed[0].startswith("node node08 is unknown")
        await pilot.press("colon", *"node node07", "enter")
        await until(pilot, lambda: isinstance(app.screen, NodeScreen) and "no_avx2" in drawn(app))


async def test_a_focused_half_is_drawn_in_ascii_where_that_is_asked_for() -> None:
    app = Console(FixedFeed(worlds.gpu_server()), ascii=True)
    async with app.run_test(size=(100, 30)) as pilot:
        await pilot.press("enter", "tab")
        await until(pilot, lambda: isinstance(app.screen, NodeScreen) and app.screen.query_one("#about").has_focus)
        await pilot.pause()
        lines = [to_ascii(line) for line in drawn(app).splitlines()]
        assert not [line for line in lines if "?" in line and "<?>" not in line and "help" not in line]


def drawn(app: Console) -> str:
    strips = app.screen._compositor.render_strips()
    return "\n".join("".join(part.text for part in strip) for strip in strips)


@pytest.mark.parametrize("room", [30, 60, 78, 140])
@pytest.mark.parametrize("world", [worlds.gpu_server(), worlds.sick_node(), worlds.speaking("日本 " * 30)])
def test_no_line_is_wider_than_the_terminal(world: worlds.World, room: int) -> None:
    for one in world.nodes:
        for line in laid_out(node.blocks(one, (), worlds.T0), room):
            assert sum(width(text) for text, _ in line) <= room


def test_what_is_wrong_is_marked_in_words_and_not_by_colour_alone() -> None:
    for line in laid_out(node.blocks(worlds.sick_node().nodes[1], (), worlds.T0), 120):
        for text, style in line:
            assert style != "$warning" or "!" in text or not text.strip() or not text.startswith("  !"), text
    marked = [row for block in node.blocks(worlds.sick_node().nodes[1], (), worlds.T0) for row in block.rows]
    assert {row.cells[0].text for row in marked if row.cells[0].tone is Tone.WARN} == {"!"}


def test_a_node_that_never_came_back_says_so_and_shows_what_is_left() -> None:
    known = worlds.one_node_lost().nodes[4]
    said = [safe(text) for block in node.blocks(known, (), worlds.T0) for text, _ in block.said]
    assert "! machine known from before; its agent has not come back yet" in said
    assert {block.title for block in node.blocks(known, (), worlds.T0)} == {"node", "memory", "engines", "routers"}


def test_parts_of_a_divided_gpu_stand_under_their_card() -> None:
    server = worlds.gpu_server().nodes[0]
    assert server.inventory is not None and server.usage is not None
    first, second, *_ = server.inventory.gpus
    part = replace(first, uuid="MIG-1", name="1g.10gb", parent=first.uuid, memory=Bytes(10 * GIB))
    divided = replace(first, divided=True)
    inventory = replace(server.inventory, gpus=(divided, second, part))
    usage = replace(server.usage, gpu_used=(Bytes(0), Bytes(GIB), Bytes(5 * GIB)))
    blocks = node.blocks(replace(server, inventory=inventory, usage=usage), (), worlds.T0)
    [gpus] = [block for block in blocks if block.title == "GPUs"]
    told = [" ".join(cell.text for cell in row.cells[1:5]) for row in gpus.rows]
    assert told[0].startswith("0 NVIDIA H100") and gpus.rows[0].cells[-1].text == "divided, runs nothing itself"
    assert told[1] == "└ 1g.10gb ▓▓▓▓░░░░ 5 GiB of 10 GiB"
    assert told[2].startswith("1 NVIDIA H100")
