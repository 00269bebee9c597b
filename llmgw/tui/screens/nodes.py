"""Every node, a row each."""

from collections.abc import Iterable

from llmgw.core.safe import Safe, safe
from llmgw.tui import keys
from llmgw.tui.rows import nodes
from llmgw.tui.rows.row import Entry, Row
from llmgw.tui.screens.events import EventsScreen
from llmgw.tui.screens.node import NodeScreen
from llmgw.tui.screens.table import TableScreen
from llmgw.tui.view import View


class NodesScreen(TableScreen):
    """Every node: whether it is there, what it promised, which engines it has."""

    place = "nodes"
    columns = nodes.COLUMNS
    own_keys = (keys.NODE, keys.EVENTS)

    def crumb(self) -> Safe:
        """`nodes`."""
        return safe("nodes")

    def entries(self, view: View) -> Iterable[Entry]:
        """A row a node."""
        return nodes.entries(view)

    def empty(self, view: View) -> Safe:
        """How to get one."""
        return safe("no node has joined yet: start llmgw-agent on a host, with a certificate for it")

    def open(self, row: Row) -> None:
        """All about it."""
        self.app.push_screen(NodeScreen(row.key))

    def action_events(self) -> None:
        """What happened to it."""
        if (row := self.table.current) is not None:
            self.app.push_screen(EventsScreen(row.key))
