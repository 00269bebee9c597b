"""What is the same on every screen that is a table: filter, sort, the cursor, and a few lines about its row?"""

from collections.abc import Iterable
from typing import ClassVar

from textual import on
from textual.binding import BindingType
from textual.widget import Widget

from llmgw.core.safe import Safe, safe
from llmgw.tui import keys
from llmgw.tui.rows.row import Column, Entry, Row, matching, ordered
from llmgw.tui.screens.frame import Frame
from llmgw.tui.text import content
from llmgw.tui.view import Link, View
from llmgw.tui.widgets.detail import Detail
from llmgw.tui.widgets.prompt import Prompt
from llmgw.tui.widgets.table import Table

_MOST_DETAIL = 16
"""Lines about one row, however many the table leaves empty."""


class TableScreen(Frame):
    """A table of rows made from the view. A row is made again only when what it is made from changed."""

    columns: ClassVar[tuple[Column, ...]] = ()
    sorts: ClassVar[bool] = True
    """Whether its rows may be put in another order."""
    BINDINGS: ClassVar[list[BindingType]] = keys.bindings(keys.TABLE)

    def __init__(self) -> None:
        super().__init__()
        self.table = Table(self.columns, id="table")
        self.filter = ""
        self._detail = Detail(id="detail")
        self._by: tuple[int, bool] | None = (0, False) if self.sorts else None
        self._made: dict[str, tuple[Entry, Row]] = {}
        self._shown = 0
        """Rows that the filter leaves."""

    # --- what a screen says -------------------------------------------------------------------------------------

    def entries(self, view: View) -> Iterable[Entry]:
        """What its rows are made from."""
        raise NotImplementedError

    @classmethod
    def usual_keys(cls) -> tuple[keys.Key, ...]:
        """A table whose order tells something has no other."""
        common = (*keys.TABLE, *super().usual_keys())
        return common if cls.sorts else tuple(key for key in common if key not in keys.ORDER)

    def caption(self) -> Safe:
        """What the table shows; counts are put behind it."""
        return self.crumb()

    def empty(self, view: View) -> Safe:
        """What stands in a table without rows."""
        raise NotImplementedError

    def counts(self, row: Row) -> bool:
        """Whether the row is one of those that the title counts."""
        return row.depth == 0

    def above(self) -> Iterable[Widget]:
        """What stands over the table."""
        return ()

    def open(self, row: Row) -> None:
        """Enter on a row."""

    # --- the table ----------------------------------------------------------------------------------------------

    def body(self) -> Iterable[Widget]:
        """The table and the lines about the row under the cursor."""
        yield from self.above()
        yield self.table
        yield self._detail

    def ready(self) -> None:
        """The table has the keys."""
        self.table.focus()

    def show(self, view: View) -> None:
        """Show the rows of this view."""
        self.table.stale = view.link is not Link.LIVE
        rows = self._rows(view)
        shown = matching(rows, self.filter) if self.filter else rows
        if self._by is not None:
            shown = ordered(shown, self._by[0], down=self._by[1])
        self._shown = len(shown)
        self.table.show(shown, self.owner.now(), empty=self._nothing(view, rows), by=self._by)
        self._entitle(*(sum(map(self.counts, some)) for some in (shown, rows)))
        self.describe(self.table.current)

    def tick(self, now: float) -> None:
        """Ages grow."""
        self.table.tick(now)

    def _rows(self, view: View) -> list[Row]:
        made: dict[str, tuple[Entry, Row]] = {}
        for entry in self.entries(view):
            known = self._made.get(entry[0])
            made[entry[0]] = known if known is not None and known[0] == entry else (entry, entry[1](*entry[2]))
        self._made = made
        return [row for _, row in made.values()]

    def _nothing(self, view: View, rows: list[Row]) -> Safe:
        if not view.whole:
            return safe("waiting for the control plane's first word")
        return safe("no row matches the filter; esc clears it") if rows else self.empty(view)

    def tally(self, shown: int, of: int) -> Safe:
        """What stands behind the caption: how many there are, and how many of them the filter leaves."""
        return safe(f"({shown} of {of})" if self.filter else f"({of})")

    def _entitle(self, shown: int, of: int) -> None:
        filtered = f" /{self.filter}" if self.filter else ""
        title = safe(f"{self.caption()}{filtered} {self.tally(shown, of)}")
        if title != self.table.border_title:
            self.table.border_title = content(title)

    def about(self, row: Row | None) -> tuple[Safe, ...]:
        """What the lines under the table say."""
        return row.detail if row is not None else ()

    def describe(self, row: Row | None) -> None:
        """Tell about this row under the table."""
        self._detail.tell(self.about(row))
        self._share()

    def most_detail(self, room: int) -> int:
        """How many of `room` lines, which the table and the lines about a row share, are for these at most."""
        return min(room - 1 - max(1, self._shown), _MOST_DETAIL)

    def _share(self) -> None:
        """What the rows leave empty of the table is for the lines about one of them, where those need it."""
        both = self.table.size.height + self._detail.size.height
        least = max(0, min(self._detail.wants(self._detail.size.width), self.most_detail(both)))
        if self._detail.size:
            self._detail.styles.min_height = least

    def on_resize(self) -> None:
        """Another size is known to both after they were laid out."""
        self.call_after_refresh(self._share)

    @on(Table.Moved)
    def _moved(self, event: Table.Moved) -> None:
        self.describe(event.row)

    # --- keys ---------------------------------------------------------------------------------------------------

    def action_open(self) -> None:
        """Enter."""
        if (row := self.table.current) is not None:
            self.open(row)

    @on(Table.Opened)
    def _opened(self, event: Table.Opened) -> None:
        self.open(event.row)

    def action_filter(self) -> None:
        """`/` opens the prompt."""
        self.prompt.open("/", self.filter, safe("filter: a regular expression, ! before it inverts"))

    def action_sort(self) -> None:
        """`S` sorts by the next column."""
        if self._by is not None:
            self._by = ((self._by[0] + 1) % len(self.columns), False)
            self.show(self.owner.view)

    def action_invert(self) -> None:
        """`I` turns the order around."""
        if self._by is not None:
            self._by = (self._by[0], not self._by[1])
            self.show(self.owner.view)

    def action_back(self) -> None:
        """`esc` clears the filter, then goes back."""
        if self.filter:
            self._filter_by("")
        else:
            super().action_back()

    @on(Prompt.Typed)
    def _typed(self, event: Prompt.Typed) -> None:
        self._filter_by(event.text)

    @on(Prompt.Left)
    def _left_filter(self, event: Prompt.Left) -> None:
        if event.mark == "/":
            self._filter_by("")

    def _filter_by(self, text: str) -> None:
        self.filter = text.strip()
        self.show(self.owner.view)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """What would put the rows in another order does nothing where there is none."""
        if not self.sorts and any(action == key.action for key in keys.ORDER):
            return False
        return super().check_action(action, parameters)
