"""Every engine on every node: which are ready, how far the others are, and what stands in their way."""

from collections.abc import Iterable

from llmgw.core import engine_words
from llmgw.core.safe import Safe, safe
from llmgw.tui import keys
from llmgw.tui.rows import engines
from llmgw.tui.rows.row import Entry, Row
from llmgw.tui.screens.events import EventsScreen
from llmgw.tui.screens.table import TableScreen
from llmgw.tui.view import View

_LEAST_ROWS = 4
"""Lines of the table, its titles among them, that stay while the lines about one row take the room."""


class EnginesScreen(TableScreen):
    """A row an engine; under the table the steps of the one under the cursor."""

    place = "engines"
    columns = engines.COLUMNS
    own_keys = (keys.STEPS, keys.WHY, keys.EVENTS, keys.RETRY)

    def __init__(self) -> None:
        super().__init__()
        self._in_full = False
        """The lines about the row under the cursor are all shown, whatever that leaves of the table."""

    def crumb(self) -> Safe:
        """`engines`."""
        return safe("engines")

    def keys_here(self) -> tuple[keys.Key, ...]:
        """Without a row there is nothing to do."""
        return self.own_keys if self.table.current is not None else ()

    def entries(self, view: View) -> Iterable[Entry]:
        """A row an engine."""
        return engines.entries(view)

    def tally(self, shown: int, of: int) -> Safe:
        """How many are how; with a filter how many it leaves."""
        said = engine_words.tally(self.owner.view.engines.values())
        return safe(f"({shown} of {of})" if self.filter else f"({said or 'none'})")

    def empty(self, view: View) -> Safe:
        """How to get one."""
        return safe("no node has an engine, and none is wanted: name some under engines: in server.yaml")

    def about(self, row: Row | None) -> tuple[Safe, ...]:
        """Its steps, and what is wrong with it."""
        return engines.about(self.owner.view, row.key) if row is not None else ()

    def open(self, row: Row) -> None:
        """All that there is to say about it, or as much as fits under the table."""
        self._in_full = not self._in_full
        self.describe(row)

    def most_detail(self, room: int) -> int:
        """As many lines as are needed, once they were asked for."""
        return max(room - _LEAST_ROWS, 0) if self._in_full else super().most_detail(room)

    def action_events(self) -> None:
        """What happened to it, on its node."""
        if (row := self.table.current) is not None:
            self.app.push_screen(EventsScreen(row.key.partition("/")[0]))

    def action_why(self) -> None:
        """Why a model that its node does not take for it has not all its replicas."""
        if (row := self.table.current) is None:
            return
        if waiting := self._waiting(row):
            self.owner.show_why(waiting[0])
        else:
            self.owner.flash(safe("no model waits for it"), "$text-muted")

    def action_retry(self) -> None:
        """Let its node try again."""
        if (row := self.table.current) is not None and (view := self.owner.view.engines.get(row.key)) is not None:
            self.owner.ask_retry(view.node, view.install.engine)

    def _waiting(self, row: Row) -> list[str]:
        view = self.owner.view
        one = view.engines.get(row.key)
        return engines.waiting(view.models.values(), one.node) if one is not None else []
