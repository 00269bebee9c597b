"""Who is at the other end of a TLS connection, and may it be: the only place where ssl contexts are made.

TLS 1.3, certificates on both sides, HTTP/2 negotiated. OpenSSL verifies the chain, the dates and the host name; what
it lets pass and we do not (no extended usage, no key usage, wildcards, several identities) is refused here.
"""

import os
import ssl
from contextvars import ContextVar
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from llmgw.config.tls import TlsFiles
from llmgw.core.errors import BadConfig, BadName, PeerNotTrusted
from llmgw.core.identity import Identity, identity
from llmgw.wire import der

_PROTOCOL = "h2"

handshake_failure: ContextVar[list[ssl.SSLError] | None] = ContextVar("handshake_failure", default=None)
"""Where a server's failed handshake puts its reason (the connection's own end hides it)."""


class _Telling(ssl.SSLObject):
    """A handshake that fails only after the alert was sent.

    asyncio drops the connection with the alert still in its buffer, so that a peer would never learn why it was
    refused. Asking for more input first makes it flush; the failure comes when the peer answers, goes, or in time.
    """

    _failed: ssl.SSLError | None = None

    def do_handshake(self) -> None:
        """As documented, but for the delay."""
        if self._failed is not None:
            raise self._failed
        try:
            super().do_handshake()
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            raise
        except ssl.SSLError as failed:
            self._failed = failed
            noted = handshake_failure.get()
            if noted is not None:
                noted.append(failed)
            raise ssl.SSLWantReadError from None


def server_context(files: TlsFiles) -> ssl.SSLContext:
    """A context for listening; raises BadConfig when a file cannot be used."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.sslobject_class = _Telling
    context.num_tickets = 0  # a resumed session would skip the check of the certificate
    return _load(context, files)


def client_context(files: TlsFiles) -> ssl.SSLContext:
    """A context for dialling; raises BadConfig when a file cannot be used."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = True
    context.hostname_checks_common_name = False
    return _load(context, files)


def _load(context: ssl.SSLContext, files: TlsFiles) -> ssl.SSLContext:
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.verify_mode = ssl.CERT_REQUIRED
    context.verify_flags |= ssl.VERIFY_X509_STRICT
    context.set_ciphers("DEFAULT:@SECLEVEL=2")  # nothing below 2048 bits of RSA, wherever we run
    context.set_alpn_protocols([_PROTOCOL])
    _check_key_mode(files.key)
    for path in (files.certificate, files.authority):
        _read(path)
    try:
        context.load_cert_chain(files.certificate, files.key, password=_no_password)
    except (ssl.SSLError, ValueError) as bad:
        rule = "must be the PEM certificate that belongs to the key, and the key without a password"
        raise BadConfig(str(files.certificate), None, "", f"{rule} {files.key}", _reason(bad)) from None
    try:
        context.load_verify_locations(cafile=str(files.authority))
    except ssl.SSLError as bad:
        raise BadConfig(str(files.authority), None, "", "must hold certificates in PEM form", _reason(bad)) from None
    return context


def _no_password() -> str:
    raise ValueError("a key with a password")


def _reason(error: Exception) -> str:
    return str(getattr(error, "reason", None) or error).replace("_", " ").lower()


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise BadConfig(str(path), None, "", f"cannot be read: {(error.strerror or str(error)).lower()}") from None


def _check_key_mode(path: Path) -> None:
    try:
        with path.open("rb") as file:
            mode = os.fstat(file.fileno()).st_mode & 0o777
    except OSError as error:
        raise BadConfig(str(path), None, "", f"cannot be read: {(error.strerror or str(error)).lower()}") from None
    if mode & 0o077:
        raise BadConfig(str(path), None, "", "a private key must be for its owner only (chmod 600)", f"mode {mode:04o}")


def own_identity(files: TlsFiles) -> Identity:
    """Whom our own certificate speaks for; BadConfig when it is unreadable, out of date or names nobody."""
    _check_key_mode(files.key)
    file = str(files.certificate)
    try:
        own = der.certificate(ssl.PEM_cert_to_DER_cert(first_certificate(files.certificate)))
    except (ValueError, UnicodeDecodeError):
        raise BadConfig(file, None, "", "must be a certificate in PEM form") from None
    now = datetime.now(UTC)
    if now > own.not_after:
        raise BadConfig(file, None, "", f"expired on {when(own.not_after)}; it is {when(now)} here; issue a new one")
    if now < own.not_before:
        raise BadConfig(file, None, "", f"is not valid before {when(own.not_before)}; it is {when(now)} here")
    try:
        return _who(own)
    except ValueError as bad:
        raise BadConfig(file, None, "", f"names nobody: {bad}; issue one with `llmgw pki issue`") from None


def when(time: datetime) -> str:
    """A time as people read it in an error."""
    return time.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def first_certificate(path: Path) -> str:
    """The first certificate of a PEM file, as text; ValueError when there is none, BadConfig when it is unreadable."""
    pem, end = _read(path).decode("ascii"), "-----END CERTIFICATE-----"
    return pem[pem.index("-----BEGIN CERTIFICATE-----") : pem.index(end) + len(end)]


def _who(certificate: der.Certificate) -> Identity:
    """The one identity of a certificate; ValueError says what is wrong."""
    if len(certificate.uris) != 1:
        raise ValueError(f"it must have exactly one URI name, not {len(certificate.uris)}")
    try:
        return identity(certificate.uris[0])
    except BadName as bad:
        raise ValueError(str(bad)) from None


def peer_identity(shown: bytes, usage: bytes, peer: str) -> Identity:
    """Whom the peer's verified certificate (DER) speaks for; PeerNotTrusted names `peer` and what is wrong.

    `usage` is what its holder does in this connection: der.SERVER_AUTH or der.CLIENT_AUTH.
    """
    try:
        certificate = der.certificate(shown)
        who = _who(certificate)
    except ValueError as bad:
        raise PeerNotTrusted(peer, f"its certificate names nobody: {bad}", "issue one with `llmgw pki issue`") from None
    wild = [name for name in certificate.names if "*" in name]
    if wild:
        raise PeerNotTrusted(peer, f"its certificate has a wildcard, {wild[0]!r}", "issue one without")
    if certificate.usages is None or usage not in certificate.usages:
        side = "servers" if usage == der.SERVER_AUTH else "clients"
        raise PeerNotTrusted(peer, f"the certificate of {who} is not for {side}", "issue one for its role")
    if not certificate.signs:
        raise PeerNotTrusted(peer, f"the certificate of {who} has no key usage for signatures", "issue a new one")
    return who


def connection_identity(tls: Any, usage: bytes, peer: str) -> Identity:
    """The same for an established ssl object; also refuses a peer that did not agree on HTTP/2."""
    if tls.selected_alpn_protocol() != _PROTOCOL:
        raise PeerNotTrusted(peer, "does not speak HTTP/2 (no agreement by ALPN)", "it is no llmgw program")
    shown = tls.getpeercert(binary_form=True)
    if not shown:
        raise PeerNotTrusted(peer, "showed no certificate")
    return peer_identity(shown, usage, peer)
