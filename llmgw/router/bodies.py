"""Where does a message's body end? By count or by chunks, for requests and responses, with bounds that parsers lack.

A reader is fed what arrives and hands on the payload. After `done` the bytes that came behind the body are in
`surplus`. Trailers are checked and dropped, never merged into the header.
"""

import re

from llmgw.core import units
from llmgw.router.limits import LIMITS

_SIZE = re.compile(rb"([0-9A-Fa-f]{1,16})((?:[ \t]*;[\t\x20-\x7e\x80-\xff]*)?)\r\n")
_FIELD = re.compile(rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]+:[\t\x20-\x7e\x80-\xff]*\r\n")
_EXTENSION, _EXTENSIONS = 256, 16 << 10
_LINE = 16 + _EXTENSION + 16
_TRAILERS = 8 << 10
_ABSURD = 1 << 53
_SMALL, _SMALL_CHUNKS = 16, 1000


class BadBody(Exception):
    """A body that no honest peer sends; `too_large` when its only fault is its size."""

    def __init__(self, text: str, *, too_large: bool = False) -> None:
        super().__init__(text)
        self.too_large = too_large


class Counted:
    """A body of known length."""

    __slots__ = ("_left", "done", "surplus")

    def __init__(self, length: int) -> None:
        self._left = length
        self.done = length == 0
        self.surplus = b""

    def feed(self, data: bytes) -> list[bytes]:
        """Return the pieces of payload in `data`."""
        if self.done:
            self.surplus += data
            return []
        if len(data) > self._left:
            data, self.surplus = data[: self._left], data[self._left :]
        self._left -= len(data)
        self.done = self._left == 0
        return [data] if data else []


class Chunked:
    """A chunked body of at most `limit` bytes."""

    __slots__ = (
        "_chunks",
        "_extensions",
        "_held",
        "_left",
        "_limit",
        "_lines",
        "_tell",
        "_trailing",
        "done",
        "surplus",
    )

    def __init__(self, limit: int, *, count_small: bool = True) -> None:
        """`count_small`: refuse very many tiny chunks. An engine's tokens come as such, a client's request does not."""
        self._limit = limit
        self._left = -1  # of the chunk being read, its CRLF not counted; -1 outside a chunk
        self._tell = 0
        self._chunks = 0 if count_small else -_ABSURD
        self._extensions = 0
        self._trailing = 0  # bytes of the trailer section so far; the last chunk was seen when above 0
        self._lines = 0
        self._held = b""
        self.done = False
        self.surplus = b""

    def feed(self, data: bytes) -> list[bytes]:
        """Return the pieces of payload in `data`; raises BadBody."""
        if self._held:
            data, self._held = self._held + data, b""
        pieces: list[bytes] = []
        at, end = 0, len(data)
        while at < end:
            if self.done:
                self.surplus += data[at:]
                break
            at = self._payload(data, at, pieces) if self._left >= 0 else self._line(data, at)
            if at < 0:
                break
        return pieces

    def _payload(self, data: bytes, at: int, pieces: list[bytes]) -> int:
        if self._left:
            piece = data[at : at + self._left]
            pieces.append(piece)
            self._left -= len(piece)
            return at + len(piece)
        if data[at : at + 2] == b"\r\n":
            self._left = -1
            return at + 2
        if data[at:] == b"\r":
            self._held = b"\r"
            return -1
        raise BadBody("a chunk is longer than its size")

    def _line(self, data: bytes, at: int) -> int:
        """Take one line, a chunk's size or a trailer; -1 when it is not complete yet."""
        found = data.find(b"\n", at)
        if found < 0:
            if len(data) - at > (_TRAILERS if self._trailing else _LINE):
                raise BadBody("a line in the chunked body is too long")
            self._held = data[at:]
            return -1
        if self._trailing:
            self._trailer(data[at : found + 1])
        else:
            self._size(data, at, found + 1)
        return found + 1

    def _size(self, data: bytes, at: int, end: int) -> None:
        match = _SIZE.fullmatch(data, at, end)
        if match is None:
            raise BadBody("a chunk's size line is malformed")
        size = int(match[1], 16)
        if match[2]:
            self._extension(len(match[2]))
        if size == 0:
            self._trailing = 1
            return
        self._tell += size
        if self._tell > self._limit:
            raise BadBody(f"the body is over {units.size(self._limit)}", too_large=size < _ABSURD)
        self._chunks += 1
        if self._chunks > _SMALL_CHUNKS and self._tell < self._chunks * _SMALL:
            raise BadBody("the body comes in too many tiny chunks")
        self._left = size

    def _extension(self, length: int) -> None:
        self._extensions += length
        if length > _EXTENSION or self._extensions > _EXTENSIONS:
            raise BadBody("the chunk extensions are too long")

    def _trailer(self, line: bytes) -> None:
        if line == b"\r\n":
            self.done = True
            return
        self._trailing += len(line)
        self._lines += 1
        if self._trailing > _TRAILERS or self._lines > LIMITS.fields:
            raise BadBody("the trailer is too long")
        if _FIELD.fullmatch(line) is None:
            raise BadBody("a trailer field is malformed")


Body = Counted | Chunked
