"""What a certificate says, read from its DER form: only the few fields that decide whom it speaks for.

`ssl.getpeercert()` leaves the usages out, and the cryptography package would cost each `ctl` call a third of its time.
What decides is read only of certificates that OpenSSL has verified, or of our own; a stranger's is read to say what is
wrong with it. It reads no byte outside what it was given.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import sha256
from ipaddress import ip_address

_SEQUENCE, _OID, _OCTETS, _BITS = 0x30, 0x06, 0x04, 0x03
_EXTENSIONS = 0xA3
_VERSION = 0xA0
_UTC_TIME, _LONG_TIME = 0x17, 0x18
_SAN_DNS, _SAN_URI, _SAN_IP = 0x82, 0x86, 0x87

_COMMON_NAME = b"\x55\x04\x03"
_KEY_USAGE, _ALTERNATIVE_NAMES, _EXTENDED_USAGE = b"\x55\x1d\x0f", b"\x55\x1d\x11", b"\x55\x1d\x25"
SERVER_AUTH = b"\x2b\x06\x01\x05\x05\x07\x03\x01"
CLIENT_AUTH = b"\x2b\x06\x01\x05\x05\x07\x03\x02"


class NotACertificate(ValueError):
    """The bytes are not the DER form of a certificate."""


@dataclass(frozen=True, slots=True)
class Certificate:
    """What counts of a certificate."""

    issuer: str
    """The common name of the authority that signed it, or nothing."""
    not_before: datetime
    not_after: datetime
    uris: tuple[str, ...]
    names: tuple[str, ...]
    """DNS names."""
    addresses: tuple[str, ...]
    """IP addresses."""
    usages: frozenset[bytes] | None
    """Extended usages as encoded object ids; None when the certificate does not limit them."""
    signs: bool
    """Its key usage is there and allows signatures, which a TLS 1.3 handshake takes."""


def certificate(der: bytes) -> Certificate:
    """Read a certificate, or raise NotACertificate."""
    try:
        return _certificate(der)
    except (IndexError, ValueError, StopIteration) as bad:
        raise NotACertificate(str(bad)) from None


def fingerprint(der: bytes) -> str:
    """The first half of the SHA-256, which is enough to tell two apart by eye."""
    return sha256(der).hexdigest()[:32]


def when(time: datetime) -> str:
    """A time as people read it in an error."""
    return time.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def _certificate(der: bytes) -> Certificate:
    tag, whole = next(_items(der))
    signed_tag, signed = next(_items(whole))
    if (tag, signed_tag) != (_SEQUENCE, _SEQUENCE):
        raise NotACertificate("no sequence")
    fields = [item for item in _items(signed) if item[0] != _VERSION]
    # serial, signature algorithm, issuer, validity, subject, key, then the optional ones
    first, last = [_time(tag, text) for tag, text in _items(fields[3][1])]
    extensions = dict(_extensions(next((body for tag, body in fields[6:] if tag == _EXTENSIONS), b"")))
    names = [*_items(_inner(extensions[_ALTERNATIVE_NAMES]))] if _ALTERNATIVE_NAMES in extensions else []
    usages = extensions.get(_EXTENDED_USAGE)
    return Certificate(
        issuer=_common_name(fields[2][1]),
        not_before=first,
        not_after=last,
        uris=tuple(body.decode("ascii") for tag, body in names if tag == _SAN_URI),
        names=tuple(body.decode("ascii") for tag, body in names if tag == _SAN_DNS),
        addresses=tuple(str(ip_address(body)) for tag, body in names if tag == _SAN_IP),
        usages=None if usages is None else frozenset(body for _, body in _items(_inner(usages))),
        signs=_signs(extensions.get(_KEY_USAGE)),
    )


def _items(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Tag and content of each element of `data`."""
    at = 0
    while at < len(data):
        tag, length = data[at], data[at + 1]
        at += 2
        if length & 0x80:
            count = length & 0x7F
            if not 1 <= count <= 3:
                raise NotACertificate("a length of no use")
            length = int.from_bytes(data[at : at + count], "big")
            at += count
        if at + length > len(data):
            raise NotACertificate("cut short")
        yield tag, data[at : at + length]
        at += length


def _inner(data: bytes) -> bytes:
    tag, body = next(_items(data))
    if tag != _SEQUENCE:
        raise NotACertificate("no sequence")
    return body


def _extensions(wrapped: bytes) -> Iterator[tuple[bytes, bytes]]:
    if not wrapped:
        return
    for _, extension in _items(_inner(wrapped)):
        parts = [*_items(extension)]  # object id, perhaps "critical", the value
        if parts[0][0] != _OID or parts[-1][0] != _OCTETS:
            raise NotACertificate("an extension of another form")
        yield parts[0][1], parts[-1][1]


def _common_name(name: bytes) -> str:
    for _, part in _items(name):
        for _, pair in _items(part):
            (_, kind), (_, text) = [*_items(pair)][:2]
            if kind == _COMMON_NAME:
                return text.decode("utf-8", "replace")
    return ""


def _signs(usage: bytes | None) -> bool:
    if usage is None:
        return False
    tag, bits = next(_items(usage))
    return tag == _BITS and len(bits) > 1 and bool(bits[1] & 0x80)


def _time(tag: int, text: bytes) -> datetime:
    form = {_UTC_TIME: "%y%m%d%H%M%SZ", _LONG_TIME: "%Y%m%d%H%M%SZ"}.get(tag)
    if form is None:
        raise NotACertificate("no time")
    return datetime.strptime(text.decode("ascii"), form).replace(tzinfo=UTC)
