"""Who is at the other end of a connection."""

import socket
import struct
from dataclasses import dataclass
from typing import Any

from llmgw.core.errors import PeerNotTrusted
from llmgw.core.identity import Identity, Role
from llmgw.wire import der, tls


@dataclass(frozen=True, slots=True)
class Peer:
    """Who is at the other end of a connection."""

    identity: Identity
    address: str
    """For logs: host:port, or "local" with the process id."""

    def __str__(self) -> str:
        return f"{self.identity} at {self.address}"


def peer_of(transport: Any, cluster: str) -> Peer:
    """Read who is at the other end from the transport, the only place that does; raises PeerNotTrusted.

    Over TLS that is whom the certificate names, on a Unix socket the user that the kernel names.
    """
    secured = transport.get_extra_info("ssl_object")
    if secured is None:
        raw = transport.get_extra_info("socket").getsockopt(
            socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i")
        )
        pid, uid, _ = struct.unpack("3i", raw)
        return Peer(Identity(cluster, Role.OPERATOR, "root" if uid == 0 else f"uid-{uid}"), f"local process {pid}")
    address = address_text(transport.get_extra_info("peername"))
    who = tls.connection_identity(secured, der.CLIENT_AUTH, address)
    if who.cluster != cluster:
        raise PeerNotTrusted(address, f"its certificate is of cluster {who.cluster}, this is cluster {cluster}")
    return Peer(who, address)


def address_text(address: Any) -> str:
    """`127.0.0.1:7443`, `[::1]:7443`."""
    if not isinstance(address, tuple):
        return str(address or "a socket")
    host, port = address[0], address[1]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
