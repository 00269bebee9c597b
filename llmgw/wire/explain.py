"""Why a control plane could not be reached or was not trusted, in words that tell the causes apart."""

import errno
import os
import re
import socket
import ssl
from datetime import UTC, datetime
from pathlib import Path

from h2.errors import ErrorCodes
from h2.events import ConnectionTerminated

from llmgw.core.errors import ControlUnreachable, LlmgwError, PeerNotTrusted
from llmgw.wire import der, tls
from llmgw.wire.handshake import NOT_TLS, Handshake
from llmgw.wire.peers import address_text
from llmgw.wire.statuses import one_line
from llmgw.wire.strangers import EXPIRED, NOT_YET, UNKNOWN_ISSUER

_OLD_TLS = {"TLSV1_ALERT_PROTOCOL_VERSION", "UNSUPPORTED_PROTOCOL"}
_ALERTS = {
    "TLSV13_ALERT_CERTIFICATE_REQUIRED": "it got none",
    "SSLV3_ALERT_CERTIFICATE_EXPIRED": "expired by its clock",
    "SSLV3_ALERT_CERTIFICATE_REVOKED": "revoked",
    "SSLV3_ALERT_UNSUPPORTED_CERTIFICATE": "it is not for clients",
    "SSLV3_ALERT_BAD_CERTIFICATE": "not in order, or not valid yet by its clock",
    "SSLV3_ALERT_CERTIFICATE_UNKNOWN": "not in order",
    "TLSV1_ALERT_UNKNOWN_CA": "of an authority that it does not know",
    "TLSV1_ALERT_DECRYPT_ERROR": "the key does not belong to it",
    "TLSV1_ALERT_INSUFFICIENT_SECURITY": "its key is too weak",
}
_NO_HOST, _NO_IP = 62, 64

NO_ANSWER = "no answer"
"""How the fact begins where dialling took all its time: nobody is there, or somebody who says nothing."""


OTHER_AUTHORITY = "is of another authority than ours"
OURS_REFUSED = "it refused our certificate"
NOT_YET_VALID = "its certificate is not valid before"
"""Parts of facts, for whoever must tell them apart."""

_NUMBER = re.compile(r"\[Errno (\d+)\]")


def words(error: BaseException) -> str:
    """An error of the system in one line, lower case; its number says the cause, whatever a library says instead."""
    if causes := _causes(error):
        return "; ".join(os.strerror(one).lower() for one in causes)
    text = getattr(error, "strerror", None) or str(error) or type(error).__name__
    return one_line(str(text)).lower()


def _causes(error: BaseException) -> list[int]:
    """The errors' numbers by errno(3), each once; none where the error has none, or numbers of its own."""
    if not isinstance(error, OSError) or isinstance(error, ssl.SSLError | socket.gaierror):
        return []
    if error.errno is not None:
        return [error.errno] if error.errno > 0 else []
    # One for each address of a name, in one text: `Multiple exceptions: [Errno 111] …, [Errno 113] …`
    return [*dict.fromkeys(map(int, _NUMBER.findall(str(error))))]


def not_reached(address: str, error: OSError) -> LlmgwError:
    """The connection did not come about."""
    if isinstance(error, ssl.SSLError):
        return _no_handshake(address, error)
    if isinstance(error, ConnectionAbortedError | ConnectionResetError):
        return ControlUnreachable(
            address, "it closed the connection during the TLS handshake", "is it a control plane?"
        )
    if _causes(error) == [errno.ECONNREFUSED]:
        return ControlUnreachable(address, "connection refused", "is llmgwd running there?")
    if isinstance(error, socket.gaierror):
        return ControlUnreachable(address, f"the host name is not known ({words(error)})")
    if error.errno in (errno.ENOENT, errno.EACCES):
        way = "is llmgwd running?" if error.errno == errno.ENOENT else "only root and the socket's group may use it"
        return ControlUnreachable(address, words(error), way)
    return ControlUnreachable(address, words(error))


