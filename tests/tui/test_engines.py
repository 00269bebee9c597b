"""The engines screen: what is installed, what is being installed and how far, and what stands in the way."""

from dataclasses import replace
from typing import Any

import pytest

from llmgw.core.engines.terms import InstallStep
from llmgw.core.names import NodeName
from llmgw.core.safe import safe
from llmgw.core.units import MIB, Bytes
from llmgw.core.views import EngineView, Page
from llmgw.tui.app import Console
from llmgw.tui.builder import Builder
from llmgw.tui.rows import engines
from llmgw.tui.rows.row import made, ordered
from llmgw.tui.screens.engines import EnginesScreen
from llmgw.tui.view import Link, View
from llmgw.tui.widgets.layout import Widths
from tests import worlds
from tests.tui.feeds import FixedFeed, until, view_of

SIZE = (100, 30)
ENGINES = ["colon", *"en", "enter"]


def test_engines_at_every_step(snap_compare: Any) -> None:
    """A bar while bytes move; under the table the steps of the one under the cursor."""
    assert snap_compare(Console(FixedFeed(worlds.installing())), press=[*ENGINES, "down"], terminal_size=SIZE)


def test_engines_that_went_wrong(snap_compare: Any) -> None:
    """Broken, failed with long words, by hand, on a lost node, and one whose words mean harm."""
    press = [*ENGINES, "down", "down"]
    assert snap_compare(Console(FixedFeed(worlds.engines_gone_wrong())), press=press, terminal_size=SIZE)


def test_enter_shows_all_the_words_on_a_small_terminal(snap_compare: Any) -> None:
    """More rows than fit: they make room."""
    world = worlds.engines_gone_wrong()
    more = (replace(world.installs[0], node=NodeName(f"node{number}")) for number in range(10, 30))
    press = [*ENGINES, "down", "down", "enter"]
    app = Console(FixedFeed(replace(world, installs=(*world.installs, *more))))
    assert snap_compare(app, press=press, terminal_size=(80, 24))


def test_engines_in_ascii(snap_compare: Any) -> None:
    app = Console(FixedFeed(worlds.installing()), ascii=True)
    assert snap_compare(app, press=[*ENGINES, "down", "down"], terminal_size=(80, 24))


def test_a_retry_is_asked_before_it_is_done(snap_compare: Any) -> None:
    press = [*ENGINES, "down", "R"]
    assert snap_compare(Console(FixedFeed(worlds.engines_gone_wrong())), press=press, terminal_size=SIZE)


def test_nodes_show_what_they_install(snap_compare: Any) -> None:
    assert snap_compare(Console(FixedFeed(worlds.installing())), terminal_size=(120, 30))


def test_a_node_shows_its_engines_with_what_is_wrong(snap_compare: Any) -> None:
    press = ["colon", *"node node06", "enter"]
    assert snap_compare(Console(FixedFeed(worlds.engines_gone_wrong())), press=press, terminal_size=(120, 40))


async def test_retry_is_done_only_when_it_was_confirmed() -> None:
    feed = FixedFeed(worlds.installing())
    app = Console(feed)
    async with app.run_test(size=SIZE) as pilot:
        await pilot.press(*ENGINES, "down")
        for leaves in ("enter", "escape", "n", "q"):
            await pilot.press("R", leaves)
            assert feed.retried == [] and isinstance(app.screen, EnginesScreen)
        await pilot.press("R", "y")
        await until(pilot, lambda: app.flashed is not None)
        assert app.flashed is not None and app.flashed[0] == "node02 tries llama.cpp b10991 again, event 48214 "
        await pilot.press("R", "tab", "enter")
        await until(pilot, lambda: len(feed.retried) == 2)
        assert feed.retried == 2 * [("node02", "llama.cpp")] and isinstance(app.screen, EnginesScreen)


async def test_what_a_retry_is_refused_with_is_said() -> None:
    world = worlds.installing()
    feed = FixedFeed(world)
    app = Console(feed)
    async with app.run_test(size=SIZE) as pilot:
        await pilot.press(*ENGINES, "R")
        feed.view = replace(feed.view, nodes={})
        await pilot.press("y")
        await until(pilot, lambda: app.flashed is not None)
        assert app.flashed is not None and app.flashed[0].startswith("not retried: node 'node01'")


async def test_read_only_retries_nothing() -> None:
    feed = FixedFeed(worlds.installing())
    app = Console(feed, read_only=True)
    async with app.run_test(size=SIZE) as pilot:
        await pilot.press(*ENGINES, "R", "y")
        await app.run_action("screen.retry")
        assert feed.retried == [] and isinstance(app.screen, EnginesScreen)


async def test_why_leads_to_a_model_that_waits_for_the_engine() -> None:
    feed = FixedFeed(worlds.installing())
    app = Console(feed)
    async with app.run_test(size=SIZE) as pilot:
        await pilot.press(*ENGINES, "w")
        assert app.flashed is not None and app.flashed[0] == "no model waits for it "
        await pilot.press("down", "w")
        assert app.screen.crumb() == "why gemma" and feed.asked == ["gemma"]  # type: ignore[attr-defined]


