"""Why a model has not all its replicas, node by node."""

from collections.abc import Iterable

from textual import work
from textual.widget import Widget

from llmgw.core.errors import LlmgwError
from llmgw.core.safe import Safe, safe
from llmgw.core.views import Why
from llmgw.tui import keys
from llmgw.tui.rows import why
from llmgw.tui.rows.row import Entry, Row
from llmgw.tui.screens.node import NodeScreen
from llmgw.tui.screens.table import TableScreen
from llmgw.tui.text import lines
from llmgw.tui.view import View
from llmgw.tui.widgets.line import Line

PAUSE = 1.0
"""Seconds between a change and the next question: nodes change all the time."""


class WhyScreen(TableScreen):
    """Asks when it is opened, and again after something changed that the answer may depend on."""

    place = "why"
    columns = why.COLUMNS
    own_keys = (keys.NODE,)
    sorts = False

    def __init__(self, model: str) -> None:
        super().__init__()
        self._model = model
        self._head = Line(id="head")
        self._why: Why | None = None
        self._problem = safe("")
        self._asked: tuple[object, ...] | None = None
        self._waiting = False

    def crumb(self) -> Safe:
        """Which model."""
        return safe(f"why {self._model}")

    def keys_here(self) -> tuple[keys.Key, ...]:
        """Without a node there is none to look at."""
        return self.own_keys if self.table.current is not None else ()

    def above(self) -> Iterable[Widget]:
        """The sum."""
        yield self._head

    def entries(self, view: View) -> Iterable[Entry]:
        """A row a node."""
        return why.entries(self._why) if self._why is not None else ()

    def empty(self, view: View) -> Safe:
        """No answer, or no nodes."""
        if self._why is None:
            return self._problem or safe("asking")
        return safe("there is no node at all")

    def open(self, row: Row) -> None:
        """The node, with its replicas: what could make room."""
        self.app.push_screen(NodeScreen(row.key))

    def show(self, view: View) -> None:
        """Show the answer there is; ask again when it may be another now."""
        super().show(view)
        if self._why is not None:
            model = view.models.get(self._why.model)
            told = why.head(self._why, model.away if model is not None else 0)
            self._head.show(lines([safe(f" {line}") for line in told]))
        basis = (view.models.get(self._model), view.nodes, view.link)
        if self._asked is None:
            self._asked = basis
            self._ask()
        elif not self._waiting and any(a is not b for a, b in zip(basis, self._asked, strict=True)):
            self._waiting = True
            self.set_timer(PAUSE, self._ask_again)

    def _ask_again(self) -> None:
        view = self.owner.view
        self._waiting, self._asked = False, (view.models.get(self._model), view.nodes, view.link)
        self._ask()

    @work(exclusive=True, group="why")
    async def _ask(self) -> None:
        try:
            self._why, self._problem = await self.owner.feed.why(self._model), safe("")
        except LlmgwError as error:
            self._problem = safe(str(error))
        self.update(self.owner.view)  # the keys too: which there are depends on the answer
