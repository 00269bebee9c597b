"""What is a description made of, before it is laid out for a terminal? Groups of lines, and lines of cells."""

from collections.abc import Iterable
from dataclasses import dataclass, replace

MOST = 64
"""Lines of one group that are shown; the rest is counted."""
BAR = 8
"""Cells of a bar."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One line of a group."""

    cells: tuple[str, ...]
    heed: bool = False
    """Something is wrong here: a front end puts a mark before it."""
    under: bool = False
    """It belongs to the line above: a part of a GPU, what to do about a warning."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Lines under a title, in columns, or each a label with its text where there are no columns."""

    title: str
    note: str = ""
    """Beside the title: when it was looked at, or that there is nothing."""
    heed: bool = False
    """Something is wrong with the whole of it, as the note says: a front end puts a mark before that."""
    columns: tuple[str, ...] = ()
    lines: tuple[Line, ...] = ()


def table(title: str, columns: tuple[str, ...], lines: Iterable[Line], *, note: str = "", heed: bool = False) -> Group:
    """A group in columns, without those that have nothing in any line."""
    shown = _first(tuple(lines))
    kept = [index for index in range(len(columns)) if any(line.cells[index] for line in shown)]
    return Group(
        title=title,
        note=note,
        heed=heed,
        columns=tuple(columns[index] for index in kept),
        lines=tuple(replace(line, cells=tuple(line.cells[index] for index in kept)) for line in shown),
    )


def listed(title: str, lines: Iterable[Line]) -> Group:
    """A group of labels with their texts."""
    return Group(title=title, lines=_first(tuple(lines)))


def bar(part: int, whole: int) -> str:
    """`▓▓▓░░░░░`; something is never drawn as nothing, and more than all is drawn as all."""
    full = 0 if whole <= 0 or part <= 0 else min(BAR, max(1, round(BAR * part / whole)))
    return "▓" * full + "░" * (BAR - full)


def _first(lines: tuple[Line, ...]) -> tuple[Line, ...]:
    if len(lines) <= MOST:
        return lines
    rest = Line(cells=(f"and {len(lines) - MOST + 1} more", *("",) * (len(lines[0].cells) - 1)))
    return (*lines[: MOST - 1], rest)
