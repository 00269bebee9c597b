"""What does an extended header (pax) add? Only a name, a link target and a size count."""

from dataclasses import dataclass

from llmgw.agent.engines.unpack.bad import BadArchive
from llmgw.agent.engines.unpack.names import shown

_IDLE = frozenset({b"mtime", b"atime", b"ctime", b"uid", b"gid", b"uname", b"gname", b"comment"})
"""What says nothing about where something goes and what is in it."""
_IDLE_VENDORS = (b"SCHILY.", b"LIBARCHIVE.")
"""Attributes, flags and device numbers, none of which we set."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Extended:
    """What it says of the entry after it; None where it does not."""

    name: bytes | None = None
    link: bytes | None = None
    size: int | None = None

    def __bool__(self) -> bool:
        return (self.name, self.link, self.size) != (None, None, None)


def parse(data: bytes) -> Extended:
    """Return what its records say. Raises BadArchive for a record that is not well formed, that comes twice or that
    would change how the entry is read in a way we do not know.
    """
    found = dict[bytes, bytes]()
    at = 0
    while at < len(data):
        key, value, at = _record(data, at)
        if key in _IDLE or key.startswith(_IDLE_VENDORS):
            continue
        if key.startswith(b"GNU.sparse."):
            raise BadArchive("is sparse, which is not unpacked")
        if key not in (b"path", b"linkpath", b"size"):
            raise BadArchive(f"has an extended header with {shown(key)}, which is not known")
        if key in found:
            raise BadArchive(f"has {shown(key)} twice in its extended header")
        found[key] = value
    return Extended(name=_path(found, b"path"), link=_path(found, b"linkpath"), size=_size(found.get(b"size")))


def _record(data: bytes, at: int) -> tuple[bytes, bytes, int]:
    """Return key and value of the record at `at`, `27 path=lib/libggml.so\\n`, and where the next one is."""
    digits = data[at : at + 7].split(b" ", 1)[0]
    length = int(digits) if digits.isdigit() else 0
    record = data[at : at + length]
    key, equals, value = record[len(digits) + 1 : -1].partition(b"=")
    if len(record) < length or not record.endswith(b"\n") or not equals or not key:
        raise BadArchive("has an extended header that is not well formed")
    return key, value, at + length


def _path(found: dict[bytes, bytes], key: bytes) -> bytes | None:
    value = found.get(key)
    if value is not None and b"\x00" in value:
        raise BadArchive("has a NUL in its " + ("name" if key == b"path" else "link target"))
    return value


def _size(value: bytes | None) -> int | None:
    if value is None:
        return None
    if not value.isdigit() or len(value) > 19:
        raise BadArchive("has an extended header with a size that is not a number of 0 or more")
    return int(value)
