"""How does text from outside become text that a terminal may be given?

Nodes, engines and clients choose names, reasons and log lines. `safe` turns what they send into visible characters: no
control sequence, no invisible or reordering mark and no stray byte gets through, and nothing grows without bound. What
it returns is literal text: never parse it as markup.
"""

import re
import unicodedata
from collections.abc import Iterable
from typing import NewType

Safe = NewType("Safe", str)
"""Text that a terminal may be given as it is. Only this module makes one."""

FIELD = 256
"""The longest cell, name or reason, in characters."""
LINE = 4096
"""The longest line of a log."""

_MARKS = 8
"""Combining marks kept on one base character."""

_LOOKED_AT = 16
"""Of a long text so many times its limit is looked at; a carriage return further on is not seen."""

_NAMED = {
    0x061C: "ALM",
    0x200E: "LRM",
    0x200F: "RLM",
    0x2028: "LS",
    0x2029: "PS",
    0x202A: "LRE",
    0x202B: "RLE",
    0x202C: "PDF",
    0x202D: "LRO",
    0x202E: "RLO",
    0x2066: "LRI",
    0x2067: "RLI",
    0x2068: "FSI",
    0x2069: "PDI",
}
"""Marks that reorder or break a line: shown by name. Other format characters show nothing and are dropped."""


def _table() -> dict[int, str]:
    table = {code: chr(0x2400 + code) for code in range(0x20)}
    table |= {0x09: "⇥", 0x0A: "⏎", 0x7F: "\u2421"}
    table |= {code: f"\\x{code:02x}" for code in range(0x80, 0xA0)}
    table |= {code: f"⟨{name}⟩" for code, name in _NAMED.items()}
    # Variation selectors change how wide the character before them is; terminals do not agree by how much.
    return table | dict.fromkeys((*range(0xFE00, 0xFE10), *range(0xE0000, 0xE01F0)), "")


_VISIBLE = _table()
_SURROGATE = re.compile("[\ud800-\udfff]")
_PLAIN = re.compile(r"[\x20-\x7e]*\Z")


def safe(text: str | bytes, limit: int = FIELD, *, lines: bool = False) -> Safe:
    """Return `text` made visible and at most `limit` (≥ 1) characters long, the last one `…` when some were cut.

    Bytes are read as UTF-8, and those that are not show as `\\xff`. A line that a progress bar drew over itself with
    carriage returns shows what it drew last. With `lines` the newlines stay (and `limit` holds for the whole);
    otherwise they show as `⏎`.
    """
    if isinstance(text, bytes):
        text = text[: 4 * _LOOKED_AT * limit + 4].decode("utf-8", "surrogateescape")
    if len(text) <= limit and _PLAIN.match(text):
        return Safe(text)
    too_long = len(text) > _LOOKED_AT * limit
    shown = [_visible(_last_drawn(line)) for line in text[: _LOOKED_AT * limit].split("\n")]
    text = ("\n" if lines else "⏎").join(shown)
    return Safe(text[: limit - 1] + "…" if too_long or len(text) > limit else text)


def join(glue: str, parts: Iterable[Safe]) -> Safe:
    """Return the parts with `glue`, a constant of ours, between them."""
    return Safe(glue.join(parts))


def _last_drawn(line: str) -> str:
    """What a terminal would show of a progress line: the text after the last carriage return that drew something."""
    return next((part for part in reversed(line.split("\r")) if part), "")


def _visible(line: str) -> str:
    return _quiet(_SURROGATE.sub(_byte, line).translate(_VISIBLE))


def _byte(match: re.Match[str]) -> str:
    code = ord(match[0])
    return f"\\x{code - 0xDC00:02x}" if 0xDC80 <= code <= 0xDCFF else f"\\u{code:04x}"


def _quiet(text: str) -> str:
    """Drop what shows nothing, and cut a pile of combining marks, which would run over the lines above and below."""
    if text.isascii():
        return text
    kept: list[str] = []
    marks = 0
    for character in text:
        category = unicodedata.category(character)
        if category == "Cf":
            continue
        if category in ("Mn", "Me"):
            marks += 1
            if marks > _MARKS:
                continue
            if not kept:
                kept.append("◌")  # a base of its own, or it would sit on whatever stands left of this text
        else:
            marks = 0
        kept.append(character)
    return "".join(kept)
