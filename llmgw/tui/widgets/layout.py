"""How wide is each column, and which are left out when the terminal is narrow?"""

from collections.abc import Sequence
from dataclasses import dataclass

from llmgw.core.safe import Safe
from llmgw.tui.rows.row import EMPTY, Column, Row
from llmgw.tui.text import width


@dataclass(frozen=True, slots=True)
class Placed:
    """A column that is shown: which cell of a row it takes, where it starts and how wide it is, in terminal cells."""

    index: int
    title: Safe
    right: bool
    x: int
    cells: int


class Widths:
    """Columns only grow while a table is shown, so that they do not jump with every change; sparse ones may go."""

    def __init__(self, columns: Sequence[Column]) -> None:
        self.columns: tuple[Placed, ...] = ()
        self._all = columns
        self._longest = [width(column.title) + 1 for column in columns]
        self._sparse = [index for index, column in enumerate(columns) if column.sparse]
        self._hollow = set(self._sparse)
        self._room = 0
        self._known: dict[str, Row] = {}

    def learn(self, rows: Sequence[Row]) -> bool:
        """Take the lengths of these rows in; True when the layout became another."""
        known = self._known
        self._known = {row.key: row for row in rows}
        self._hollow = {index for index in self._sparse if all(row.cells[index] is EMPTY for row in rows)}
        for row in rows:
            if known.get(row.key) is not row:
                for index, cell in enumerate(row.cells):
                    cells = width(cell.text) + (6 + len(cell.behind) if cell.at is not None else 0)
                    self._longest[index] = max(self._longest[index], cells)
        return self._lay_out()

    def fit(self, room: int) -> None:
        """Lay out for so many cells."""
        self._room = room
        self._lay_out()

    def _lay_out(self) -> bool:
        shown = [index for index in range(len(self._all)) if index not in self._hollow]
        while self._least(shown) > self._room and (spare := [i for i in shown if self._all[i].spare]):
            shown.remove(max(spare, key=lambda index: self._all[index].spare))
        cells = {index: self._wanted(index) for index in shown}
        left = self._room - sum(cells.values()) - len(cells)
        for index in reversed([index for index in shown if self._all[index].least]):
            # What is left goes to the last of them; what is missing is taken from it first.
            change = left if left > 0 else max(left, min(0, self._floor(index) - cells[index]))
            cells[index] += change
            left -= change
        placed, x = [], 0
        for index in shown:
            column = self._all[index]
            placed.append(Placed(index, column.title, column.right, x, max(1, min(cells[index], self._room - x - 1))))
            x += cells[index] + 1
        changed, self.columns = tuple(placed) != self.columns, tuple(placed)
        return changed

    def _wanted(self, index: int) -> int:
        return min(self._longest[index], max(self._all[index].most, width(self._all[index].title) + 1))

    def _least(self, shown: Sequence[int]) -> int:
        """What the columns need, with those that can be made narrower as narrow as they are still of use."""
        return sum((self._floor(index) if self._all[index].least else self._wanted(index)) + 1 for index in shown)

    def _floor(self, index: int) -> int:
        return min(self._all[index].least, self._wanted(index))
