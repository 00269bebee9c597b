"""How is a table of rows drawn, and what of it is drawn again after a change?

A change costs what can be seen of it: only the lines on the screen are drawn, and only cells that read differently
than before are sent to the terminal.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.binding import BindingType
from textual.geometry import Region, Size
from textual.message import Message
from textual.scroll_view import ScrollView
from textual.strip import Strip

from llmgw.core.safe import Safe, safe
from llmgw.tui import keys
from llmgw.tui.rows.row import Column, Row, Tone
from llmgw.tui.text import fitted, wrapped
from llmgw.tui.widgets.layout import Widths

Drawn = tuple[tuple[Safe, Tone], ...]
"""The cells of a line as they were last drawn."""

GUTTER = 2
"""Cells left of the first column: where the cursor's mark is."""


class Table(ScrollView, can_focus=True):
    """Rows under a line of titles, with a cursor that stays on its row whatever changes around it."""

    @dataclass
    class Opened(Message):
        """Enter, or a second click, on a row."""

        row: Row

    @dataclass
    class Moved(Message):
        """The cursor is on another row, or its row changed."""

        row: Row | None

    BINDINGS: ClassVar[list[BindingType]] = keys.bindings(keys.MOVE)
    COMPONENT_CLASSES: ClassVar[set[str]] = {"table--head", "table--cursor", *(f"table--{tone.value}" for tone in Tone)}

    def __init__(self, columns: Sequence[Column], *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.follows = False
        """The cursor goes along when rows are added at the end and it stands there."""
        self.stale = False
        """Shown without colours, all as dim as the stylesheet says."""
        self._widths = Widths(columns)
        self._rows: Sequence[Row] = ()
        self._empty = safe("")
        self._now = 0.0
        self._cursor = 0
        self._drawn: dict[int, Drawn] = {}
        self._sorted: tuple[int, bool] | None = None
        self._styles: dict[tuple[Tone, bool], Style] = {}

    @property
    def current(self) -> Row | None:
        """The row under the cursor."""
        return self._rows[self._cursor] if self._rows else None

    def show(self, rows: Sequence[Row], now: float, *, empty: Safe, by: tuple[int, bool] | None = None) -> None:
        """Show these rows in place of those before; `by` marks a sorted column (True: downward), `empty` is for none.

        A row with the same key is the same row: the cursor stays on it.
        """
        before, old = self.current, self._rows
        self._rows, self._now, self._empty = rows, now, empty
        self._place_cursor(before, old)
        relaid = self._widths.learn(rows)
        if len(rows) != len(old):
            self.virtual_size = Size(self.size.width, len(rows) + 1)
        if relaid or by != self._sorted or not rows or not old:
            self._sorted = by
            self._all_again()
        else:
            self._again_where_changed()
        if self.current is not before:
            self.post_message(self.Moved(self.current))

    def tick(self, now: float) -> None:
        """Let ages grow."""
        self._now = now
        self._again_where_changed()

    def _place_cursor(self, before: Row | None, old: Sequence[Row]) -> None:
        was, was_seen = self._cursor, self._is_seen(self._cursor)
        if before is None:
            self._cursor = len(self._rows) - 1 if self.follows and self._rows else 0
        elif self.follows and was == len(old) - 1:
            self._cursor = max(0, len(self._rows) - 1)
        else:
            same = (index for index, row in enumerate(self._rows) if row.key == before.key)
            self._cursor = next(same, max(0, min(was, len(self._rows) - 1)))
        if self._cursor != was:
            self._line_again(was)
            self._line_again(self._cursor)
            if was_seen or before is None:
                self.call_after_refresh(self._see_cursor)

    # --- moving -------------------------------------------------------------------------------------------------

    def action_move(self, by: int) -> None:
        """Move the cursor by so many rows."""
        self.go_to(self._cursor + by)

    def action_page(self, by: int) -> None:
        """Move the cursor by so many screens."""
        self.go_to(self._cursor + by * max(1, self._window()))

    def action_first(self) -> None:
        """To the first row."""
        self.go_to(0)

    def action_last(self) -> None:
        """To the last row."""
        self.go_to(len(self._rows) - 1)

    def go_to(self, index: int) -> None:
        """Put the cursor on a row, or on the nearest that there is."""
        index = max(0, min(index, len(self._rows) - 1))
        if index == self._cursor:
            return
        self._line_again(self._cursor)
        self._cursor = index
        self._line_again(index)
        self._see_cursor()
        self.post_message(self.Moved(self.current))

    def on_click(self, event: events.Click) -> None:
        """The first click on a row moves there, a click on the row under the cursor opens it."""
        at = event.get_content_offset(self)
        if at is None or at.y == 0 or (index := at.y - 1 + self.scroll_offset.y) >= len(self._rows):
            return
        if index == self._cursor and event.chain > 1:
            self.post_message(self.Opened(self._rows[index]))
        self.go_to(index)

    def _window(self) -> int:
        return self.size.height - 1

    def _is_seen(self, index: int) -> bool:
        return 0 <= index - self.scroll_offset.y < self._window()

    def _see_cursor(self) -> None:
        top = self.scroll_offset.y
        if self._cursor < top:
            self.scroll_to(y=self._cursor, animate=False)
        elif self._window() > 0 and self._cursor >= top + self._window():
            self.scroll_to(y=self._cursor - self._window() + 1, animate=False)

    # --- drawing ------------------------------------------------------------------------------------------------

    def render_line(self, y: int) -> Strip:
        """Textual asks for the line `y` of the window."""
        if y == 0:
            return self._titles()
        index = y - 1 + self.scroll_offset.y
        if index >= len(self._rows):
            return self._blank(y)
        drawn = self._drawn[index] = self._read(self._rows[index])
        under = index == self._cursor
        segments = [Segment(("▸ " if under else "  "), self._style(Tone.PLAIN, under))]
        for column, (text, tone) in zip(self._widths.columns, drawn, strict=True):
            segments.append(Segment(f"{fitted(text, column.cells, right=column.right)} ", self._style(tone, under)))
        return Strip(segments).adjust_cell_length(self.size.width, self._style(Tone.PLAIN, under))

    def on_resize(self) -> None:
        """Another width: other columns."""
        self._widths.fit(self.size.width - GUTTER)
        self.virtual_size = Size(self.size.width, len(self._rows) + 1)
        self._all_again()
        self.call_after_refresh(self._see_cursor)

    def notify_style_update(self) -> None:
        """Other colours."""
        super().notify_style_update()
        self._styles.clear()

    def watch_scroll_y(self, old_value: float, new_value: float) -> None:
        """Other rows are on the screen."""
        self._drawn.clear()
        super().watch_scroll_y(old_value, new_value)

    def _titles(self) -> Strip:
        style = self.rich_style + self.get_component_rich_style("table--head", partial=True)
        segments = [Segment(" " * GUTTER, style)]
        for column in self._widths.columns:
            title = column.title
            if self._sorted is not None and self._sorted[0] == column.index:
                title = safe(f"{title}{'▼' if self._sorted[1] else '▲'}")
            segments.append(Segment(f"{fitted(title, column.cells, right=column.right)} ", style))
        return Strip(segments).adjust_cell_length(self.size.width, style)

    def _blank(self, y: int) -> Strip:
        quiet = self._style(Tone.QUIET, under=False)
        told = wrapped(self._empty, self.size.width - 4) if y >= 2 and not self._rows else []
        text = told[y - 2] if 0 <= y - 2 < len(told) else safe("")
        return Strip([Segment(fitted(safe(f"  {text}"), max(0, self.size.width)), quiet)])

    def _style(self, tone: Tone, under: bool) -> Style:
        style = self._styles.get((tone, under))
        if style is None:
            style = self.rich_style
            if not self.stale:
                style += self.get_component_rich_style(f"table--{tone.value}", partial=True)
            if under:
                style += self.get_component_rich_style("table--cursor", partial=True)
            self._styles[tone, under] = style
        return style

    def _read(self, row: Row) -> Drawn:
        cells, now = row.cells, self._now
        return tuple((cells[column.index].drawn(now), cells[column.index].tone) for column in self._widths.columns)

    def _all_again(self) -> None:
        self._drawn.clear()
        self.refresh()

    def _line_again(self, index: int) -> None:
        self._drawn.pop(index, None)
        if self._is_seen(index):
            self.refresh(Region(0, index - self.scroll_offset.y + 1, self.size.width, 1))

    def _again_where_changed(self) -> None:
        """Ask for those cells on the screen to be drawn that would read differently now."""
        top = self.scroll_offset.y
        for index in range(top, min(top + self._window(), len(self._rows))):
            old = self._drawn.get(index)
            new = self._read(self._rows[index])
            if old is None:
                self._line_again(index)
                continue
            for column, was, is_now in zip(self._widths.columns, old, new, strict=True):
                if was != is_now:
                    self.refresh(Region(GUTTER + column.x, index - top + 1, column.cells, 1))
            self._drawn[index] = new
        for index in range(len(self._rows), top + self._window()):
            if self._drawn.pop(index, None) is not None:
                self.refresh(Region(0, index - top + 1, self.size.width, 1))