def _no_handshake(address: str, error: ssl.SSLError) -> LlmgwError:
    reason = error.reason or ""
    if reason in _ALERTS:
        return refused(address, error)
    if reason in NOT_TLS:
        return ControlUnreachable(address, "it does not speak TLS", "is it the port of llmgwd?")
    if reason in _OLD_TLS:
        return ControlUnreachable(address, "it does not speak TLS 1.3", "is it the port of llmgwd?")
    return ControlUnreachable(address, f"no TLS connection: {_spelled(error)}")


def refused(address: str, error: ssl.SSLError) -> LlmgwError:
    """The server ended a connection that we thought was up, with a TLS alert."""
    why = _ALERTS.get(error.reason or "")
    if why is None:
        return ControlUnreachable(address, f"the TLS connection broke: {_spelled(error)}")
    return PeerNotTrusted(f"control plane {address}", f"{OURS_REFUSED}: {why}", 'see "llmgw pki"')


def _spelled(error: ssl.SSLError) -> str:
    return one_line((error.reason or str(error)).replace("_", " ").lower())


def farewell(address: str, event: ConnectionTerminated) -> LlmgwError:
    """The server closed the connection with a word of its own."""
    text = one_line((event.additional_data or b"").decode("utf-8", "replace"))
    if event.error_code == ErrorCodes.INADEQUATE_SECURITY:
        return PeerNotTrusted(f"control plane {address}", f"{OURS_REFUSED}: {text}")
    return ControlUnreachable(address, text or f"it closed the connection (HTTP/2 error {event.error_code})")


def not_dialled(
    where: tuple[str, int] | str, authority: Path | None, error: OSError, handshake: Handshake, waited: float
) -> LlmgwError:
    """Why dialling host and port, or a socket, came to nothing: `error`, or what the handshake knows better.

    `waited` is how many seconds there were for it.
    """
    address, failure = address_text(where), handshake.error
    if isinstance(failure, ssl.SSLCertVerificationError) and authority is not None and isinstance(where, tuple):
        return untrusted(*where, authority, failure, handshake.chain)
    if failure is None and isinstance(error, TimeoutError):
        return ControlUnreachable(address, f"{NO_ANSWER} within {waited:g} s")
    return not_reached(address, failure or error)


def untrusted(
    host: str, port: int, authority: Path, error: ssl.SSLCertVerificationError, chain: list[bytes]
) -> PeerNotTrusted:
    """Say what is wrong with the server's certificate, the first of `chain`."""
    peer = f"control plane {address_text((host, port))}"
    shown = chain[0] if chain else b""
    code = error.verify_code
    try:
        certificate = der.certificate(shown) if shown else None
    except der.NotACertificate:
        certificate = None
    if certificate is None:
        return PeerNotTrusted(peer, f"its certificate is not trusted: {error.verify_message}")
    now = der.when(datetime.now(UTC))
    if code == EXPIRED and certificate.not_after < datetime.now(UTC):
        return PeerNotTrusted(peer, f"its certificate expired on {der.when(certificate.not_after)}; it is {now} here")
    if code == NOT_YET and certificate.not_before > datetime.now(UTC):
        return PeerNotTrusted(peer, f"{NOT_YET_VALID} {der.when(certificate.not_before)}; it is {now} here")
    if code in (_NO_HOST, _NO_IP):
        names = one_line(", ".join([*certificate.names, *certificate.addresses][:8]))
        way = f"issue it again with --address {host}" + (", or dial one of those" if names else "")
        return PeerNotTrusted(peer, f"its certificate is for other addresses: {names or 'none'}", way)
    if code in UNKNOWN_ISSUER:
        ours = der.fingerprint(tls.certificates(authority)[0])
        fact = f"its certificate (SHA-256 {der.fingerprint(shown)}) {OTHER_AUTHORITY} (SHA-256 {ours})"
        return PeerNotTrusted(peer, fact, f"is {authority} of this cluster?")
    return PeerNotTrusted(peer, f"its certificate is not trusted: {error.verify_message}")
