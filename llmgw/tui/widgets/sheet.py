"""How are blocks of text laid out in so many cells, and scrolled where they are more than fits?"""

from collections.abc import Iterator, Sequence
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import VerticalScroll

from llmgw.core.safe import Safe, join, safe
from llmgw.tui import keys
from llmgw.tui.rows.node import Block
from llmgw.tui.rows.row import Row, Tone
from llmgw.tui.text import EOL, Part, content, fitted, width, wrapped
from llmgw.tui.widgets.layout import Placed, Widths
from llmgw.tui.widgets.line import Line

_TITLE = 12
"""Cells of the column of titles."""
_BETWEEN = safe(" · ")

_STYLES = {
    Tone.PLAIN: "",
    Tone.GOOD: "$success",
    Tone.BUSY: "$accent",
    Tone.WARN: "$warning",
    Tone.BAD: "$error bold",
    Tone.QUIET: "$text-muted",
}


class Sheet(VerticalScroll, can_focus=True):
    """Blocks, one under the other. What reads the same is not drawn again."""

    BINDINGS: ClassVar[list[BindingType]] = keys.bindings(keys.MOVE)

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.stale = False
        """Shown without colours, all as dim as the stylesheet says."""
        self._text = Line(classes="sheet--text")
        self._blocks: Sequence[Block] = ()
        self._count = 0

    @property
    def wants(self) -> int:
        """Lines that it would take, its border too; 0 before they were laid out."""
        return self._count + 2 if self._count else 0

    def compose(self) -> ComposeResult:
        """One piece of text."""
        yield self._text

    def show(self, blocks: Sequence[Block]) -> None:
        """Show these blocks from now on."""
        self._blocks = blocks
        self._draw()

    def on_resize(self) -> None:
        """Another width: other lines."""
        self._draw()

    def _draw(self) -> None:
        room = self.scrollable_content_region.width
        if not room or not self._blocks:
            return
        told = list(laid_out(self._blocks, room))
        plain = [[(text, "") for text, _ in line] for line in told] if self.stale else told
        parts: list[Part] = []
        for line in plain:
            parts += [*([EOL] if parts else []), *line]
        self._text.show(content(*parts))
        if len(told) != self._count:
            self._count = len(told)
            self._text.styles.height = len(told)
        self._hint()

    def _hint(self) -> None:
        """That there is more than can be seen, and how to get there."""
        hidden = self._count > self.size.height > 0
        way = "↓ ↑ scroll" if self.has_focus else "tab, then ↓ ↑ scroll"
        said = safe(f"{self._count} lines; {way}" if hidden else "")
        if said != (self.border_subtitle or ""):
            self.border_subtitle = content(said)

    def on_focus(self) -> None:
        """The keys move in it now."""
        self._hint()

    def on_blur(self) -> None:
        """They move elsewhere."""
        self._hint()

    # --- moving -------------------------------------------------------------------------------------------------

    def action_move(self, by: int) -> None:
        """Scroll by so many lines."""
        self.scroll_relative(y=by, animate=False)

    def action_page(self, by: int) -> None:
        """Scroll by so many screens."""
        self.scroll_relative(y=by * max(1, self.size.height - 1), animate=False)

    def action_first(self) -> None:
        """To the first line."""
        self.scroll_home(animate=False)

    def action_last(self) -> None:
        """To the last line."""
        self.scroll_end(animate=False)


Drawn = list[tuple[Safe, str]]
"""A line: pieces of text with their styles."""


def laid_out(blocks: Sequence[Block], room: int) -> Iterator[Drawn]:
    """The lines of all blocks, none wider than `room` cells."""
    for block in blocks:
        if block.columns:
            yield from _table(block, room)
        elif block.items:
            yield [(fitted(block.title, _TITLE), "bold")]
            for text, tone in block.items:
                yield from _sentence(text, tone, room)
        else:
            yield from _paragraph(block, room)


def _paragraph(block: Block, room: int) -> Iterator[Drawn]:
    """The title in a column of its own, and the facts beside it."""
    facts = block.said or ((block.note, block.tone),)
    lead, line, left = (fitted(block.title, _TITLE), "bold"), Drawn(), 0
    for text, tone in facts:
        for number, piece in enumerate(wrapped(text, room - _TITLE)):
            glue = width(_BETWEEN) if line and not number else 0
            if line and (number or width(piece) + glue > left):
                yield [lead, *line]
                lead, line, glue = (fitted(safe(""), _TITLE), ""), Drawn(), 0
            if not line:
                left = room - _TITLE
            line += [*([(_BETWEEN, "$text-muted")] if glue else []), (piece, _STYLES[tone])]
            left -= width(piece) + glue
    if line:
        yield [lead, *line]


def _sentence(text: Safe, tone: Tone, room: int) -> Iterator[Drawn]:
    """Lines with what follows the first indented behind its mark."""
    indent = 4 if text.startswith("  ") else 2
    for number, line in enumerate(wrapped(safe(text.lstrip(), 2048), room - indent - 2)):
        before = " " * (indent if number == 0 else indent + 2)
        yield [(join("", (safe(before), line)), _STYLES[tone])]


def _table(block: Block, room: int) -> Iterator[Drawn]:
    """A line of titles under the block's own, then its rows."""
    title = fitted(block.title, min(max(_TITLE, width(block.title) + 1), room))
    note = fitted(block.note, min(width(block.note), room - width(title)))
    yield [(title, "bold"), (note, _STYLES[block.tone])]
    widths = Widths(block.columns)
    widths.fit(room - 1)
    widths.learn(block.rows)
    columns = [column for column in widths.columns if column.x < room]
    yield [(_cells([column.title for column in columns], columns, room), "$text-muted bold")]
    for row in block.rows:
        yield [(_cells([row.cells[column.index].text for column in columns], columns, room), _tone(row))]


def _cells(texts: Sequence[Safe], columns: Sequence[Placed], room: int) -> Safe:
    pairs = zip(texts, columns, strict=True)
    line = safe(" ".join(fitted(text, column.cells, right=column.right) for text, column in pairs).rstrip(), 4096)
    return fitted(line, room) if width(line) > room else line


def _tone(row: Row) -> str:
    return _STYLES[row.cells[0].tone]
