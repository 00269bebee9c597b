"""What do the lines about one row say where there is room for fewer?"""

from collections.abc import Sequence

from llmgw.core.safe import Safe, join, safe
from llmgw.tui.text import fitted, lines, width, wrapped
from llmgw.tui.widgets.line import Line


class Detail(Line):
    """Texts, one under the other, each over as many lines as it needs while there is room; `…` where it was cut."""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._texts: Sequence[Safe] = ()

    def tell(self, texts: Sequence[Safe]) -> None:
        """Show these from now on."""
        self._texts = texts
        self._draw()

    def wants(self, cells: int) -> int:
        """How many lines of so many cells they would take."""
        return sum(len(_laid(text, cells)) for text in self._texts)

    def on_resize(self) -> None:
        """Another size: other lines."""
        self._draw()

    def _draw(self) -> None:
        if self.size:
            self.show(lines(within(self._texts, self.size.width, self.size.height)))


def within(texts: Sequence[Safe], cells: int, room: int) -> list[Safe]:
    """The texts in at most `room` lines of at most so many cells.

    Of too many the first and the last ones are left: the first says what it is, the last how it ended. Of those that
    are too long the longest are cut.
    """
    laid = [_laid(text, cells) for text in _some(texts, room)]
    counts = [len(told) for told in laid]
    while sum(counts) > room:
        counts[counts.index(max(counts))] -= 1
    return [line for told, count in zip(laid, counts, strict=True) for line in _cut(told, count, cells)]


def _some(texts: Sequence[Safe], room: int) -> Sequence[Safe]:
    if len(texts) <= room or room < 3:
        return texts if len(texts) <= room else [texts[0], *texts[len(texts) - room + 1 :]]
    return [texts[0], safe(f"… {len(texts) - room + 1} more"), *texts[len(texts) - room + 2 :]]


def _laid(text: Safe, cells: int) -> list[Safe]:
    """The text in lines; those after the first are indented a little more than it is."""
    start = len(text) - len(text.lstrip(" "))
    if width(text) <= cells or start + 2 > cells // 2:
        return [text] if width(text) <= cells else wrapped(text, cells)
    first, *rest = wrapped(safe(text.lstrip(" "), 4096), cells - start - 2)
    return [join("", (safe(" " * start), first)), *(join("", (safe(" " * (start + 2)), line)) for line in rest)]


def _cut(told: Sequence[Safe], count: int, cells: int) -> list[Safe]:
    if count == len(told):
        return list(told)
    rest = safe(f"{told[count - 1]} {told[count].lstrip()} " + " " * cells, 4096)
    return [*told[: count - 1], fitted(rest, cells)]
