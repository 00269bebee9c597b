"""What is a row, and in which order and selection are rows shown?"""

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from enum import Enum

from llmgw.core.safe import Safe, safe
from llmgw.core.units import age


class Tone(Enum):
    """How a cell is meant; always beside a word that says the same."""

    PLAIN = "plain"
    GOOD = "good"
    BUSY = "busy"
    """On its way."""
    WARN = "warn"
    BAD = "bad"
    QUIET = "quiet"


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table; widths are in terminal cells."""

    title: Safe
    right: bool = False
    most: int = 40
    """Longer cells are cut, unless nothing else wants the room."""
    least: int = 0
    """Set on columns that share what room is left, or missing: they are not made narrower than this."""
    spare: int = 0
    """Columns with a higher number are left out first when the terminal is narrow; 0 stays."""
    sparse: bool = False
    """It is left out while no row has more than `EMPTY` in it."""


@dataclass(frozen=True, slots=True)
class Cell:
    """A piece of text with its tone; `at` puts an age behind it, counted when it is drawn."""

    text: Safe
    tone: Tone = Tone.PLAIN
    order: float | str | None = None
    """What it sorts by, when not its text; of one kind in one column."""
    at: float | None = None
    until: bool = False
    """`at` lies ahead: count down to it."""
    behind: str = ""
    """Stands behind the age."""

    def drawn(self, now: float) -> Safe:
        """The text as it reads at `now`."""
        if self.at is None:
            return self.text
        return safe(f"{self.text}{rough_age(self.at - now if self.until else now - self.at)}{self.behind}")


@dataclass(frozen=True, slots=True)
class Row:
    """A row of a table. Rows of a tree come parent first, then its children with a greater `depth`."""

    key: str
    """Never shown: it finds the row again after a change."""
    cells: tuple[Cell, ...]
    detail: tuple[Safe, ...] = ()
    """Lines about it that do not fit into cells; shown for the row under the cursor."""
    depth: int = 0


Entry = tuple[str, Callable[..., Row], tuple[object, ...]]
"""A row before it is made: its key, what makes it, and all that it is made from. Equal entries make equal rows."""

EMPTY = Cell(safe("–"), Tone.QUIET)


def rough_age(seconds: float) -> str:
    """An age that changes once a minute, not once a second, as soon as it is older than one."""
    seconds = min(seconds, 1e10) if seconds > 0 else 0.0  # not a number counts as no age
    return f"{int(seconds // 60)}m" if 60 <= seconds < 3600 else age(seconds)


def made(entries: Iterable[Entry]) -> list[Row]:
    """The rows of some entries."""
    return [make(*inputs) for _, make, inputs in entries]


def ordered(rows: Sequence[Row], column: int, *, down: bool) -> list[Row]:
    """The rows sorted by a column, children behind their parents in the order they had."""
    trees = sorted(_trees(rows), key=lambda tree: _order(tree[0].cells[column]), reverse=down)
    return [row for tree in trees for row in tree]


def matching(rows: Sequence[Row], filter: str) -> list[Row]:
    """The rows that a filter leaves: a regular expression (or plain text, when it is none), `!` before it inverts.

    A parent that matches brings its children along (inverted: takes them away), and a child its parent.
    """
    inverted = filter.startswith("!")
    hits = _hits(filter.removeprefix("!"))
    kept: list[Row] = []
    for tree in _trees(rows):
        if inverted:
            kept += [] if hits(tree[0]) else [row for row in tree if not hits(row)]
        elif hits(tree[0]):
            kept += tree
        elif children := [row for row in tree[1:] if hits(row)]:
            kept += [tree[0], *children]
    return kept


def indented(row: Row, lead: Safe) -> Row:
    """The row with something before its first cell."""
    first = replace(
        row.cells[0], text=safe(f"{lead}{row.cells[0].text}"), order=row.cells[0].order or row.cells[0].text
    )
    return replace(row, cells=(first, *row.cells[1:]))


def _trees(rows: Iterable[Row]) -> list[list[Row]]:
    trees: list[list[Row]] = []
    for row in rows:
        if row.depth and trees:
            trees[-1].append(row)
        else:
            trees.append([row])
    return trees


def _order(cell: Cell) -> tuple[int, float | str]:
    order = cell.at if cell.order is None and cell.at is not None else cell.order
    order = cell.text if order is None else order
    return (1, order) if isinstance(order, str) else (0, order)


def _hits(text: str) -> Callable[[Row], bool]:
    try:
        pattern = re.compile(text, re.IGNORECASE)
    except re.error:
        pattern = re.compile(re.escape(text), re.IGNORECASE)
    return lambda row: any(pattern.search(text) for text in (row.key, *(cell.text.strip() for cell in row.cells)))
