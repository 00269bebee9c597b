"""Which keys and commands are there, seen from the screen below?"""

from collections.abc import Iterable, Sequence
from itertools import zip_longest
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import Static

from llmgw.core.safe import Safe, join, safe
from llmgw.tui import keys
from llmgw.tui.commands import COMMANDS
from llmgw.tui.keys import Group, Key
from llmgw.tui.text import content, fitted, lines, width


class HelpScreen(ModalScreen[None]):
    """Keys by where they work, then the commands."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,q,question_mark,enter", "dismiss", show=False)]

    def __init__(self, screen: Safe, there: Sequence[Key], *, read_only: bool, note: Safe) -> None:
        super().__init__()
        self._screen, self._there, self._read_only, self._said = screen, there, read_only, note

    def compose(self) -> ComposeResult:
        """One box with text in it."""
        shown = keys.allowed((*self._there, *keys.MOVE, keys.QUIT), read_only=self._read_only)
        with VerticalScroll(id="help") as box:
            box.border_title = content(safe(f"help: {self._screen}"))
            yield Static(lines([*_columns(shown), *_commands(), *self._notes(shown)]), markup=False)

    def _notes(self, shown: Sequence[Key]) -> Iterable[Safe]:
        if self._read_only:
            yield safe("read-only: keys that change the cluster are not there")
        elif any(key.dangerous for key in shown):
            yield safe("! changes the cluster; not there with --read-only")
        if self._said:
            yield self._said


def _columns(shown: Sequence[Key]) -> list[Safe]:
    """The groups side by side, two and two so that they fit into 80 cells."""
    pairs = ((Group.HERE, Group.TABLE), (Group.MOVE, Group.EVERYWHERE))
    told: list[Safe] = []
    for left, right in pairs:
        rows = zip_longest(_group(left, shown), _group(right, shown), fillvalue=safe(""))
        told += [join("", (fitted(a, 36), b)) for a, b in rows]
    return told


def _group(group: Group, shown: Sequence[Key]) -> list[Safe]:
    own = [key for key in shown if key.group is group]
    wide = max((width(key.shown) for key in own), default=0)
    mark = safe(" !")
    rows = [
        join("  ", (fitted(key.shown, wide), join("", (key.label, *([mark] if key.dangerous else []))))) for key in own
    ]
    return [safe(group.value.upper()), *rows]


def _commands() -> Iterable[Safe]:
    yield safe("COMMANDS")
    wide = max(width(command.usage) for command in COMMANDS)
    for command in COMMANDS:
        also = safe(f"  ({', '.join(command.aliases)})")
        yield join("", (fitted(command.usage, wide), safe("  "), command.label, also))
