"""How much room is there at a path, and what is there of it already?"""

import os
from pathlib import Path

from llmgw.core.units import Bytes


def nearest(path: Path) -> Path:
    """The path, or the innermost directory above it that is there; what is there may be no directory."""
    return next((one for one in (path, *path.parents) if os.path.lexists(one)), path)


def room(path: Path) -> tuple[Bytes, Bytes]:
    """Bytes of the filesystem at a path in all, and those that an unprivileged process may still write.

    Raises OSError, and takes as long as the storage takes to answer.
    """
    seen = os.statvfs(path)
    return Bytes(seen.f_blocks * seen.f_frsize), Bytes(seen.f_bavail * seen.f_frsize)