async def test_the_title_counts_what_is_how_and_what_a_filter_leaves() -> None:
    app = Console(FixedFeed(worlds.engines_gone_wrong()))
    async with app.run_test(size=SIZE) as pilot:
        await pilot.press(*ENGINES)
        title = app.screen.query_one("#table")
        assert str(title.border_title) == "engines (1 installing, 2 failed, 2 broken, 3 ready)"
        await pilot.press("slash", *"broken", "enter")
        assert str(title.border_title) == "engines /broken (2 of 8)"


@pytest.mark.parametrize("world", [worlds.installing(), worlds.engines_gone_wrong(), worlds.speaking("x")])
def test_engines_sort_by_every_column(world: worlds.World) -> None:
    """Cells of one column compare, whatever is in them."""
    rows = made(engines.entries(view_of(world)))
    for column in range(len(engines.COLUMNS)):
        assert len(ordered(rows, column, down=False)) == len(rows)
    steps = [row.cells[4].text for row in ordered(rows, 4, down=False)]
    assert steps == sorted(steps, key=lambda step: step not in ("broken", "failed")), "what is wrong comes first"


# --- what is live -----------------------------------------------------------------------------------------------


def page(*views: EngineView, first: bool = False) -> Page:
    return Page(revision=worlds.REVISION, now=worlds.T0, snapshot=first, first=first, complete=first, items=views)


def view_after(*views: EngineView) -> View:
    builder = Builder()
    builder.take(page(views[0], first=True))
    view = builder.view(None, Link.LIVE, 0.0, safe(""))
    for one in views[1:]:
        builder.take(page(one))
        view = builder.view(None, Link.LIVE, 0.0, safe(""))
    return view


NAME = "node01/llama.cpp/b10991"


def test_the_time_that_is_left_has_a_column_for_as_long_as_something_is_installed() -> None:
    """Also between two steps that tell it, so that nothing jumps; and none for the rest of the session."""
    laid = Widths(engines.COLUMNS)
    laid.fit(120)
    download = {"done": Bytes(1), "total": Bytes(9), "rate": 1.0}
    there = []
    for step, more in ((InstallStep.DOWNLOAD, download), (InstallStep.PROVE, {}), (InstallStep.READY, {})):
        laid.learn([engines.row(NAME, at(step, 10.0, **more), False)])
        there.append("LEFT" in [column.title for column in laid.columns])
    assert there == [True, True, False]


def test_a_repair_says_what_it_is_at_before_what_was_wrong() -> None:
    more = {"subject": f"download {worlds.ARCHIVE}", "problem": "libgomp.so.1 is missing", "checked_at": 9.0}
    one = at(InstallStep.READY, 10.0, done=Bytes(9 * MIB), total=Bytes(16 * MIB), retry_at=99.0, **more)
    says = f"repairing: downloading {worlds.ARCHIVE} (16 MiB), 56 %"
    cells = {
        column.title: cell for column, cell in zip(engines.COLUMNS, engines.row(NAME, one, False).cells, strict=True)
    }
    assert cells[safe("DETAIL")].drawn(50.0) == f"{says}; libgomp.so.1 is missing", (
        "it is not waiting to be tried again"
    )
    assert cells[safe("STEP")].text == "repair" and cells[safe("PROGRESS")].text.endswith("56 %")
    assert says in engines.about(view_after(one), NAME)


def at(step: InstallStep, since: float, **more: object) -> EngineView:
    return worlds.engine_view("node01", step, since=since, **more)


def test_how_long_a_step_took_is_known_when_it_was_seen() -> None:
    seen = (
        at(InstallStep.RESOLVE, 10.0),
        at(InstallStep.DOWNLOAD, 10.2),
        at(InstallStep.DOWNLOAD, 10.2, done=Bytes(9)),
    )
    assert (
        engines.about(view_after(*seen), NAME)[0]
        == "node01  resolve 0.2s  [download now]  verify  unpack  libraries  prove  ready"
    )


def test_an_install_that_begins_again_has_nothing_behind_it() -> None:
    resolve, download = InstallStep.RESOLVE, InstallStep.DOWNLOAD
    views = at(resolve, 10.0), at(download, 11.0), at(resolve, 20.0)
    assert view_after(*views).steps[NAME] == ((resolve, 20.0),)
    assert view_after(*views, at(download, 21.0)).steps[NAME] == ((resolve, 20.0), (download, 21.0))


async def test_of_200_installs_only_what_reads_differently_is_drawn_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each moves twice a second; what is not on the screen, and cells that read the same, cost nothing to draw."""
    world = worlds.installing()
    moving = world.installs[1]
    many = tuple(replace(moving, node=NodeName(f"node{number:03}")) for number in range(200))
    world = replace(world, installs=many)
    feed = FixedFeed(world)
    app = Console(feed)
    async with app.run_test(size=SIZE) as pilot:
        await pilot.press(*ENGINES)
        table = app.screen.table  # type: ignore[attr-defined]
        drawn: list[object] = []
        refresh = table.refresh
        monkeypatch.setattr(
            table, "refresh", lambda *regions, **more: (drawn.append(regions), refresh(*regions, **more))
        )
        on = replace(moving.install, done=Bytes(moving.install.done + 9 * MIB))
        world = replace(
            world,
            installs=(*(replace(one, install=on) for one in many[:2]), *many[2:-1], replace(many[-1], install=on)),
        )
        feed.say(view_of(world))
        await until(pilot, lambda: app.view is feed.view)
        await pilot.pause()
        rows = {region.y for regions in drawn for region in regions}
        assert rows == {1, 2}, drawn
