"""What does the screen of one node say above its replicas? Blocks of text, before they are laid out."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from llmgw.core.groups import Group, Line
from llmgw.core.portrait import portrait, warnings
from llmgw.core.safe import Safe, safe
from llmgw.core.views import EngineView, NodeView
from llmgw.tui.rows.row import EMPTY, Cell, Column, Row, Tone, rough_age

_WORDS = 1024
"""The longest text of an item, in characters: a warning with what a tool said in it."""

_SPARE = {
    "DRIVER": 6,
    "PREFIX": 6,
    "PCI": 5,
    "BY HAND": 5,
    "CHECKED": 3,
    "VARIANT": 2,
    "COMPUTE": 4,
    "NETDEV": 4,
    "NUMA": 3,
    "PATH": 2,
    "FOR": 2,
    "RATE": 2,
    "FILLED": 1,
}
"""By title, what is left out first on a narrow terminal."""

_SENTENCES = ("MEASURED", "SAID", "PROBLEM", "COMMAND")
"""The columns that may have much to say: they take what room is left."""

_NUMBERS = ("NUMA", "PID")


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """One group of what is known; it has `columns` with rows, or one of the two others, or its note alone."""

    title: Safe
    note: Safe
    """Beside the title."""
    tone: Tone = Tone.QUIET
    """Of the note."""
    said: tuple[tuple[Safe, Tone], ...] = ()
    """Short facts that stand one behind the other."""
    items: tuple[tuple[Safe, Tone], ...] = ()
    """Sentences, each on lines of its own."""
    columns: tuple[Column, ...] = ()
    rows: tuple[Row, ...] = ()


def blocks(node: NodeView, engines: Sequence[EngineView], now: float) -> tuple[Block, ...]:
    """Who it is, what is wrong with it and what to do about that, then all that it says of itself."""
    who, *rest = portrait(node, engines, now, ago=rough_age)
    return (_block(replace(who, title="node")), *([_warnings(node)] if node.warnings else []), *map(_block, rest))


def _warnings(node: NodeView) -> Block:
    group = warnings(node)
    return Block(title=safe(group.title), note=safe(""), items=tuple(map(_item, group.lines)))


def _item(line: Line) -> tuple[Safe, Tone]:
    code, text = line.cells
    if line.under:
        return safe(f"  → {text}", _WORDS), Tone.PLAIN
    return safe(f"! {code}: {text}" if text else f"  {code}", _WORDS), Tone.WARN if line.heed else Tone.QUIET


def _block(group: Group) -> Block:
    title, note = safe(group.title), safe(f"{'! ' if group.heed else ''}{group.note}", _WORDS)
    tone = Tone.WARN if group.heed else Tone.QUIET
    if not group.columns:
        return Block(title=title, note=note, tone=tone, said=tuple(map(_fact, group.lines)))
    return Block(
        title=title,
        note=note,
        tone=tone,
        columns=(Column(safe("")), *map(_column, group.columns)),
        rows=tuple(_row(str(number), line) for number, line in enumerate(group.lines)),
    )


def _fact(line: Line) -> tuple[Safe, Tone]:
    label, text = line.cells
    return safe(f"{'! ' if line.heed else ''}{label} {text}", _WORDS), Tone.WARN if line.heed else Tone.PLAIN


def _column(title: str) -> Column:
    spare, least = _SPARE.get(title, 0), 16 if title in _SENTENCES else 0
    return Column(safe(title), right=title in _NUMBERS, most=60 if least else 36, spare=spare, least=least)


def _row(key: str, line: Line) -> Row:
    tone = Tone.WARN if line.heed else Tone.PLAIN
    mark = Cell(safe("!" if line.heed else ""), tone)
    return Row(key=key, cells=(mark, *(Cell(safe(text), tone) if text else EMPTY for text in line.cells)))
