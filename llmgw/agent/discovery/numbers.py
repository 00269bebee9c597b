"""Which number does a text from the kernel or a tool hold? None for what is no number, negative, or absurd."""

MOST = 1 << 60
"""The largest number that is taken: the first control-group hierarchy says "no limit" as one near 2^63."""

_PROCESSORS = 1 << 16
"""More than the kernel can be built for (CONFIG_NR_CPUS is at most 8192)."""


def whole(text: str) -> int | None:
    """A whole number from 0 to MOST in decimal digits."""
    text = text.strip()
    if not (text.isascii() and text.isdecimal() and len(text) <= 19):
        return None
    number = int(text)
    return number if number <= MOST else None


def kib(text: str) -> int | None:
    """Bytes of what the kernel writes as `65536000 kB`, which are KiB."""
    number, _, unit = text.strip().partition(" ")
    count = whole(number)
    return None if count is None or unit.strip() != "kB" or count > MOST >> 10 else count << 10


def processors(text: str) -> frozenset[int]:
    """The processors of a list as the kernel writes it, `0-3,8`; parts that are none are left out."""
    found = set[int]()
    for part in text.strip().split(",")[:_PROCESSORS]:
        first, dash, last = part.partition("-")
        start, end = whole(first), whole(last if dash else first)
        if start is not None and end is not None and start <= end < _PROCESSORS:
            found.update(range(start, end + 1))
    return frozenset(found)
