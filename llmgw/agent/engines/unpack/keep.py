"""How does an unpacked tree become ours, and stay over a loss of power? And how does it go?"""

import os
import shutil
import stat
from collections.abc import Callable
from pathlib import Path

from llmgw.agent.engines.unpack.limits import LIMITS

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


def take(tree: int, stopped: Callable[[], bool]) -> None:
    """Give all below the open directory `tree` to ourselves, then bring it to the disk; ends early once `stopped`.

    Who made the tree is not trusted: nothing is followed, and what an archive cannot have made is an OSError.
    """
    os.fchown(tree, os.geteuid(), os.getegid())  # from here nobody else gets in
    _walk(tree, stopped, _own, 0)
    _walk(tree, stopped, _sync, 0)
    os.fchmod(tree, 0o755)
    os.fsync(tree)


def remove(tree: Path) -> None:
    """Remove it, whatever is in it; it is no error where there is none."""
    shutil.rmtree(tree, ignore_errors=True)


_Act = Callable[[str, os.stat_result, int], None]
"""Given a name, what it is, and the directory it is in."""


def _walk(directory: int, stopped: Callable[[], bool], act: _Act, depth: int) -> None:
    if depth > LIMITS.depth:
        raise OSError(f"the unpacked tree is more than {LIMITS.depth} directories deep")
    for name in os.listdir(directory):
        if stopped():
            return
        found = os.stat(name, dir_fd=directory, follow_symlinks=False)
        act(name, found, directory)
        if stat.S_ISDIR(found.st_mode):
            inner = os.open(name, _DIRECTORY, dir_fd=directory)
            try:
                _walk(inner, stopped, act, depth + 1)
            finally:
                os.close(inner)


def _own(name: str, found: os.stat_result, directory: int) -> None:
    if not _makeable(found):
        raise OSError(f"the unpacked tree has {name!r} of mode {found.st_mode:o}, which no archive makes")
    ours = os.geteuid(), os.getegid()
    if (found.st_uid, found.st_gid) != ours:
        os.chown(name, *ours, dir_fd=directory, follow_symlinks=False)


def _makeable(found: os.stat_result) -> bool:
    if stat.S_ISLNK(found.st_mode):
        return True
    alone = stat.S_ISDIR(found.st_mode) or (stat.S_ISREG(found.st_mode) and found.st_nlink == 1)
    return alone and not stat.S_IMODE(found.st_mode) & ~0o755


def _sync(name: str, found: os.stat_result, directory: int) -> None:
    if stat.S_ISLNK(found.st_mode):
        return
    fd = os.open(name, _DIRECTORY if stat.S_ISDIR(found.st_mode) else _FILE, dir_fd=directory)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
