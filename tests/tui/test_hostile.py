"""Text from nodes and engines on every screen: shown as text, whatever it is."""

import ast
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from llmgw.tui.app import Console
from llmgw.tui.rows import engines, events, models, nodes, replicas, why
from llmgw.tui.rows.row import made
from tests import worlds
from tests.core.test_safe import HOSTILE
from tests.tui.feeds import FixedFeed, view_of

SIZE = (120, 30)
TUI = Path(__file__).parents[2] / "llmgw" / "tui"


def test_markup_in_a_name_is_text(snap_compare: Any) -> None:
    """`[/]x` in a cell, a title or a hint would end a Textual app that takes markup."""
    world = worlds.speaking("[/]x[@click=app.quit]y[/][link=http://e]z")
    assert snap_compare(Console(FixedFeed(world)), press=["colon", *"mo", "enter", "enter", "down"], terminal_size=SIZE)


def test_escape_sequences_in_an_engines_last_words_are_visible(snap_compare: Any) -> None:
    """A title, a link, a clipboard write and a cleared screen."""
    world = worlds.speaking("\x1b]0;t\x07\x1b]8;;http://e\x1b\\l\x1b]52;c;cm0=\x07\x1b[2J\u202egpj.exe\u009b31m")
    assert snap_compare(Console(FixedFeed(world)), press=["colon", *"ev", "enter"], terminal_size=SIZE)


SCROLL_BAR = {("@mouse.down", action) for action in ("grab", "scroll_up", "scroll_down")}
"""What Textual's own scroll bar does when it is clicked."""


async def walk(text: str) -> list[tuple[str, Any]]:
    """All that any screen draws of a cluster that says only `text`: pieces of text with their styles."""
    pieces: list[tuple[str, Any]] = []
    app = Console(FixedFeed(worlds.speaking(text)))
    async with app.run_test(size=SIZE) as pilot:
        for press in (
            [],
            ["enter"],
            ["tab", "end"],
            ["w"],
            ["colon", *"mo", "enter", "enter", "down"],
            ["s"],
            ["escape", "w"],
            ["colon", *"ev", "enter"],
            ["enter"],
            ["colon", *"en", "enter"],
            ["enter", "R"],
            ["escape", "question_mark"],
        ):
            await pilot.press(*press)
            await pilot.pause()
            pieces += [(part.text, part.style) for strip in app.screen._compositor.render_strips() for part in strip]
        assert app._exception is None
        assert app.is_running
    return pieces


def check(pieces: list[tuple[str, Any]]) -> None:
    for text, style in pieces:
        assert not [
            c for c in text if c < " " or "\x7f" <= c < "\xa0" or c in "\u202e\u2066\ufeff" or "\ud800" <= c <= "\udfff"
        ]
        assert style is None or not style.link
        meta = (style.meta if style is not None else {}).items()
        actions = [value for key, value in meta if key.startswith("@") and (key, value) not in SCROLL_BAR]
        assert not actions, "a click on data would do something"


@pytest.mark.parametrize("part", range(3))
async def test_nothing_from_outside_steers_the_terminal(part: int) -> None:
    """All of them, several to a name: a walk through every screen takes its time."""
    texts = [text if isinstance(text, str) else text.decode("utf-8", "surrogateescape") for text, _ in HOSTILE.values()]
    check(await walk(" ".join(texts[part::3])))


@given(st.text(st.characters(exclude_categories=()), min_size=1, max_size=60))
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_no_cell_of_any_table_holds_what_would_steer_a_terminal(text: str) -> None:
    world = worlds.speaking(text)
    view = view_of(world)
    rows = [
        *made(nodes.entries(view)),
        *made(models.entries(view, {text})),
        *made(replicas.entries(view, text)),
        *made(engines.entries(view)),
        *made(events.entries(view.events, "")),
        *made(why.entries(world.whys[text])),
    ]
    assert len(rows) >= 8
    check([(line, None) for name in view.engines for line in engines.about(view, name)])
    for row in rows:
        check([(piece, None) for piece in (*(cell.drawn(worlds.T0) for cell in row.cells), *row.detail)])


@pytest.mark.long
@given(st.text(st.characters(exclude_categories=()), min_size=1, max_size=40))
@settings(max_examples=3, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
async def test_the_console_lives_whatever_a_cluster_says(text: str) -> None:
    check(await walk(text))


# --- nobody gives a widget a bare string ------------------------------------------------------------------------

OURS = {"Static", "Input", "Button"}
"""Widgets that the console uses of Textual's; the test below looks at what each is given."""


def modules() -> list[tuple[str, ast.Module]]:
    return [(str(path.relative_to(TUI)), ast.parse(path.read_text())) for path in sorted(TUI.rglob("*.py"))]


def test_only_safe_text_is_drawn() -> None:
    """The type checker holds `str` back from whatever takes `Safe`; this holds what goes around the type checker."""
    for name, tree in modules():
        for node in ast.walk(tree):
            if isinstance(node, ast.Call):
                called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
                assert called not in ("Safe", "notify", "from_markup", "render_str", "Label"), f"{name}:{node.lineno}"
                assert called not in ("Content", "Text") or name == "text.py" or not node.args, f"{name}:{node.lineno}"
                if called in ("Static", "Button"):
                    first = node.args[0]
                    assert isinstance(first, ast.Call) and first.func.id in ("content", "lines"), (
                        f"{name}:{node.lineno}"
                    )  # type: ignore[attr-defined]
            if isinstance(node, ast.Assign):
                for target in node.targets:
                    if isinstance(target, ast.Attribute) and target.attr in ("border_title", "border_subtitle"):
                        assert isinstance(node.value, ast.Call) and node.value.func.id == "content", (
                            f"{name}:{node.lineno}"
                        )  # type: ignore[attr-defined]
            if isinstance(node, ast.ImportFrom) and node.module == "textual.widgets":
                assert {alias.name for alias in node.names} <= OURS, f"{name}:{node.lineno}"
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("rich"):
                assert name in ("text.py", "widgets/table.py"), f"{name}:{node.lineno}"
