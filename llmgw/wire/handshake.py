"""A TLS handshake that fails: the peer still gets the alert, and our side learns at once why and what was shown."""

import asyncio
import ssl
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

NOT_TLS = {"WRONG_VERSION_NUMBER", "HTTP_REQUEST", "UNEXPECTED_MESSAGE", "RECORD_LAYER_FAILURE", "UNKNOWN_PROTOCOL"}
"""Reasons that OpenSSL gives for bytes that are no TLS."""

_TO_FLUSH = 0.1


class Handshake:
    """One handshake; `error` is None until it failed.

    `failed` is called once, with the error and the seconds after which the connection is to be closed: none where the
    peer would understand no alert, else a moment in which it can fetch it (closing with bytes unread takes it back).
    """

    def __init__(self, failed: Callable[[ssl.SSLError, float], None]) -> None:
        self.error: ssl.SSLError | None = None
        self.chain: list[bytes] = []
        """The peer's certificates in DER form, the leaf first, as far as they are known; verified they are not."""
        self._failed = failed

    def fail(self, error: ssl.SSLError, chain: list[bytes]) -> None:
        """Note the failure."""
        self.error, self.chain = error, chain
        self._failed(error, 0.0 if error.reason in NOT_TLS else _TO_FLUSH)


_WATCHED: ContextVar[Handshake | None] = ContextVar("handshake", default=None)


@contextmanager
def watched(handshake: Handshake) -> Iterator[None]:
    """Connections that are made within report here: the event loop hides the reason behind the connection's end."""
    token = _WATCHED.set(handshake)
    try:
        yield
    finally:
        _WATCHED.reset(token)


def hasten(deadline: asyncio.Timeout, seconds: float) -> None:
    """Let the deadline be in so many seconds, unless it is over already."""
    if not deadline.expired():
        deadline.reschedule(asyncio.get_running_loop().time() + seconds)


class TellingTls(ssl.SSLObject):
    """A handshake that fails only after the alert was sent.

    The event loop drops the connection with the alert still in its buffer, so that a peer would never learn why it was
    refused. Asking for more input first makes it flush; whoever watches then closes the connection.
    """

    _failure: ssl.SSLError | None = None

    def do_handshake(self) -> None:
        """As documented, but for the delay."""
        if self._failure is not None:
            raise self._failure
        try:
            super().do_handshake()
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            raise
        except ssl.SSLError as failure:
            watching = _WATCHED.get()
            if watching is None and not self.server_side:
                raise
            self._failure = failure
            if watching is not None:
                watching.fail(failure, self._shown())
            raise ssl.SSLWantReadError from None

    def _shown(self) -> list[bytes]:
        """What OpenSSL has of the peer's chain: as a client what was sent, as a server what it could put together."""
        inner = self._sslobj  # type: ignore[attr-defined]  # public from Python 3.13 on
        chain = inner.get_unverified_chain() or inner.get_verified_chain() or []
        return [ssl.PEM_cert_to_DER_cert(one.public_bytes()) for one in chain]
