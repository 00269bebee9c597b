"""What may a host be called, and how is it written with a port?"""

import ipaddress
import re

from llmgw.core.errors import BadName

_LABEL = r"[A-Za-z0-9_]([A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?"
_NAME = re.compile(rf"(?=.{{1,253}}\Z){_LABEL}(\.{_LABEL})*\Z")
_NUMBERS = re.compile(r"[\d.]+\Z")


def host_name(text: str) -> str:
    """Return `text` when it is a host's name or an IP address (in its shortest form), or raise BadName."""
    try:
        return str(ipaddress.ip_address(text))
    except ValueError:
        pass
    # Digits and dots alone are an address with a mistake in it, never a name.
    if _NAME.match(text) is None or _NUMBERS.match(text):
        raise BadName("host", text, "a DNS name without wildcard, or an IP address")
    return text


def host_port(host: str, port: int) -> str:
    """`node01:21000`, and `[::1]:21000` with brackets around IPv6."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def is_loopback(host: str) -> bool:
    """Whether only the machine itself reaches what listens there."""
    try:
        return ipaddress.ip_address(host.partition("%")[0]).is_loopback
    except ValueError:
        return host == "localhost"
