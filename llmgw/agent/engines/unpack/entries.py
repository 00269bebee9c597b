"""What is in a tar file? Its entries in order, each with the name that rules."""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum

from llmgw.agent.engines.unpack import header, pax
from llmgw.agent.engines.unpack.bad import BadArchive
from llmgw.agent.engines.unpack.header import BLOCK, Header
from llmgw.agent.engines.unpack.inflate import Inflated
from llmgw.agent.engines.unpack.limits import Limits
from llmgw.agent.engines.unpack.names import shown
from llmgw.agent.engines.unpack.pax import Extended


class Kind(Enum):
    """What an entry makes."""

    FILE = b"0"
    COPY = b"1"
    """A hard link: the same as an earlier file."""
    LINK = b"2"
    DIRECTORY = b"5"


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One of them; its `size` bytes follow in the stream."""

    index: int
    kind: Kind
    name: bytes
    link: bytes
    size: int
    mode: int

    @property
    def shown(self) -> str:
        """Its name for people."""
        return shown(self.name)


def entries(stream: Inflated, limits: Limits) -> Iterator[Entry]:
    """Yield each entry; whoever takes it reads all of its bytes before the next. Raises BadArchive.

    An entry may be preceded by one extended header of pax, or by one long name and one long link target of GNU.
    """
    reader = _Reader(stream, limits)
    while (entry := reader.entry()) is not None:
        yield entry
        reader.pad(entry.size)


@dataclass(slots=True, kw_only=True)
class _Said:
    """What headers before an entry said of it."""

    extended: Extended | None = None
    name: bytes | None = None
    link: bytes | None = None


class _Reader:
    def __init__(self, stream: Inflated, limits: Limits) -> None:
        self._stream, self._limits = stream, limits
        self._index = 0

    def entry(self) -> Entry | None:
        """Return the next one, None at the end."""
        said = _Said()
        while (block := self._block()) is not None:
            try:
                found = header.parse(block)
            except BadArchive as bad:
                raise bad.at("", self._index) from None
            try:
                if found.kind not in b"LKxg":
                    return self._made(found, said)
                self._before(found, said)
            except BadArchive as bad:
                raise bad.at(shown(found.name), self._index) from None
        if said != _Said():
            raise BadArchive("ends after a header for an entry that does not come")
        return None

    def pad(self, size: int) -> None:
        """Skip what fills its last block."""
        self._stream.exactly(-size % BLOCK)

    def _block(self) -> bytes | None:
        """Return the next header, None at the end, which is two blocks of zeros."""
        block = self._stream.exactly(BLOCK)
        if any(block):
            self._index += 1
            if self._index > self._limits.entries:
                raise BadArchive(f"has more than {self._limits.entries} entries")
            return block
        if any(self._stream.exactly(BLOCK)):
            raise BadArchive("has a lone block of zeros, where half of its end would be")
        return None

    def _before(self, found: Header, said: _Said) -> None:
        """Take a header that is about the entry after it."""
        if found.kind in b"xg":
            extended = pax.parse(self._data(found.size, self._limits.pax, "extended header"))
            if found.kind == b"g":
                if extended:
                    raise BadArchive("is an extended header for all entries with a name or a size")
                return
            if said.extended is not None:
                raise BadArchive("is the second extended header of one entry")
            said.extended = extended
            return
        what = "name" if found.kind == b"L" else "link target"
        if (said.name if found.kind == b"L" else said.link) is not None:
            raise BadArchive(f"is the second long {what} of one entry")
        data = self._data(found.size, self._limits.path + 1, f"long {what}").removesuffix(b"\x00")
        if b"\x00" in data:
            raise BadArchive(f"has a NUL in its {what}")
        if found.kind == b"L":
            said.name = data
        else:
            said.link = data

    def _data(self, size: int, most: int, what: str) -> bytes:
        if size > most:
            raise BadArchive(f"is a {what} of {size} bytes, {most} are allowed")
        data = self._stream.exactly(size)
        self.pad(size)
        return data

    def _made(self, found: Header, said: _Said) -> Entry:
        extended = said.extended or Extended()
        try:
            name = _one(found.name, said.name, extended.name, "name")
            link = _one(found.link, said.link, extended.link, "link target")
        except BadArchive as bad:
            raise bad.at(shown(found.name), self._index) from None
        try:
            return self._checked(found, name, link, extended.size)
        except BadArchive as bad:
            raise bad.at(shown(name), self._index) from None

    def _checked(self, found: Header, name: bytes, link: bytes, size: int | None) -> Entry:
        try:
            kind = Kind(found.kind)
        except ValueError:
            raise BadArchive(f"is of type {shown(found.kind)}, which is not unpacked") from None
        if size is not None and found.size not in (0, size):
            raise BadArchive(f"has two sizes, {found.size} and {size} bytes")
        size = found.size if size is None else size
        if size > self._limits.out:
            raise BadArchive(f"is {size} bytes, {self._limits.out} are allowed in all")
        if size and kind is not Kind.FILE:
            raise BadArchive(f"has {size} bytes, and is no file")
        if name.endswith(b"/") and kind is not Kind.DIRECTORY:
            raise BadArchive("has the name of a directory, and is none")
        return Entry(index=self._index, kind=kind, name=name, link=link, size=size, mode=found.mode)


def _one(short: bytes, long: bytes | None, extended: bytes | None, what: str) -> bytes:
    """Return the name that rules."""
    if long is not None and extended is not None:
        raise BadArchive(f"has two long {what}s, one of GNU and one of pax")
    return next(name for name in (extended, long, short) if name is not None)
