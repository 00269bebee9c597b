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

_MOST_ROWS, _MOST_DETAIL = 8, 4
"""Replicas that are seen at once, and lines about one of them, while the description wants the room."""
_TABLE, _FRAME = 3, 4
"""Lines of the table beside its rows; of the screen beside both halves and the banner: header, hints, crumbs."""


class NodeScreen(TableScreen):
    """Two halves: the description, which scrolls, and the table of replicas.

    The table has the keys at first where there is something to choose in it, and is there at all where anything runs.
    """

    place = "a node"
    columns = replicas.COLUMNS
    own_keys = (keys.EVENTS_OF_IT, keys.PANE, keys.WHY)

    def __init__(self, name: str) -> None:
        super().__init__()
        self._node = name
        self._about = Sheet(id="about")
        self._about.border_title = content(safe(name))
        self._half: Widget | None = None
        """Which one was given the keys."""

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

    def about(self, row: Row | None) -> tuple[Safe, ...]:
        """In the place of a table without rows, that there are none."""
        view = self.owner.view
        idle = self._node in view.nodes and not view.replicas.on(self._node) and view.whole
        return (self.empty(view),) if idle else super().about(row)

    def keys_here(self) -> tuple[keys.Key, ...]:
        """Those for a replica where there is one, and the way to the other half where there are two."""
        two = self._about.display and self.table.display
        return tuple(key for key in self.own_keys if (two if key is keys.PANE else self.table.current is not None))

    def ready(self) -> None:
        """The half that was chosen has the keys; before that the one in which there is something to move."""
        half = self._half
        if half is None or not half.display:
            view = self.owner.view
            one = self._node in view.nodes and len(view.replicas.on(self._node)) <= 1
            half = self._about if one else self.table
        half.focus()

    def show(self, view: View) -> None:
        """Show the node and its replicas as they are in this view."""
        self._describe_node(view)
        super().show(view)

    def tick(self, now: float) -> None:
        """Ages grow, in both halves."""
        super().tick(now)
        self._describe_node(self.owner.view)

    def _share(self) -> None:
        """The description has what the replicas do not need, and never less than two fifths."""
        rows = len(self.owner.view.replicas.on(self._node))
        self._display(self.table, rows > 0 or not self._about.display)
        replicas = min(rows, _MOST_ROWS) + _TABLE if self.table.display else 0
        room = self.size.height - _FRAME - self.has_banner
        spare = room - replicas - self._about.wants if self._about.wants else 0
        detail = min(self._detail.wants(self.size.width - 2), max(spare, _MOST_DETAIL))
        self._detail.display = detail > 0
        self._detail.styles.height = detail
        self._about.styles.max_height = max(2 * room // 5, room - replicas - detail, 5)

    def _display(self, half: Widget, shown: bool) -> None:
        """Show a half or not; the keys do not go away with it."""
        if not shown and half.has_focus:
            (self.table if half is self._about else self._about).focus()
        half.display = shown

    def _describe_node(self, view: View) -> None:
        self._about.stale = view.link is not Link.LIVE
        found = view.nodes.get(self._node)
        self._display(self._about, found is not None)
        if found is not None:
            self._about.show(node.blocks(found, view.engines_of(self._node), self.owner.now()))

    def open(self, row: Row) -> None:
        """What happened to the replica."""
        self.app.push_screen(EventsScreen(row.key))

    def action_pane(self) -> None:
        """`tab` gives the keys that move to the other half."""
        half = self.table if self._about.has_focus else self._about
        if half.display:
            self._half = half
            half.focus()

    def action_why(self) -> None:
        """Why its model has not all its replicas."""
        if (row := self.table.current) is not None:
            self.owner.show_why(row.key.rpartition("/")[0])
