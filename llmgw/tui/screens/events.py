"""What happened: all of it, what concerns one subject, or what led to one event and came of it."""

from collections.abc import Iterable

from llmgw.core.safe import Safe, safe
from llmgw.tui import keys
from llmgw.tui.rows import events
from llmgw.tui.rows.row import Entry, Row
from llmgw.tui.screens.table import TableScreen
from llmgw.tui.view import View


class EventsScreen(TableScreen):
    """Events, newest last; the cursor follows them while it is on the last one."""

    place = "events"
    columns = events.COLUMNS
    own_keys = (keys.CHAIN,)

    def __init__(self, subject: str = "") -> None:
        super().__init__()
        self._subject = subject
        self.table.follows = True

    def crumb(self) -> Safe:
        """`events`."""
        return safe("events")

    def caption(self) -> Safe:
        """Whose events."""
        return safe(f"events of {self._subject}" if self._subject else "events")

    def entries(self, view: View) -> Iterable[Entry]:
        """A row an event."""
        return events.entries(view.events, self._subject)

    def empty(self, view: View) -> Safe:
        """Nothing that the console still holds."""
        return safe("nothing happened lately")

    def open(self, row: Row) -> None:
        """What led to it."""
        self.app.push_screen(StoryScreen(int(row.key)))


class StoryScreen(TableScreen):
    """An event's causes, the event, and what came of it."""

    place = "an event"
    columns = events.COLUMNS
    sorts = False

    def __init__(self, seq: int) -> None:
        super().__init__()
        self._seq = seq

    def crumb(self) -> Safe:
        """The event's number."""
        return safe(f"{self._seq}")

    def caption(self) -> Safe:
        """Which event's."""
        return safe(f"what led to {self._seq}, and what came of it")

    def counts(self, row: Row) -> bool:
        """Each is an event, however deep."""
        return True

    def entries(self, view: View) -> Iterable[Entry]:
        """Causes first, then what followed."""
        return events.story(view.events, self._seq)

    def empty(self, view: View) -> Safe:
        """Forgotten meanwhile."""
        return safe("this event is too long ago: llmgw ctl events has it")
