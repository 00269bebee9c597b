"""What is inside of a gzip file? Its bytes in order, one member, checked to its last byte."""

import os
from collections.abc import Callable, Iterator

from isal import igzip_lib

from llmgw.agent.engines.unpack.bad import BadArchive
from llmgw.agent.engines.unpack.limits import Limits

_IN, _OUT = 256 << 10, 512 << 10
"""Bytes read at once, and inflated at once."""


class Inflated:
    """The inside of the gzip file that `archive` is open on; `tell` is given the compressed bytes taken so far."""

    def __init__(self, archive: int, limits: Limits, tell: Callable[[int], None]) -> None:
        self._archive, self._limits, self._tell = archive, limits, tell
        self._inflate = igzip_lib.IgzipDecompressor(flag=igzip_lib.DECOMP_GZIP)
        self._taken = self._made = 0
        self._piece = memoryview(b"")
        """Inflated and not asked for yet."""

    def exactly(self, count: int) -> bytes:
        """Return the next `count` bytes, which are few. Raises BadArchive where it ends before."""
        return b"".join(self.pieces(count))

    def pieces(self, count: int) -> Iterator[memoryview]:
        """Yield the next `count` bytes as they come. Raises BadArchive where it ends before."""
        while count:
            if not self._piece and not self._fill():
                raise BadArchive("ends in the middle")
            piece, self._piece = self._piece[:count], self._piece[count:]
            count -= len(piece)
            yield piece

    def end(self) -> None:
        """Read to the end, where only zeros may come. Raises BadArchive for anything else, and for a wrong checksum."""
        zeros = 0
        while self._piece or self._fill():
            zeros += len(self._piece)
            if any(self._piece):
                raise BadArchive("has bytes after its end")
            if zeros > self._limits.padding:
                raise BadArchive(f"has more than {self._limits.padding} zeros after its end")
            self._piece = memoryview(b"")
        if self._inflate.unused_data or os.read(self._archive, 1):
            raise BadArchive("has bytes after its gzip member")

    def _fill(self) -> bool:
        """Inflate the next piece; False at the end of the member."""
        while not self._inflate.eof:
            piece = self._inflated()
            if piece:
                self._count(len(piece))
                self._piece = memoryview(piece)
                return True
        return False

    def _inflated(self) -> bytes:
        fresh = b""
        if self._inflate.needs_input:
            fresh = os.read(self._archive, _IN)
            if not fresh:
                raise BadArchive("is cut off: its gzip stream does not end")
            self._begin(fresh)
        self._tell(self._taken)
        try:
            return self._inflate.decompress(fresh, _OUT)
        except igzip_lib.IsalError as error:  # type: ignore[misc]  # its stub takes the class for an instance
            raise BadArchive(f"is damaged: its gzip stream cannot be inflated ({_words(error)})") from None

    def _begin(self, fresh: bytes) -> None:
        if not self._taken and not fresh.startswith(b"\x1f\x8b"):
            what = "zip" if fresh.startswith(b"PK") else "not gzip"
            raise BadArchive(f"is {what}; only .tar.gz is unpacked")
        self._taken += len(fresh)

    def _count(self, made: int) -> None:
        self._made += made
        if self._made > self._limits.out:
            raise BadArchive(f"is more than {self._limits.out} bytes inflated")
        if self._made > self._limits.free and self._made > self._limits.ratio * self._taken:
            raise BadArchive(
                f"inflates to {self._made} bytes from {self._taken}: more than {self._limits.ratio} times is a bomb"
            )


def _words(error: Exception) -> str:
    return str(error).split(" ", 2)[-1].lower()
