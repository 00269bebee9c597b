"""Who is at the other end of a TLS connection, and may it be: the only place where ssl contexts are made.

TLS 1.3, certificates on both sides, HTTP/2 negotiated. OpenSSL verifies the chain, the dates and the host name; what
it lets pass and we do not (no extended usage, no key usage, wildcards, several identities) is refused here.
"""

import re
import ssl
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from llmgw.config.tls import TlsFiles
from llmgw.core.errors import BadConfig, BadName, PeerNotTrusted
from llmgw.core.identity import Identity, identity
from llmgw.host.files import Unfit, read
from llmgw.wire import der, pem
from llmgw.wire.handshake import TellingTls

_PROTOCOL = "h2"


def server_context(files: TlsFiles) -> ssl.SSLContext:
    """A context for listening; raises BadConfig when a file cannot be used."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.num_tickets = 0  # a resumed session would skip the check of the certificate
    return _load(context, files)


def client_context(files: TlsFiles) -> ssl.SSLContext:
    """A context for dialling; raises BadConfig when a file cannot be used."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = True
    context.hostname_checks_common_name = False
    return _load(context, files)


def onlooker_context(authority: Path, *, check_hostname: bool) -> ssl.SSLContext:
    """A context for a handshake that shows nothing of us and judges the server as any client of ours does.

    For whoever looks for faults; a server of ours takes no call over it. Raises BadConfig when `authority` cannot be
    used.
    """
    context = _strict(ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT))
    context.check_hostname = check_hostname
    context.hostname_checks_common_name = False
    return _trust(context, authority)


def _load(context: ssl.SSLContext, files: TlsFiles) -> ssl.SSLContext:
    _strict(context)
    _check_places(files)
    certificates(files.certificate)
    try:
        context.load_cert_chain(files.certificate, files.key, password=_no_password)
    except (ssl.SSLError, ValueError) as bad:
        raise _unusable(files, bad) from None
    return _trust(context, files.authority)


def _strict(context: ssl.SSLContext) -> ssl.SSLContext:
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.verify_mode = ssl.CERT_REQUIRED
    context.verify_flags |= ssl.VERIFY_X509_STRICT
    context.set_ciphers("DEFAULT:@SECLEVEL=2")  # nothing below 2048 bits of RSA, wherever we run
    context.set_alpn_protocols([_PROTOCOL])
    context.sslobject_class = TellingTls
    return context


def _trust(context: ssl.SSLContext, authority: Path) -> ssl.SSLContext:
    certificates(authority)
    try:
        context.load_verify_locations(cafile=str(authority))
    except ssl.SSLError as bad:
        raise _bad(authority, f"cannot be used ({_reason(bad)}); {_AGAIN}") from None
    return context


_ELSE = "make one with `llmgw pki issue`, or name another file in `tls:`"
_AGAIN = "make a new one with `llmgw pki issue`, or name another file in `tls:`"


def _unusable(files: TlsFiles, error: Exception) -> BadConfig:
    """Which of certificate and key it is, and why. The certificates are known to be PEM by now."""
    reason = getattr(error, "reason", None) or ""
    if isinstance(error, _WithPassword):
        return _bad(files.key, "is a key with a password, and nobody is there to give it; store it without one")
    if reason in ("KEY_VALUES_MISMATCH", "KEY_TYPE_MISMATCH", "NO_CERTIFICATE_ASSIGNED"):  # the last: of another kind
        rule = f"must be the certificate that belongs to the key {files.key}; it is of another key"
        return _bad(files.certificate, f"{rule}; `llmgw pki issue` makes both together")
    if reason in ("", "PEM_LIB", "UNSUPPORTED") or isinstance(error, ValueError):
        return _bad(files.key, f"must be a private key in PEM form; {_AGAIN}")
    return _bad(files.certificate, f"cannot be used ({_reason(error)}); {_AGAIN}")


class _WithPassword(ValueError):
    """OpenSSL asked for the password of a key."""


def _no_password() -> str:
    raise _WithPassword


def _reason(error: Exception) -> str:
    return str(getattr(error, "reason", None) or error).replace("_", " ").lower()


def _bad(path: Path, rule: str, found: str = "") -> BadConfig:
    return BadConfig(str(path), None, "", rule, found)


def _unreadable(path: Path, error: OSError) -> BadConfig:
    fact = f"cannot be read: {(error.strerror or str(error)).lower()}"
    if isinstance(error, PermissionError):
        return _bad(path, f"{fact}; it must be readable for the user that runs this")
    return _bad(path, f"{fact}; {_ELSE}")


def _check_places(files: TlsFiles) -> None:
    if pem.swapped(files):
        raise _bad(files.certificate, "is a private key: tls.certificate and tls.key are swapped; exchange the two")
    _check_key_mode(files.key)


def _read(path: Path) -> tuple[bytes, int]:
    try:
        return read(path)
    except Unfit as unfit:
        raise _bad(path, f"{unfit}; {_ELSE}") from None
    except OSError as error:
        raise _unreadable(path, error) from None


def _check_key_mode(path: Path) -> None:
    _, mode = _read(path)
    if mode & 0o077:
        raise _bad(path, "a private key must be for its owner only (chmod 600)", f"mode {mode:04o}")


def certificates(path: Path) -> list[bytes]:
    """The certificates of a PEM file in DER form, at least one; BadConfig when it is unreadable or not such a file."""
    content, _ = _read(path)
    pem = content.decode("latin-1")  # text between the certificates may be in any script
    blocks = re.findall("-----BEGIN CERTIFICATE-----.*?-----END CERTIFICATE-----", pem, re.DOTALL)
    try:
        if not blocks or len(blocks) != pem.count("-----BEGIN CERTIFICATE-----"):
            raise der.NotACertificate("no whole certificate")
        found = [ssl.PEM_cert_to_DER_cert(block) for block in blocks]
        for one in found:
            der.certificate(one)
    except ValueError:
        raise _bad(path, f"must hold whole certificates in PEM form; {_AGAIN}") from None
    return found


def own_identity(files: TlsFiles) -> Identity:
    """Whom our own certificate speaks for; BadConfig when it is unreadable, out of date or names nobody."""
    _check_places(files)
    own = der.certificate(certificates(files.certificate)[0])
    now = datetime.now(UTC)
    here = f"it is {der.when(now)} here"
    if now > own.not_after:
        raise _bad(files.certificate, f"expired on {der.when(own.not_after)}; {here}; issue a new one")
    if now < own.not_before:
        raise _bad(files.certificate, f"is not valid before {der.when(own.not_before)}; {here}; set the clock right")
    try:
        return _who(own)
    except ValueError as bad:
        raise _bad(files.certificate, f"names nobody: {bad}; issue one with `llmgw pki issue`") from None


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
