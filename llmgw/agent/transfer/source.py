"""Where may a file come from? What every source is to the downloader, and how long it is waited for."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Protocol

from llmgw.agent.transfer.trouble import SourceFailed
from llmgw.core.engines.orders import ReleaseFile
from llmgw.core.units import size


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """How much a source may try ours. Times are seconds."""

    connect: float = 15.0
    idle: float = 60.0
    """Without a byte, and for all that comes before the file's first."""
    least: int = 64 << 10
    """Bytes that must come in every `idle` seconds that we wait: a byte now and then would hold us for years."""
    tries: int = 4
    """In a row, of a source that breaks off with little done in between."""
    pause: float = 0.5
    """Before the second try; it doubles."""


@dataclass(frozen=True, slots=True)
class Flow:
    """Bytes of a file as they come."""

    begins: int
    """At which of its bytes: where it was asked for, or 0."""
    blocks: AsyncIterator[bytes]
    """Raises SourceFailed; ends where the source has no more, or closes as if it had."""


class Source(Protocol):
    """Something that may have a file."""

    @property
    def name(self) -> str:
        """As people know it, for one line."""

    def open(self, file: ReleaseFile, offset: int, patience: Patience) -> AbstractAsyncContextManager[Flow]:
        """Ask for the file from `offset` on; raises SourceFailed."""


async def steady(blocks: AsyncIterator[bytes], patience: Patience) -> AsyncGenerator[bytes, None]:
    """Yield the blocks while they come; SourceFailed for a source that says nothing, or hardly anything.

    Only the time in which we wait for the source counts, not what the reader takes.
    """
    clock = asyncio.get_running_loop().time
    waited, got = 0.0, 0
    while True:
        began = clock()
        try:
            async with asyncio.timeout(patience.idle):
                block = await anext(blocks, None)
        except TimeoutError:
            raise SourceFailed(f"it sent nothing for {patience.idle:g} s") from None
        if block is None:
            return
        waited, got = waited + clock() - began, got + len(block)
        if waited >= patience.idle:
            if got < patience.least:
                raise SourceFailed(f"it is too slow: {size(got)} in {waited:.0f} s")
            waited, got = 0.0, 0
        yield block
