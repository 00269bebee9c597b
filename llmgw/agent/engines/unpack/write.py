"""How is a name made below an open directory, and nowhere else? Component by component, never over a link."""

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

from llmgw.agent.engines.unpack.names import Parts

Piece = memoryview | bytes
Watched = Callable[[Iterable[Piece]], Iterable[Piece]]

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC

_ALLOWED = 0o755
_EARLY = 16 << 20
"""Bytes written after which the kernel is asked to begin writing them to the disk, so that at the end few are left."""
_WORTH = 1 << 20
"""Bytes for which it is asked at a file's end; to ask for each small file costs more than it brings."""
_COPIED = 512 << 10


class Writer:
    """Makes things below `root`, an open directory. `known` is how many of a name's directories are there already.

    Nothing is made over something, and nothing is followed: either is an OSError, which only somebody else's hand in
    the directory can bring about.
    """

    def __init__(self, root: int) -> None:
        self._root = root
        self._at: tuple[Parts, int] = (), os.dup(root)
        """The directory that was used last: its neighbours come next most often."""

    def close(self) -> None:
        """Close what it holds."""
        os.close(self._at[1])

    def directory(self, parts: Parts, known: int, mode: int) -> None:
        """Make a directory, or give its mode to one that is there."""
        os.fchmod(self._in(parts, known), mode & _ALLOWED | 0o700)

    def file(self, parts: Parts, known: int, mode: int, pieces: Iterable[Piece]) -> None:
        """Make a file of these pieces."""
        with _open(parts[-1], _CREATE, self._in(parts[:-1], known)) as fd:
            os.fchmod(fd, mode & _ALLOWED | 0o400)
            _write(fd, pieces)

    def copy(self, parts: Parts, known: int, mode: int, source: Parts, watched: Watched) -> None:
        """Make a copy of a file that is there; its pieces go through `watched`."""
        with _open(source[-1], _READ, self._in(source[:-1], len(source))) as fd:
            self.file(parts, known, mode, watched(iter(lambda: os.read(fd, _COPIED), b"")))

    def link(self, parts: Parts, target: str) -> None:
        """Make a symbolic link; all directories on the way there are made."""
        os.symlink(target, parts[-1], dir_fd=self._in(parts[:-1], len(parts)))

    def _in(self, parts: Parts, known: int) -> int:
        """Return the open directory of this name; those of its components that are not there yet are made."""
        if parts != self._at[0]:
            fd = self._opened(parts, known)
            os.close(self._at[1])
            self._at = parts, fd
        return self._at[1]

    def _opened(self, parts: Parts, known: int) -> int:
        fd = os.dup(self._root)
        for depth, part in enumerate(parts):
            try:
                if depth >= known:
                    os.mkdir(part, 0o700, dir_fd=fd)
                inner = os.open(part, _DIRECTORY, dir_fd=fd)
                if depth >= known:
                    os.fchmod(inner, _ALLOWED)
            finally:
                os.close(fd)
            fd = inner
        return fd


def _write(fd: int, pieces: Iterable[Piece]) -> None:
    written = asked = 0
    for piece in pieces:
        rest = memoryview(piece)
        while rest:
            rest = rest[os.write(fd, rest) :]
        written += len(piece)
        if written - asked >= _EARLY:
            _begin_writing(fd, asked, written - asked)
            asked = written
    if written - asked >= _WORTH:
        _begin_writing(fd, asked, written - asked)


def _begin_writing(fd: int, at: int, count: int) -> None:
    # Linux starts to write dirty pages that it is told will not be needed, and keeps them until they are on the disk.
    os.posix_fadvise(fd, at, count, os.POSIX_FADV_DONTNEED)


@contextmanager
def _open(name: str, flags: int, directory: int) -> Iterator[int]:
    fd = os.open(name, flags, 0o600, dir_fd=directory)
    try:
        yield fd
    finally:
        os.close(fd)
