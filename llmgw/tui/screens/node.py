"""One node: what it says of itself and what is wrong with it, over its replicas."""

from collections.abc import Iterable

from textual.widget import Widget

from llmgw.core.safe import Safe, safe
from llmgw.tui import keys
from llmgw.tui.rows import node, replicas
from llmgw.tui.rows.row import Entry, Row
from llmgw.tui.screens.events import EventsScreen
from llmgw.tui.screens.table import TableScreen
from llmgw.tui.text import content
from llmgw.tui.view import Link, View
from llmgw.tui.widgets.sheet import Sheet

_MOST_ROWS = 8
"""Replicas that are seen at once while the description wants the room."""
_FRAME = 7
"""Lines of the screen that neither half has: header, hints, banner, the lines about a row, crumbs."""


class NodeScreen(TableScreen):
    """Two halves: the description, which scrolls, and the table of replicas, which has the keys at first."""

    place = "a node"
    columns = replicas.COLUMNS
    own_keys = (keys.EVENTS_OF_IT, keys.PANE, keys.WHY)

    def __init__(self, name: str) -> None:
        super().__init__()
        self._node = name
        self._about = Sheet(id="about")
        self._about.border_title = content(safe(name))

    def crumb(self) -> Safe:
        """The node's name."""
        return safe(self._node)

    def caption(self) -> Safe:
        """Which node's."""
        return safe(f"replicas on {self._node}")

    def above(self) -> Iterable[Widget]:
        """What is known of the node."""
        yield self._about

    def entries(self, view: View) -> Iterable[Entry]:
        """A row a replica."""
        return replicas.entries(view, self._node)

    def empty(self, view: View) -> Safe:
        """Gone, or idle."""
        return safe("nothing runs here" if self._node in view.nodes else "this node is no more")

    def show(self, view: View) -> None:
        """Show the node and its replicas as they are in this view."""
        super().show(view)
        self._share(len(view.replicas.on(self._node)))
        self._describe_node(view)

    def tick(self, now: float) -> None:
        """Ages grow, in both halves."""
        super().tick(now)
        self._describe_node(self.owner.view)

    def _share(self, rows: int) -> None:
        """The description has what the replicas do not need, and never less than two fifths."""
        room = self.size.height - _FRAME
        self._about.styles.max_height = max(2 * room // 5, room - max(1, min(rows, _MOST_ROWS)) - 3, 5)

    def _describe_node(self, view: View) -> None:
        self._about.stale = view.link is not Link.LIVE
        found = view.nodes.get(self._node)
        self._about.display = found is not None
        if found is not None:
            self._about.show(node.blocks(found, self.owner.now()))

    def open(self, row: Row) -> None:
        """What happened to the replica."""
        self.app.push_screen(EventsScreen(row.key))

    def action_pane(self) -> None:
        """`tab` gives the keys that move to the other half."""
        (self.table if self._about.has_focus else self._about).focus()

    def action_why(self) -> None:
        """Why its model has not all its replicas."""
        if (row := self.table.current) is not None:
            self.owner.show_why(row.key.rpartition("/")[0])
