"""Where something listens: `HOST:PORT`, with brackets around an IPv6 host."""

import re
from dataclasses import dataclass

from llmgw.core.errors import BadName
from llmgw.core.hosts import host_name, host_port

_PORT = re.compile(r"\d{1,5}\Z", re.ASCII)


@dataclass(frozen=True, slots=True)
class Address:
    """A host (name, IPv4 or bare IPv6) and a port."""

    host: str
    port: int

    def __str__(self) -> str:
        return host_port(self.host, self.port)


def address(text: str, *, default_port: int | None = None, any_port: bool = False) -> Address:
    """Return the address that `text` writes; ValueError says the rule.

    `default_port` allows `HOST` alone; `any_port` allows port 0, which lets the kernel choose when listening.
    """
    host, port = _split(text, default_port)
    number = int(port) if _PORT.match(port) else -1
    if not (0 if any_port else 1) <= number <= 65535:
        raise ValueError("must be HOST:PORT with a port from 1 to 65535")
    try:
        return Address(host_name(host), number)
    except BadName as error:
        raise ValueError(f"must be HOST:PORT with {error.grammar}") from None


def _split(text: str, default_port: int | None) -> tuple[str, str]:
    default = "" if default_port is None else str(default_port)
    if text.startswith("["):
        host, bracket, rest = text[1:].partition("]")
        if ":" in host and bracket and (rest.startswith(":") or (not rest and default)):
            return host, rest[1:] or default
        raise ValueError("must be [IPV6]:PORT")
    host, colon, port = text.rpartition(":")
    if not colon and default:
        return text, default
    if not colon or ":" in host:
        raise ValueError("must be HOST:PORT (an IPv6 address in brackets)")
    return host, port
