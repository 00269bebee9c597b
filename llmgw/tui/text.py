"""How is Safe text cut, joined and handed to Textual?

The only module of the console that makes what Textual draws: nothing passes here through its markup.
"""

import textwrap
import unicodedata
from collections.abc import Sequence

from rich.cells import cell_len, set_cell_size
from rich.segment import Segment
from textual.color import Color
from textual.content import Content
from textual.filter import LineFilter

from llmgw.core.safe import Safe, join, safe

EOL = safe("\n", lines=True)

Part = Safe | tuple[Safe, str]
"""Text, or text with a style such as `$success bold`."""


def content(*parts: Part) -> Content:
    """One piece of styled text; what looks like markup in it is text."""
    return Content.assemble(*parts)


def lines(rows: Sequence[Safe]) -> Content:
    """Several lines."""
    return Content(join("\n", rows))


def width(text: Safe) -> int:
    """In terminal cells."""
    return len(text) if text.isascii() else cell_len(text)


def fitted(text: Safe, cells: int, *, right: bool = False) -> Safe:
    """The text in exactly so many cells; `…` where it was cut."""
    has = width(text)
    if has > cells:
        # set_cell_size pads where half of a wide character would be left
        return safe(set_cell_size(text, cells - 1) + "…", limit=4096) if cells > 0 else safe("")
    pad = " " * (cells - has)
    return join("", (safe(pad), text) if right else (text, safe(pad)))


def wrapped(text: Safe, cells: int) -> list[Safe]:
    """The text in lines of at most so many cells, broken at spaces where there are any."""
    narrow = text.isascii() or all(cell_len(character) <= 1 for character in text)
    letters = cells if narrow else cells // 2
    return [safe(line, limit=4096) for line in textwrap.wrap(text, max(letters, 1), break_on_hyphens=False)]


_ASCII = str.maketrans(
    {
        **dict.fromkeys("─━═▔▁", "-"),
        **dict.fromkeys("│┃║▏▕▎▊", "|"),
        **dict.fromkeys("┌┐└┘├┤┬┴┼╭╮╰╯┏┓┗┛", "+"),
        **dict.fromkeys("▓█▉▋▌▍▐", "#"),
        **dict.fromkeys("░", "."),
        **dict.fromkeys("▄▀▂▃▅▆▇", "="),
        "…": "~",
        "–": "-",
        "▼": "v",
        "▶": ">",
        "▸": ">",
        "▲": "^",
        "↓": "v",
        "↑": "^",
        "→": ">",
        "⏎": "|",
        "⇥": " ",
        "␛": "^",
        "⟨": "<",
        "⟩": ">",
        "·": ".",
        "×": "x",
    }
)


def to_ascii(text: str) -> str:
    """The text in ASCII, as wide as it was: letters without their marks, `?` for what has no likeness."""
    if text.isascii():
        return text
    # An arrow alone would be `>`, and `2 > 3` says another thing. It keeps the blank behind it where one is to spare.
    text = text.replace("  → ", " -> ").replace(" → ", " ->")
    return "".join(_plain(character) for character in text.translate(_ASCII))


def _plain(character: str) -> str:
    if character.isascii():
        return character
    cells = cell_len(character)
    base = unicodedata.normalize("NFKD", character)[:1]
    return base if base.isascii() and cells == 1 else "?" * cells


class AsciiFilter(LineFilter):
    """Everything that is drawn, Textual's own frames and scroll bars included, in ASCII."""

    def apply(self, segments: list[Segment], background: Color) -> list[Segment]:
        """Textual calls it with each line's segments."""
        return [Segment(to_ascii(text), style, control) for text, style, control in segments]
