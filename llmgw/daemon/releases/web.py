"""How is a small file of a stranger's read over HTTP, within bounds on size, time and redirects?"""

import asyncio
import logging
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Self
from urllib.parse import urljoin

from llmgw import __version__
from llmgw.core.brief import cut
from llmgw.core.errors import BadName
from llmgw.core.units import size
from llmgw.core.urls import is_secure, web_url
from llmgw.host.pause import wanted_pause
from llmgw.host.reason import reason

if TYPE_CHECKING:
    from aiohttp import ClientResponse, ClientSession

log = logging.getLogger(__name__)

LIMIT = 30.0
"""Seconds that a file may take, redirects included."""
MOST_REDIRECTS = 5

_REDIRECTS = (301, 302, 303, 307, 308)
_LIMITED = (403, 429)


class NoAnswer(Exception):
    """The file was not read; the text says why in a line."""

    def __init__(self, text: str, *, status: int = 0, seconds: float | None = None) -> None:
        super().__init__(text)
        self.status = status
        """That it was answered with, 0 where there was no answer."""
        self.seconds = seconds
        """Until the source wants to be asked again, where it said so."""


class Web:
    """An async context manager. Proxies are those that the environment names."""

    def __init__(self, *, limit: float = LIMIT) -> None:
        self._limit = limit
        self._session: ClientSession | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._session is not None:
            await self._session.close()

    async def read(self, url: str, most: int, *, accept: str = "*/*") -> bytes:
        """Return the file at `url`, of at most `most` bytes, or raise NoAnswer.

        It is followed to other addresses, but never from a secure one to one that is not.
        """
        import aiohttp  # it takes memory that a control plane without questions has no use for

        try:
            async with asyncio.timeout(self._limit):
                return await self._followed(url, most, accept)
        except TimeoutError:
            raise NoAnswer(f"{cut(url)} did not answer within {self._limit:g} s") from None
        except (aiohttp.ClientError, OSError, ValueError) as error:  # ValueError: for a proxy that cannot be one
            raise NoAnswer(f"{cut(url)} was not reached: {_words(error)}") from None

    async def _followed(self, url: str, most: int, accept: str) -> bytes:
        at = url
        for _ in range(MOST_REDIRECTS + 1):
            async with self._get(at, accept) as response:
                if response.status not in _REDIRECTS:
                    return await _content(response, at, most)
                at = _target(at, response.headers.get("Location", ""))
        raise NoAnswer(f"{cut(url)} leads on more than {MOST_REDIRECTS} times")

    @asynccontextmanager
    async def _get(self, url: str, accept: str) -> "AsyncIterator[ClientResponse]":
        headers = {"Accept": accept, "Accept-Encoding": "identity", "User-Agent": f"llmgw/{__version__}"}
        async with self._opened().get(url, headers=headers, allow_redirects=False) as response:
            yield response

    def _opened(self) -> "ClientSession":
        if self._session is None:
            import aiohttp

            self._session = aiohttp.ClientSession(
                trust_env=True,
                auto_decompress=False,
                cookie_jar=aiohttp.DummyCookieJar(),
                timeout=aiohttp.ClientTimeout(total=None),  # `read` has one for all of it
            )
        return self._session


def _target(url: str, location: str) -> str:
    """Where a redirect leads, or NoAnswer."""
    try:
        target = web_url(urljoin(url, location.partition("#")[0])) if location else ""
    except (BadName, ValueError):
        target = ""
    if not target:
        raise NoAnswer(f"{cut(url)} leads on to {cut(location)!r}, which is no address to ask")
    if is_secure(url) and not is_secure(target):
        raise NoAnswer(f"{cut(url)} leads on to {cut(target)}, which is not https; it is not followed")
    return target


async def _content(response: "ClientResponse", url: str, most: int) -> bytes:
    if response.status != 200:
        raise _refused(response, url)
    if response.headers.get("Content-Encoding", "identity").lower() not in ("identity", ""):
        raise NoAnswer(f"{cut(url)} is answered compressed, which was not asked for")
    body = bytearray()
    async for piece in response.content.iter_any():
        body += piece
        if len(body) > most:
            raise NoAnswer(f"{cut(url)} is larger than {size(most)}")
    return bytes(body)


def _refused(response: "ClientResponse", url: str) -> NoAnswer:
    status, headers = response.status, response.headers
    seconds = wanted_pause(headers, time.time())
    if status in _LIMITED and seconds is not None:
        text = f"{cut(url)} takes no more requests from this address for {seconds:.0f} s (status {status})"
        return NoAnswer(text, status=status, seconds=seconds)
    return NoAnswer(f"{cut(url)} was answered with status {status}", status=status, seconds=seconds)


def _words(error: Exception) -> str:
    os_error = getattr(error, "os_error", None)
    if isinstance(os_error, OSError):
        return reason(os_error)
    return cut(" ".join(str(error).split())) or type(error).__name__
