"""Would the other end of a connection take our certificate? A handshake in memory judges it as a peer of ours does.

So chain, usages, constraints and key are looked at by the rules that hold on the wire, and without one.
"""

import ssl

from llmgw.config.tls import TlsFiles
from llmgw.core.errors import PeerNotTrusted
from llmgw.wire import der, tls
from llmgw.wire.strangers import EXPIRED, NOT_YET, UNKNOWN_ISSUER

_MOST_TURNS = 10

STRANGE = "it does not come from the authority in {}, by way of the certificates below it"
"""Why a certificate is refused that no chain leads to; {} is the authority's file."""


def refusal(files: TlsFiles, *, serves: bool) -> str:
    """Why a peer with the same authority would refuse us, empty when it would not; dates are not looked at.

    `serves`: the certificate is for listening, else for dialling. Raises BadConfig when a file cannot be used.
    """
    client, server = tls.client_context(files), tls.server_context(files)
    client.check_hostname = False
    (server if serves else client).verify_mode = ssl.CERT_NONE
    try:
        shown = _shaken(client, server, serves=serves)
    except ssl.SSLCertVerificationError as error:
        return _in_words(error, files)
    except ssl.SSLError as error:
        return f"a handshake with it fails: {(error.reason or str(error)).replace('_', ' ').lower()}"
    try:
        tls.peer_identity(shown, der.SERVER_AUTH if serves else der.CLIENT_AUTH, "")
    except PeerNotTrusted as error:
        return error.fact
    return ""


def _in_words(error: ssl.SSLCertVerificationError, files: TlsFiles) -> str:
    if error.verify_code in (EXPIRED, NOT_YET):
        return ""
    if error.verify_code in UNKNOWN_ISSUER:
        return STRANGE.format(files.authority)
    return f"peers will refuse it: {error.verify_message}"


def _shaken(client: ssl.SSLContext, server: ssl.SSLContext, *, serves: bool) -> bytes:
    """Shake hands; returns the certificate (DER) that was judged, or raises ssl.SSLError."""
    up, down = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = [client.wrap_bio(down, up), server.wrap_bio(up, down, server_side=True)]
    for _ in range(_MOST_TURNS):
        for end in ends:
            try:
                end.do_handshake()
            except ssl.SSLWantReadError:
                continue
    return ends[0 if serves else 1].getpeercert(binary_form=True) or b""
