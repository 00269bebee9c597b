"""How does one file come to the node, whole and right? From the first source that works, going on where it stands.

there already? ─▶ room? ─▶ hash what is there ─▶ source after source ─▶ size and digest right ─▶ fsync, rename
                                                  └─ broken off: the same again, from where it stands
"""

import asyncio
import contextlib
import errno
import stat
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from llmgw.agent.transfer.limit import Limit
from llmgw.agent.transfer.pace import EVERY, Moved, Pace
from llmgw.agent.transfer.part import InUse, Part, opened
from llmgw.agent.transfer.source import Patience, Source
from llmgw.agent.transfer.trouble import CannotDownload, Cut, NoRoom, SourceFailed
from llmgw.core.engines.digests import digits
from llmgw.core.engines.orders import ReleaseFile
from llmgw.core.units import BOUND, MIB, Bytes
from llmgw.host import files
from llmgw.host.reason import reason
from llmgw.host.room import nearest, room
from llmgw.host.threads import aside

__all__ = ["CannotDownload", "Limit", "Moved", "NoRoom", "Patience", "download"]

RESERVE = Bytes(64 * MIB)
"""Bytes of the disk that are left to others: logs, and the records of what runs here."""
_ENOUGH = Bytes(16 * MIB)
"""Bytes, or a twentieth of the file, after which a source that breaks off counts as one that works."""


async def download(
    file: ReleaseFile,
    sources: Sequence[Source],
    target: Path,
    *,
    tell: Callable[[Moved], None],
    verifying: Callable[[], None],
    limit: Limit | None = None,
    patience: Patience | None = None,
) -> None:
    """Bring `file` to `target`, whole and right, or raise CannotDownload and keep what came for the next try.

    What came stands beside the target under the name of the digest. A second call for the same file waits for the
    first. `tell` hears of progress at most twice a second and at the end, `verifying` when all is there and compared.
    """
    part = target.with_name(f"{_digest(file)}.part")
    async with _turn(part) as turn:
        if turn.made == target or await _is_whole(file, target, verifying):
            return
        try:
            await _check_room(file, part)
            async with opened(part, file.size) as begun:
                own = Pace(file.size, tell)
                await _Download(file, begun, own, verifying, limit, patience or Patience()).run(sources, target)
        except InUse as error:
            raise CannotDownload(f"{file.name}: {error}; is another agent at work here?") from None
        except OSError as error:
            raise await _disk(file, part, error) from None
        turn.made = target


def _digest(file: ReleaseFile) -> str:
    name = digits(file.digest)
    if name is None:
        what = f"its digest {file.digest[:80]!r} is not sha256: and 64 hexadecimal digits" if file.digest else ""
        fact = what or "neither its source nor server.yaml says its digest, so it is not downloaded"
        raise CannotDownload(f"{file.name}: {fact}; pin it in server.yaml")
    if not 0 <= file.size <= BOUND:
        raise CannotDownload(f"{file.name}: {file.size} bytes cannot be its size; see its source")
    return name


# --- one at a time -----------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Turn:
    """Whose turn it is with one part; `made` is what the one before brought to its place."""

    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    waiting: int = 0
    made: Path | None = None


_turns = dict[Path, _Turn]()


@contextlib.asynccontextmanager
async def _turn(part: Path) -> AsyncIterator[_Turn]:
    turn = _turns.setdefault(part, _Turn())
    turn.waiting += 1
    try:
        async with turn.lock:
            yield turn
    finally:
        turn.waiting -= 1
        if not turn.waiting:
            del _turns[part]


# --- the disk ----------------------------------------------------------------------------------------------------


async def _is_whole(file: ReleaseFile, target: Path, verifying: Callable[[], None]) -> bool:
    """Whether the file is in its place; what is not right there is left to be replaced."""
    if not await aside(_has_size, target, file.size):
        return False
    verifying()
    return await aside(_has_digest, target, file.digest)


def _has_size(path: Path, size: int) -> bool:
    try:
        about = path.lstat()
    except OSError:
        return False
    return stat.S_ISREG(about.st_mode) and about.st_size == size


def _has_digest(path: Path, digest: str) -> bool:
    try:
        return files.digest(path) == digest
    except OSError:
        return False


async def _check_room(file: ReleaseFile, part: Path) -> None:
    """Raise NoRoom where the rest of the file will not fit."""
    need, free = await aside(_need, part, file.size)
    if need and free < need + RESERVE:
        raise NoRoom(file.name, part.parent, need, free, RESERVE)


