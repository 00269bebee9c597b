"""How does a file go from whoever holds it to an agent? By its digest, in chunks, from any offset on.

A control plane serves its mirror like this, and an agent what it has downloaded. Only agents may ask.
"""

import os
import stat
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import contextmanager
from io import FileIO
from pathlib import Path

from llmgw.core.engines.digests import is_digest
from llmgw.core.errors import ClusterCannot, Rejected
from llmgw.core.identity import Role
from llmgw.host.reason import reason
from llmgw.host.threads import aside
from llmgw.wire.agent import v1
from llmgw.wire.channel import Channel
from llmgw.wire.server import current_peer

PATH = "/agent.v1.EngineFiles/ReadFile"
ROLES = {PATH: frozenset({Role.AGENT})}
"""Who may call it."""

CHUNK = 256 << 10
"""Bytes of a chunk: a reader of 50 kB/s still takes one before it counts as one that does not read."""
_BLOCK = 1 << 20
"""Bytes that are read at once: a thread for each chunk would cost as much as the chunk."""
MOST = 32
"""Files read at once; more are refused, since each may hold a block and a thread."""
MOST_OF_ONE = 8
"""The same of one certificate."""


class NotHeld(Rejected):
    """There is no such file here."""

    code = "not_held"

    def __init__(self, digest: str) -> None:
        super().__init__(digest)
        self.digest = digest

    def __str__(self) -> str:
        return f"file {self.digest[:80]} is not held here"


class FilesService(v1.EngineFilesBase):
    """Serves the files that `find` knows by their digest.

    `find` is called in a thread; what it returns is taken only when it is a regular file and no link.
    """

    def __init__(self, find: Callable[[str], Path | None], *, most: int = MOST, most_of_one: int = MOST_OF_ONE) -> None:
        self._find, self._most, self._most_of_one = find, most, most_of_one
        self._reading = Counter[str]()

    async def read_file(self, message: v1.ReadFileRequest) -> AsyncGenerator[v1.FileChunk, None]:
        """Yield the file from the offset on; the first chunk says the size of all of it, and may be empty.

        Raises NotHeld, Rejected for a digest or an offset that cannot be, ClusterCannot when too much is read at once
        or the file cannot be.
        """
        if not is_digest(message.digest):
            raise Rejected(f"{message.digest[:80]!r} is not a digest; it must be sha256: and 64 hexadecimal digits")
        with self._place():
            file = await aside(_open, self._find, message.digest)
            if file is None:
                raise NotHeld(message.digest)
            with file:
                async for chunk in _chunks(file.fileno(), message):
                    yield chunk

    @contextmanager
    def _place(self) -> Iterator[None]:
        who = current_peer().identity.uri
        if self._reading.total() >= self._most:
            raise ClusterCannot(f"{self._most} files are read here at once, and no more are; ask again in a moment")
        if self._reading[who] >= self._most_of_one:
            raise ClusterCannot(f"{self._most_of_one} files are read here at once by {who}, and no more are")
        self._reading[who] += 1
        try:
            yield
        finally:
            self._reading[who] -= 1
            if not self._reading[who]:
                del self._reading[who]


def read_file(channel: Channel, digest: str, offset: int = 0) -> AsyncGenerator[v1.FileChunk, None]:
    """Yield the chunks of a file from `offset` on; only the first has its size. Close it when it is left early.

    Raises NotHeld, ClusterCannot when there is too much to do, and whatever a call may end with.
    """
    return channel.stream(PATH, v1.ReadFileRequest(digest=digest, offset=offset), v1.FileChunk)


async def _chunks(handle: int, asked: v1.ReadFileRequest) -> AsyncGenerator[v1.FileChunk, None]:
    at, size = asked.offset, os.fstat(handle).st_size
    if at > size:
        raise Rejected(f"file {asked.digest} has {size} bytes; there is nothing from {at} on")
    first = size
    while first or at < size:
        block = await _read(handle, min(_BLOCK, size - at), at)
        if not block and at < size:
            raise ClusterCannot(f"file {asked.digest} ends at {at} of {size} bytes")
        at += len(block)
        for begin in range(0, max(1, len(block)), CHUNK):
            yield v1.FileChunk(size=first, data=block[begin : begin + CHUNK])
            first = 0


async def _read(handle: int, count: int, at: int) -> bytes:
    own = os.dup(handle)  # whoever stops waiting closes theirs, and its number may be another file's by then

    def read() -> bytes:
        try:
            return os.pread(own, count, at)
        finally:
            os.close(own)

    try:
        return await aside(read)
    except OSError as error:
        raise ClusterCannot(f"the file cannot be read: {reason(error)}") from None


def _open(find: Callable[[str], Path | None], digest: str) -> FileIO | None:
    """The file, or None where there is no regular one."""
    path = find(digest)
    if path is None:
        return None
    try:
        # A pipe in its place would be waited for. As an object it is closed also when nobody waits for it any more.
        file = FileIO(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC))
    except OSError:  # a directory, too
        return None
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        return None
    return file
