"""What may a host be called, and how is it written with a port?"""

import ipaddress
import re

from llmgw.core.errors import BadName

_LABEL = r"[A-Za-z0-9_]([A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?"
_NAME = re.compile(rf"(?=.{{1,253}}\Z){_LABEL}(\.{_LABEL})*\Z")
_NUMBERS = re.compile(r"(\d+|0[xX][0-9a-fA-F]*)(\.(\d+|0[xX][0-9a-fA-F]*))*\Z")
"""What inet_aton(3) takes for an address, however it is written: `127.1`, `0x7f.1`, `2130706433`."""
_ZONE = re.compile(r"[A-Za-z0-9._-]{1,32}\Z")
"""Behind `%` in an IPv6 address: a network interface, or its number."""
_OWN_NAMES = ("localhost", "ip6-localhost", "ip6-loopback")


def host_name(text: str) -> str:
    """Return `text` when it is a host's name or an IP address (in its shortest form), or raise BadName."""
    if (found := _address(text)) is not None:
        return str(found)
    # Numbers and dots alone are an address with a mistake in it, never a name.
    if _NAME.match(text) is None or _NUMBERS.match(text):
        raise BadName("host", text, "a DNS name without wildcard, or an IP address")
    return text


def host_port(host: str, port: int) -> str:
    """`node01:21000`, and `[::1]:21000` with brackets around IPv6."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def is_loopback(host: str) -> bool:
    """Whether only the machine itself reaches what listens there."""
    found = _unmapped(host)
    if found is not None:
        return found.is_loopback
    name = host.removesuffix(".").lower()
    return name in _OWN_NAMES or name.endswith(".localhost")


def stays_here(host: str) -> bool:
    """Whether who connects there connects to its own machine; to `0.0.0.0`, too, where whoever listens is reached."""
    found = _unmapped(host)
    return is_loopback(host) or (found is not None and found.is_unspecified)


def _address(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    _, zoned, zone = text.partition("%")
    if zoned and not _ZONE.match(zone):
        return None
    try:
        return ipaddress.ip_address(text)
    except ValueError:
        return None


def _unmapped(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """The address that a connection goes to: `::ffff:127.0.0.1` is IPv4's."""
    found = _address(host.partition("%")[0])
    return getattr(found, "ipv4_mapped", None) or found
