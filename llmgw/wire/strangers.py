"""Why a peer got no connection, in words for the server's log: as much as the server can know."""

import ssl
from datetime import UTC, datetime

from llmgw.wire import der
from llmgw.wire.handshake import NOT_TLS
from llmgw.wire.statuses import one_line

_ALERTS = {
    "TLSV1_ALERT_UNKNOWN_CA": "it is of an authority that it does not know",
    "SSLV3_ALERT_CERTIFICATE_EXPIRED": "expired by its clock",
    "SSLV3_ALERT_CERTIFICATE_REVOKED": "revoked",
    "SSLV3_ALERT_UNSUPPORTED_CERTIFICATE": "it is not for servers",
    "SSLV3_ALERT_BAD_CERTIFICATE": "it is for other addresses, or not valid yet by its clock",
    "SSLV3_ALERT_CERTIFICATE_UNKNOWN": "it did not say why",
}
_OLD_TLS = {"UNSUPPORTED_PROTOCOL", "TLSV1_ALERT_PROTOCOL_VERSION", "UNKNOWN_SSL_VERSION"}
NOT_YET, EXPIRED = 9, 10
UNKNOWN_ISSUER = {2, 7, 18, 19, 20, 21, 30}
"""OpenSSL's codes for a chain that does not lead to an authority of ours."""


def no_connection(error: OSError, chain: list[bytes], waited: float) -> str:
    """What stood in the way; `chain` is what is known of the peer's certificates, `waited` the time for a handshake."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return _not_trusted(error, chain)
    if isinstance(error, ssl.SSLError):
        return _in_words(error)
    if isinstance(error, TimeoutError):
        return f"it did not finish the TLS handshake within {waited:g} s"
    if isinstance(error, ConnectionError):
        return "it broke the TLS handshake off"
    return f"no TLS connection: {one_line(str(error)).lower()}"


def _in_words(failure: ssl.SSLError) -> str:
    reason = failure.reason or str(failure)
    if reason in _ALERTS:
        return f"it refused our certificate: {_ALERTS[reason]}"
    if reason == "PEER_DID_NOT_RETURN_A_CERTIFICATE":
        return "it showed no certificate"
    if reason in NOT_TLS:
        return "it does not speak TLS"
    if reason in _OLD_TLS:
        return "it does not speak TLS 1.3"
    return f"no TLS connection: {one_line(reason.replace('_', ' ')).lower()}"


def _not_trusted(failure: ssl.SSLCertVerificationError, chain: list[bytes]) -> str:
    try:
        shown = [der.certificate(one) for one in chain]
    except der.NotACertificate:
        shown = []
    now = datetime.now(UTC)
    if failure.verify_code == EXPIRED:
        late = [one.not_after for one in shown if one.not_after < now]
        return "its certificate expired" + (f" on {der.when(late[0])}; it is {der.when(now)} here" if late else "")
    if failure.verify_code == NOT_YET:
        early = [one.not_before for one in shown if one.not_before > now]
        since = f" before {der.when(early[0])}; it is {der.when(now)} here" if early else " yet"
        return f"its certificate is not valid{since}"
    if failure.verify_code in UNKNOWN_ISSUER:
        issuer = f" ({one_line(shown[-1].issuer)[:80]!r})" if shown else ""
        return f"its certificate is of another authority{issuer} than ours"
    return f"its certificate is not trusted: {one_line(failure.verify_message)}"
