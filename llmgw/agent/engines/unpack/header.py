"""What does one header of a tar file say? 512 bytes, as POSIX ustar and GNU tar write them."""

from dataclasses import dataclass

from llmgw.agent.engines.unpack.bad import BadArchive

BLOCK = 512

_USTAR, _GNU = b"ustar\x0000", b"ustar  \x00"


@dataclass(frozen=True, slots=True, kw_only=True)
class Header:
    """A header that adds up. Owner, times and device numbers are not even read."""

    kind: bytes
    """Its type flag; `0` for NUL, too."""
    name: bytes
    link: bytes
    size: int
    mode: int


def parse(block: bytes) -> Header:
    """Return what the header says. Raises BadArchive unless every tar would read the same."""
    if _number(block[148:156], "checksum") != sum(block) - sum(block[148:156]) + 8 * ord(" "):
        raise BadArchive("has a header with a wrong checksum")
    kind, name = block[156:157], _string(block[:100], "name")
    link, prefix = _string(block[157:257], "link target"), block[345:500]
    if block[257:265] == _USTAR:
        before = _string(prefix, "name")
        name = before + b"/" + name if before else name
    elif block[257:265] != _GNU:
        raise BadArchive("has a header that is neither ustar nor GNU")
    elif any(prefix):
        # Some take it for times, others for the name's beginning.
        raise BadArchive("has bytes where a GNU header has none")
    if kind == b"\x00":
        kind = b"0"
    return Header(
        kind=kind, name=name, link=link, size=_number(block[124:136], "size"), mode=_number(block[100:108], "mode")
    )


def _string(field: bytes, what: str) -> bytes:
    text, _, rest = field.partition(b"\x00")
    if any(rest):
        raise BadArchive(f"has a NUL in its {what}")
    return text


def _number(field: bytes, what: str) -> int:
    """Octal, or base 256 where the first bit is set; never negative."""
    if field[0] == 0x80:
        return int.from_bytes(field[1:], "big")
    digits = field.lstrip(b" ").rstrip(b" \x00")
    if not digits:
        return 0
    if digits.strip(b"01234567"):
        raise BadArchive(f"has a header with a {what} that is not a number of 0 or more")
    return int(digits, 8)
