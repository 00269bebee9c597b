"""How do many names, or a node's own long words, fit into one line?"""

from collections.abc import Sequence

_LENGTH = 200


def cut(text: str, most: int = _LENGTH) -> str:
    """The text, at most so many characters of it (200), the last one `…` when some were cut."""
    return text if len(text) <= most else text[: most - 1] + "…"


def some(names: Sequence[str], most: int) -> str:
    """`a, b, c and 4 more`: at most so many of the names, in their order, and not more than `cut` leaves of them."""
    shown = cut(", ".join(names[:most]))
    return shown if len(names) <= most else f"{shown} and {len(names) - most} more"
