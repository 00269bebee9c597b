"""The models, with their replicas under them."""

from collections.abc import Iterable

from llmgw.core.safe import Safe, safe
from llmgw.tui import keys
from llmgw.tui.rows import models
from llmgw.tui.rows.row import Entry, Row
from llmgw.tui.screens.events import EventsScreen
from llmgw.tui.screens.table import TableScreen
from llmgw.tui.view import View

_KEYS = (keys.FOLD, keys.WHY, keys.EVENTS, keys.SCALE)


class ModelsScreen(TableScreen):
    """Every model: whether it is served, and where each of its replicas is."""

    place = "models"
    columns = models.COLUMNS
    own_keys = _KEYS

    def __init__(self) -> None:
        super().__init__()
        self._unfolded: set[str] = set()

    def crumb(self) -> Safe:
        """`models`."""
        return safe("models")

    def entries(self, view: View) -> Iterable[Entry]:
        """A tree a model."""
        return models.entries(view, self._unfolded)

    def empty(self, view: View) -> Safe:
        """Where models come from."""
        return safe("no model in the catalog: name some under models: in server.yaml")

    def open(self, row: Row) -> None:
        """A model opens or closes; a replica shows what happened to it."""
        if row.depth:
            self.app.push_screen(EventsScreen(row.key))
            return
        self._unfolded ^= {row.key}
        self.show(self.owner.view)

    def action_events(self) -> None:
        """What happened to the model or the replica."""
        if (row := self.table.current) is not None:
            self.app.push_screen(EventsScreen(row.key))

    def action_why(self) -> None:
        """Why the model has not all its replicas."""
        if (model := self._model()) is not None:
            self.owner.show_why(model)

    def action_scale(self) -> None:
        """Ask for a number of replicas."""
        if (model := self._model()) is not None:
            self.owner.ask_scale(model)

    def _model(self) -> str | None:
        row = self.table.current
        return None if row is None else row.key.rpartition("/")[0] if row.depth else row.key
