"""What does a control plane show to somebody who has no certificate of his own to show, or none that can be used?

In TLS 1.3 a client has judged the server before the server asks for its certificate, so this tells all that is wrong
with a server but what it thinks of us. Nothing is asked and nothing is sent.
"""

import asyncio
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from llmgw.config.address import Address
from llmgw.core.errors import PeerNotTrusted
from llmgw.core.identity import Identity, Role
from llmgw.wire import der, explain, tls
from llmgw.wire.handshake import Handshake, hasten, watched


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """A server's certificate, verified."""

    identity: Identity
    fingerprint: str
    """As errors spell it: the first half of the SHA-256."""
    not_after: datetime


async def look(at: Address, authority: Path, *, seconds: float, as_host: bool = True) -> Shown:
    """Return what the server at an address shows within so many seconds.

    Raises ControlUnreachable and PeerNotTrusted in the words of a client that dials it, BadConfig when `authority`
    cannot be used. `as_host`: its certificate must be for the host that is dialled.
    """
    context = tls.onlooker_context(authority, check_hostname=as_host)
    handshake = Handshake(lambda _, left: hasten(deadline, left))
    try:
        with watched(handshake):
            async with asyncio.timeout(seconds) as deadline:
                _, writer = await asyncio.open_connection(at.host, at.port, ssl=context, server_hostname=at.host)
    except OSError as error:
        raise explain.not_dialled((at.host, at.port), authority, error, handshake, seconds) from None
    try:
        secured = writer.get_extra_info("ssl_object")
        who = tls.connection_identity(secured, der.SERVER_AUTH, f"control plane {at}")
        if who.role is not Role.CONTROL:
            raise PeerNotTrusted(f"control plane {at}", f"its certificate is of {who}, not of the role control")
        shown = secured.getpeercert(binary_form=True)
    finally:
        writer.transport.abort()
    return Shown(identity=who, fingerprint=der.fingerprint(shown), not_after=der.certificate(shown).not_after)


async def knock(at: Address, *, seconds: float) -> None:
    """Open a TCP connection and close it again; ControlUnreachable says why there was none."""
    try:
        async with asyncio.timeout(seconds):
            _, writer = await asyncio.open_connection(at.host, at.port)
    except OSError as error:
        nothing_shaken = Handshake(lambda _, left: None)
        raise explain.not_dialled((at.host, at.port), None, error, nothing_shaken, seconds) from None
    writer.transport.abort()
