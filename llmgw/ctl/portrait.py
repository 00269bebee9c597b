"""How is all that is known of one node laid out for people?

Groups of lines under their titles; `!` marks what is wrong, whatever the terminal can show.
"""

from collections.abc import Iterator, Sequence

from llmgw.core.groups import Group, Line
from llmgw.core.portrait import portrait, warnings
from llmgw.core.safe import safe
from llmgw.core.views import EngineView, NodeView
from llmgw.ctl.tables import align

_WORDS = 1024
"""The longest text of a line, in characters: a warning with what a tool said in it."""


def node(view: NodeView, engines: Sequence[EngineView], now: float, wide: bool) -> list[str]:
    """All groups of a node, its warnings last: that is where the eye is when a command has ended."""
    groups = (*portrait(view, engines, now, wide=wide), warnings(view))
    return [line for group in groups for line in _group(group)]


def _group(group: Group) -> Iterator[str]:
    note = f"  {'! ' if group.heed else ''}{group.note}" if group.note else ""
    yield safe(f"{group.title}{note}", _WORDS)
    yield from _columns(group) if group.columns else _labelled(group)


def _columns(group: Group) -> Iterator[str]:
    head, *lines = align([group.columns, *(line.cells for line in group.lines)])
    yield f"    {head}"
    for line, text in zip(group.lines, lines, strict=True):
        yield f"{_mark(line)}{text}"


def _labelled(group: Group) -> Iterator[str]:
    wide = max((len(safe(line.cells[0])) for line in group.lines), default=0)
    for line in group.lines:
        label, text = (*line.cells, "")[:2]
        yield f"{_mark(line)}{safe(label):<{wide}}  {'→ ' if line.under else ''}{safe(text, _WORDS)}".rstrip()


def _mark(line: Line) -> str:
    return "  ! " if line.heed else "    "
