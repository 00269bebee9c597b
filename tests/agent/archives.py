"""Archives for tests, header by header, so that they can also say what no tar would write."""

import gzip
import io
import tarfile
from collections.abc import Iterable
from pathlib import Path

END = bytes(1024)


def entry(
    name: str | bytes,
    data: bytes = b"",
    *,
    kind: bytes = b"0",
    link: str | bytes = b"",
    mode: int = 0o644,
    size: int | bytes | None = None,
    owner: bytes = b"0000000\x00",
    magic: bytes = b"ustar\x0000",
    prefix: bytes = b"",
    checksum: int = 0,
) -> bytes:
    """One header and its data; `size` is what the header says where that is not the truth, `checksum` how wrong."""
    said = len(data) if size is None else size
    number = said if isinstance(said, bytes) else b"%011o\x00" % said
    block = bytearray(512)
    for at, field in (
        (0, _bytes(name)),
        (100, b"%07o\x00" % mode),
        (108, owner),
        (116, owner),
        (124, number),
        (136, b"%011o\x00" % 0),
        (148, b" " * 8),
        (156, kind),
        (157, _bytes(link)),
        (257, magic),
        (345, prefix),
    ):
        block[at : at + len(field)] = field
    block[148:156] = b"%06o\x00 " % (sum(block) + checksum)
    return bytes(block) + data + bytes(-len(data) % 512)


def directory(name: str | bytes, mode: int = 0o755) -> bytes:
    return entry(name, kind=b"5", mode=mode)


def symlink(name: str | bytes, target: str | bytes) -> bytes:
    return entry(name, kind=b"2", link=target, mode=0o777)


def hardlink(name: str | bytes, target: str | bytes) -> bytes:
    return entry(name, kind=b"1", link=target)


def long_name(name: str | bytes, kind: bytes = b"L") -> bytes:
    """GNU's header before an entry with a long name; of a long link target with `K`."""
    return entry("././@LongLink", _bytes(name) + b"\x00", kind=kind, magic=b"ustar  \x00")


def pax(kind: bytes = b"x", **records: str | bytes) -> bytes:
    """An extended header."""
    return entry("pax", b"".join(record(key, value) for key, value in records.items()), kind=kind)


def record(key: str, value: str | bytes) -> bytes:
    """One record, with its own length in front."""
    rest = b" " + key.encode() + b"=" + _bytes(value) + b"\n"
    length = len(rest) + 1
    while len(b"%d" % length) + len(rest) != length:
        length += 1
    return b"%d" % length + rest


def packed(entries: Iterable[bytes], *, end: bytes = END, level: int = 1) -> bytes:
    """A whole `.tar.gz`."""
    return gzip.compress(b"".join(entries) + end, level)


def tree(path: Path, files: dict[str, bytes | str], *, mode: int = 0o755) -> Path:
    """Write a `.tar.gz` as GNU tar does: bytes are a file, text is the target of a symbolic link."""
    with tarfile.open(path, "w:gz", compresslevel=1, format=tarfile.GNU_FORMAT) as archive:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.mode = mode
            if isinstance(content, str):
                member.type, member.linkname = tarfile.SYMTYPE, content
                archive.addfile(member)
            else:
                member.size = len(content)
                archive.addfile(member, io.BytesIO(content))
    return path


def _bytes(text: str | bytes) -> bytes:
    return text.encode() if isinstance(text, str) else text
