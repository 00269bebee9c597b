"""What is there of a file that is not whole yet, and what is its digest so far? On the disk, by one writer at a time.

All that touches the disk happens in threads, a block at a time, while the next block comes over the network. What was
written stays when anything fails: the next try hashes it again and goes on from there.
"""

import asyncio
import contextlib
import fcntl
import hashlib
import os
import stat
import threading
from collections.abc import AsyncIterator, Callable
from pathlib import Path

from llmgw.host import files
from llmgw.host.threads import aside

BLOCK = 1 << 20
"""Bytes that are written at once; two blocks are held at most, one that is written and one that comes."""
_SLICE = 64 << 20
"""Bytes that are hashed at once: so long nobody hears how far it is."""
_CLOSING = 1.0
"""Seconds that whoever leaves waits for the disk; a thread closes the file in its time."""


class InUse(Exception):
    """Somebody writes it: another agent, or a thread of ours that a disk does not let go."""


class Part:
    """The beginning of a file. Every method may raise OSError, after which only `close` may be called."""

    def __init__(self, path: Path, handle: int, length: int) -> None:
        self.path = path
        self._handle = handle
        self.length = length
        """Bytes that are there, or on their way to the disk."""
        self._hash = hashlib.sha256()
        self._waiting = bytearray()
        self._writing: asyncio.Task[None] | None = None
        self._lock = threading.Lock()
        """A thread that nobody waits for any more may still write when another closes."""

    # --- reading what is there ----------------------------------------------------------------------------------

    async def catch_up(self, tell: Callable[[int], None]) -> None:
        """Hash what is there already; `tell` hears how many bytes that are, now and then."""
        at = 0
        while at < self.length:
            at = await aside(self._hash_on, at, min(_SLICE, self.length - at))
            tell(at)

    def _hash_on(self, at: int, count: int) -> int:
        with self._lock:
            end = at + count
            while at < end:
                block = os.pread(self._handle, min(BLOCK, end - at), at)
                if not block:
                    raise OSError(f"{self.path} became shorter")
                self._hash.update(block)
                at += len(block)
            return at

    def digest(self) -> str:
        """Of all that is there, once `settle` returned."""
        return f"sha256:{self._hash.hexdigest()}"

    # --- writing ------------------------------------------------------------------------------------------------

    async def add(self, block: bytes) -> None:
        """Put more behind it; waits while the block before this one is on its way."""
        self._waiting += block
        self.length += len(block)
        if len(self._waiting) >= BLOCK:
            await self._written()
            self._begin_writing()

    async def settle(self) -> None:
        """Wait until all that was added is written."""
        await self._written()
        if self._waiting:
            self._begin_writing()
            await self._written()

    def _begin_writing(self) -> None:
        block, self._waiting = self._waiting, bytearray()
        self._writing = asyncio.create_task(aside(self._write, block))

    async def _written(self) -> None:
        writing, self._writing = self._writing, None
        if writing is not None:
            await writing

    def _write(self, block: bytearray) -> None:
        with self._lock, memoryview(block) as left:
            at = 0
            while at < len(left):
                at += os.write(self._handle, left[at:])
            self._hash.update(left)

    async def clear(self) -> None:
        """Begin again with nothing."""
        await self._written()
        self._waiting.clear()
        await aside(self._truncate)
        self.length, self._hash = 0, hashlib.sha256()

    def _truncate(self) -> None:
        with self._lock:
            os.ftruncate(self._handle, 0)
            os.lseek(self._handle, 0, os.SEEK_SET)

    # --- the end ------------------------------------------------------------------------------------------------

    async def finish(self, target: Path) -> None:
        """Bring it to the disk, and then to its place; whole or not at all, whatever happens meanwhile."""
        await self.settle()
        await aside(self._finish, target)

    def _finish(self, target: Path) -> None:
        with self._lock:
            os.fsync(self._handle)
            os.replace(self.path, target)
            files.settle(target.parent)

    async def close(self) -> None:
        """Write what is on its way, as far as that goes, and let go of the file; never raises."""
        closing = asyncio.create_task(aside(self._close))
        await asyncio.wait([closing, *([self._writing] if self._writing else [])], timeout=_CLOSING)
        if self._writing is not None and self._writing.done() and not self._writing.cancelled():
            self._writing.exception()  # whoever leaves has a reason of their own

    def _close(self) -> None:
        with self._lock, contextlib.suppress(OSError):  # what counts was settled before
            os.close(self._handle)


@contextlib.asynccontextmanager
async def opened(path: Path, most: int) -> AsyncIterator[Part]:
    """What is there of a file of `most` bytes at `path`, for us alone. Raises OSError, InUse.

    What cannot be its beginning (a link, a longer file) is removed.
    """
    part = await aside(_open, path, most)
    try:
        yield part
    finally:
        await part.close()


def _open(path: Path, most: int) -> Part:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with contextlib.suppress(FileNotFoundError):
        if not stat.S_ISREG(path.lstat().st_mode):
            path.unlink()
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o600)
    try:
        length = _ours(handle, path, most)
    except BaseException:
        os.close(handle)
        raise
    return Part(path, handle, length)


def _ours(handle: int, path: Path, most: int) -> int:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise InUse(f"{path} is being written already") from None
    length = os.fstat(handle).st_size
    if length > most:
        os.ftruncate(handle, 0)
        length = 0
    os.lseek(handle, length, os.SEEK_SET)
    return length
