"""How much may an archive be, whoever made it?"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Sizes in bytes. The largest engine archives known are 0.6 GB, 2 GB unpacked, of a hundred entries; an interpreter
    has some thousands.
    """

    out: int = 8 << 30
    """All that comes out, copies of hard links counted."""
    ratio: int = 200
    """What comes out of a byte, at most; real ones come to 2 to 10."""
    free: int = 1 << 20
    """What may come out before the ratio counts."""
    entries: int = 50_000
    """Headers, and directories that are only named on the way to something else."""
    path: int = 1024
    component: int = 255
    depth: int = 32
    pax: int = 64 << 10
    """An extended header."""
    padding: int = 1 << 20
    """Zeros after the end: tar fills a record, which is 10 KiB unless it was told otherwise."""
    steps: int = 1_000_000
    """Names looked at to follow all links."""


LIMITS = Limits()