def _need(part: Path, size: int) -> tuple[Bytes, Bytes]:
    """Bytes that are still to come, and bytes that are free there."""
    try:
        has = min(part.lstat().st_size, size)
    except FileNotFoundError:
        has = 0
    return Bytes(size - has), room(nearest(part.parent))[1]


async def _disk(file: ReleaseFile, part: Path, error: OSError) -> CannotDownload:
    """What the disk's error means."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        with contextlib.suppress(OSError):
            need, free = await aside(_need, part, file.size)
            return NoRoom(file.name, part.parent, need, free, RESERVE)
    return CannotDownload(f"{file.name}: {part.parent} cannot be written: {reason(error)}; mend the disk")


# --- the file ----------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Download:
    """One try to get what is missing of a file."""

    file: ReleaseFile
    part: Part
    pace: Pace
    verifying: Callable[[], None]
    limit: Limit | None
    patience: Patience
    givers: set[Source | None] = field(default_factory=set)
    """Whom the bytes that are there came from; None stands for an earlier try."""

    async def run(self, sources: Sequence[Source], target: Path) -> None:
        """Go through the sources until the file is whole and right, and in its place."""
        await self._catch_up()
        if not await self._whole():
            await self._from_any(sources)
        await self.part.finish(target)
        self.pace.at(self.part.length, _now(), last=True)

    async def _catch_up(self) -> None:
        if self.part.length:
            self.givers.add(None)
        await self.part.catch_up(lambda at: self.pace.begins(at, _now()))
        self.pace.begins(self.part.length, _now())

    async def _from_any(self, sources: Sequence[Source]) -> None:
        failed = list[str]()
        waits = list[float]()
        for source in sources:
            try:
                return await self._from(source)
            except SourceFailed as error:
                failed.append(f"{source.name}: {error}")
                waits += [error.retry_after] if error.retry_after is not None else []
        told = "; ".join(failed) or "no source has it; name a mirror or a source in server.yaml"
        raise CannotDownload(f"{self.file.name}: {told}", min(waits, default=None))

    async def _from(self, source: Source) -> None:
        """Get all that is missing from one source, which may break off; raises SourceFailed."""
        tries = 0
        while True:
            before = self.part.length
            try:
                if await self._once(source):
                    return
                tries = 0  # others' bytes were wrong: now all are its own
            except Cut as cut:
                done = self.part.length - before
                tries = 0 if done * 20 >= self.file.size or done >= _ENOUGH else tries + 1
                if tries >= self.patience.tries:
                    raise SourceFailed(f"{cut}, {self.patience.tries} times in a row", cut.retry_after) from None
            if tries:
                await asyncio.sleep(self.patience.pause * 2 ** (tries - 1))

    async def _once(self, source: Source) -> bool:
        """Get what is missing; returns whether all of it is right, and if not, nothing of it is left."""
        try:
            async with source.open(self.file, self.part.length, self.patience) as flow:
                if flow.begins != self.part.length:
                    await self._clear()
                self.givers.add(source)
                await self._pour(flow.blocks)
        except SourceFailed:
            await self.part.settle()  # what came of it is kept
            raise
        if self.part.length < self.file.size:
            await self.part.settle()
            raise Cut(f"it ended after {self.part.length} of {self.file.size} bytes")
        own = self.givers == {source}
        if await self._whole():
            return True
        if own:
            raise SourceFailed(f"it has other content, not of {self.file.digest[:19]}…")
        return False

    async def _pour(self, blocks: AsyncIterator[bytes]) -> None:
        ticking = asyncio.create_task(self._tick(), name=f"pace of {self.file.name}")
        try:
            await self._add(blocks)
        finally:
            ticking.cancel()

    async def _tick(self) -> None:
        """Tell also while nothing comes: what came last, and that the rate falls."""
        while True:
            await asyncio.sleep(EVERY)
            self.pace.at(self.part.length, _now())

    async def _add(self, blocks: AsyncIterator[bytes]) -> None:
        async for block in blocks:
            if len(block) > self.file.size - self.part.length:
                await self._clear()
                raise SourceFailed(f"it sends more than the {self.file.size} bytes of the file")
            if self.limit is not None:
                await self.limit.take(len(block))
            await self.part.add(block)
            self.pace.at(self.part.length, _now())

    async def _whole(self) -> bool:
        """Whether all of it is there and right; of what is there and wrong nothing is left."""
        if self.part.length < self.file.size:
            return False
        self.verifying()
        await self.part.settle()
        if self.part.digest() == self.file.digest:
            return True
        await self._clear()
        return False

    async def _clear(self) -> None:
        await self.part.clear()
        self.givers.clear()
        self.pace.begins(0, _now())


def _now() -> float:
    return asyncio.get_running_loop().time()
