"""The nodes, and one node's replicas."""

from collections.abc import Iterable

from llmgw.core.safe import Safe, safe
from llmgw.tui import keys
from llmgw.tui.rows import nodes, replicas
from llmgw.tui.rows.row import Entry, Row
from llmgw.tui.screens.events import EventsScreen
from llmgw.tui.screens.table import TableScreen
from llmgw.tui.view import View


class NodesScreen(TableScreen):
    """Every node: whether it is there, what it promised, which engines it has."""

    place = "nodes"
    columns = nodes.COLUMNS
    own_keys = (keys.REPLICAS, keys.EVENTS)

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
        """Its replicas."""
        self.app.push_screen(NodeScreen(row.key))

    def action_events(self) -> None:
        """What happened to it."""
        if (row := self.table.current) is not None:
            self.app.push_screen(EventsScreen(row.key))


class NodeScreen(TableScreen):
    """One node's replicas."""

    place = "a node"
    columns = replicas.COLUMNS
    own_keys = (keys.EVENTS_OF_IT, keys.WHY)

    def __init__(self, node: str) -> None:
        super().__init__()
        self._node = node

    def crumb(self) -> Safe:
        """The node's name."""
        return safe(self._node)

    def caption(self) -> Safe:
        """Which node's."""
        return safe(f"replicas on {self._node}")

    def entries(self, view: View) -> Iterable[Entry]:
        """A row a replica."""
        return replicas.entries(view, self._node)

    def empty(self, view: View) -> Safe:
        """Gone, or idle."""
        return safe("nothing runs here" if self._node in view.nodes else "this node is no more")

    def open(self, row: Row) -> None:
        """What happened to the replica."""
        self.app.push_screen(EventsScreen(row.key))

    def action_why(self) -> None:
        """Why its model has not all its replicas."""
        if (row := self.table.current) is not None:
            self.owner.show_why(row.key.rpartition("/")[0])
