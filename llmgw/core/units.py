"""Numbers as people read them. Inside, sizes are bytes and durations are seconds."""

from typing import NewType

Bytes = NewType("Bytes", int)

NONE, KIB, MIB, GIB, TIB = Bytes(0), Bytes(1 << 10), Bytes(1 << 20), Bytes(1 << 30), Bytes(1 << 40)

BOUND = Bytes(1 << 60)
"""No size is larger: the store has signed 64 bits for one, and file systems without an end claim all of them."""

_CENTURY = 100 * 365.25 * 86400


_UNITS = ((TIB, "TiB"), (GIB, "GiB"), (MIB, "MiB"), (KIB, "KiB"))


def size(count: int) -> str:
    """`5.2 GiB`, `600 MiB`, `12 KiB`, `7 B`."""
    for unit, word in _UNITS:
        if abs(count) >= unit:
            value = count / unit
            text = f"{value:.0f}" if abs(value) >= 100 else f"{value:.1f}".removesuffix(".0")
            return f"{text} {word}"
    return f"{count} B"


def size_up(count: int) -> str:
    """As `size`, rounded up: whoever adds what it says has added enough."""
    for unit, word in _UNITS:
        if count >= unit:
            tenths = -(-10 * count // unit)
            return f"{-(-count // unit)} {word}" if tenths >= 1000 else f"{tenths / 10:g} {word}"
    return f"{count} B"


def sizes(one: int, other: int) -> tuple[str, str]:
    """Both as `size`; with more digits where two that differ would read alike: `1.00 GiB`, `1.04 GiB`."""
    if one == other or size(one) != size(other):
        return size(one), size(other)
    for unit, word in _UNITS:
        for places in (2, 3) if min(one, other) >= unit else ():
            texts = f"{one / unit:.{places}f} {word}", f"{other / unit:.{places}f} {word}"
            if texts[0] != texts[1]:
                return texts
    return f"{one} B", f"{other} B"


def age(seconds: float) -> str:
    """`3s`, `4m12s`, `3h07m`, `3d04h`: two units at most; a clock that ran backwards reads as `0s`.

    What nobody can mean (a time that is no number, more than a hundred years) reads as `?`.
    """
    if not seconds < _CENTURY:
        return "?"
    left = max(0, int(max(seconds, 0.0)))
    days, left = divmod(left, 86400)
    hours, left = divmod(left, 3600)
    minutes, secs = divmod(left, 60)
    if days:
        return f"{days}d{hours:02d}h"
    if hours:
        return f"{hours}h{minutes:02d}m"
    if minutes:
        return f"{minutes}m{secs:02d}s"
    return f"{secs}s"


def several(count: int, one: str) -> str:
    """`1 node`, `3 nodes`; for words that take an s."""
    return f"{count} {one}" if count == 1 else f"{count} {one}s"
