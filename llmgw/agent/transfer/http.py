"""How does a file come over HTTP? From any offset on where the server can, whatever it redirects to, within bounds."""

import asyncio
import re
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from typing import TYPE_CHECKING
from urllib.parse import quote, urlsplit, urlunsplit

from llmgw import __version__
from llmgw.agent.transfer.source import Flow, Patience, steady
from llmgw.agent.transfer.trouble import Cut, SourceFailed
from llmgw.core.engines.orders import ReleaseFile
from llmgw.core.units import several
from llmgw.host.pause import wanted_pause
from llmgw.host.reason import reason

if TYPE_CHECKING:  # half a second that an agent with all its engines in place never needs
    from aiohttp import ClientResponse, ClientSession
    from yarl import URL

REDIRECTS = 5
"""At most, for one answer."""
_BUFFER = 256 << 10
_RANGE = re.compile(r"bytes ([0-9]{1,19})-([0-9]{1,19})/([0-9]{1,19}|\*)\Z")
_MOVED = {301, 302, 303, 307, 308}
_ASKS_TO_WAIT = {403, 429, 503}


class UrlSource:
    """A file at an address of its own; by the proxy that the environment names, where it names one."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._tag = ""
        """Of what came so far: something else in its place is noticed at once."""

    @property
    def name(self) -> str:
        """The address, without what may be secret in it."""
        return shown(self._url)

    @asynccontextmanager
    async def open(self, file: ReleaseFile, offset: int, patience: Patience) -> AsyncIterator[Flow]:
        """Ask for the file from `offset` on; raises SourceFailed."""
        async with AsyncExitStack() as stack:
            session = await stack.enter_async_context(_session(patience))

            async def ask(offset: int) -> "ClientResponse":
                answer = await self._asked(session, offset, patience)
                stack.callback(answer.close)  # the connection with it: what is left is not read to keep it
                return answer

            async with _in_words(patience):
                answer, begins = await self._answered(ask, file, offset)
            came = await stack.enter_async_context(aclosing(_blocks(answer)))
            blocks = await stack.enter_async_context(aclosing(steady(came, patience)))
            yield Flow(begins, blocks)

    async def _answered(
        self, ask: "Callable[[int], Awaitable[ClientResponse]]", file: ReleaseFile, offset: int
    ) -> "tuple[ClientResponse, int]":
        """The answer with the file, and from where on it is."""
        answer = await ask(offset)
        if offset and answer.status != 200 and not _goes_on(answer, offset):
            offset = 0
            answer = await ask(0)
        if answer.status == 200:
            offset = 0
        _judge(answer, file, offset)
        self._tag = answer.headers.get("ETag", "")
        return answer, offset

    async def _asked(self, session: "ClientSession", offset: int, patience: Patience) -> "ClientResponse":
        from yarl import URL

        url = URL(self._url)
        for _ in range(REDIRECTS + 1):
            async with asyncio.timeout(patience.idle):
                answer = await session.get(url, headers=self._headers(offset), allow_redirects=False)
            if answer.status not in _MOVED:
                return answer
            to = answer.headers.get("Location", "")
            answer.close()
            url = _redirected(url, to)
        raise SourceFailed(f"it redirects more than {several(REDIRECTS, 'time')}")

    def _headers(self, offset: int) -> dict[str, str]:
        if not offset:
            return {}
        strong = self._tag.startswith('"')
        return {"Range": f"bytes={offset}-"} | ({"If-Range": self._tag} if strong else {})


class MirrorSource(UrlSource):
    """The same file in a directory of mirrored ones: `BASE/ENGINE/VERSION/NAME`."""

    def __init__(self, base: str, engine: str, version: str, name: str) -> None:
        super().__init__("/".join([base.rstrip("/"), *(quote(part, safe="") for part in (engine, version, name))]))

    @property
    def name(self) -> str:
        """The address, and that it is the mirror's."""
        return f"mirror {super().name}"


def shown(url: str) -> str:
    """An address without user, password, query and fragment."""
    try:
        parts = urlsplit(url)
        return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))[:200]
    except ValueError:
        return "an address that is none"


# --- asking ------------------------------------------------------------------------------------------------------


def _session(patience: Patience) -> "ClientSession":
    import aiohttp

    return aiohttp.ClientSession(
        timeout=aiohttp.ClientTimeout(total=None, sock_connect=patience.connect),
        headers={"Accept-Encoding": "identity", "User-Agent": f"llmgw-agent/{__version__}"},
        auto_decompress=False,  # the digest is of the bytes as they are stored
        cookie_jar=aiohttp.DummyCookieJar(),
        read_bufsize=_BUFFER,
        trust_env=True,
    )


def _redirected(url: "URL", to: str) -> "URL":
    from yarl import URL

    try:
        there = url.join(URL(to, encoded=True))  # signed addresses are not to be spelled anew
    except ValueError:
        raise SourceFailed("it redirects to what is no address") from None
    if not to or there.scheme not in ("http", "https") or not there.host:
        raise SourceFailed("it redirects to what is no address of HTTP")
    if url.scheme == "https" and there.scheme == "http":
        raise SourceFailed(f"it redirects from https down to {shown(str(there))}")
    return there if there.origin() == url.origin() else there.with_user(None)


def _goes_on(answer: "ClientResponse", offset: int) -> bool:
    """Whether the answer to a question for a range is that range, or says no to the file itself."""
    if answer.status == 206:
        match = _RANGE.match(answer.headers.get("Content-Range", ""))
        return match is not None and int(match[1]) == offset
    return answer.status != 416


def _judge(answer: "ClientResponse", file: ReleaseFile, offset: int) -> None:
    """SourceFailed unless the answer is the file from `offset` on, as far as its head tells."""
    if answer.status != (206 if offset else 200):
        said = f" {answer.reason[:60]}" if answer.reason and answer.reason.isprintable() else ""
        raise SourceFailed(f"it answers {answer.status}{said}", _asked_to_wait(answer))
    has = answer.content_length
    if offset:
        match = _RANGE.match(answer.headers.get("Content-Range", ""))
        assert match is not None  # by _goes_on
        has = None if match[3] == "*" else int(match[3])
    if has is not None and has != file.size:
        raise SourceFailed(f"the file has {has} bytes there, not {file.size}")


def _asked_to_wait(answer: "ClientResponse") -> float | None:
    """Seconds until it may be asked again, where it says so."""
    return wanted_pause(answer.headers, time.time()) if answer.status in _ASKS_TO_WAIT else None


# --- reading -----------------------------------------------------------------------------------------------------


async def _blocks(answer: "ClientResponse") -> AsyncGenerator[bytes, None]:
    import aiohttp

    try:
        while block := await answer.content.readany():
            yield block
    except (aiohttp.ClientError, OSError) as error:
        # What came before the end would be dropped: its own methods raise first, and give the rest to nobody.
        if rest := answer.content._read_nowait(-1):
            yield rest
        raise Cut(f"it broke off: {_words(error)}") from None


@asynccontextmanager
async def _in_words(patience: Patience) -> AsyncIterator[None]:
    """What may go wrong before the file's first byte."""
    import aiohttp

    try:
        yield
    except aiohttp.ServerDisconnectedError:
        raise Cut("it closed the connection without an answer") from None
    except aiohttp.ConnectionTimeoutError:
        raise SourceFailed(f"no connection within {patience.connect:g} s") from None
    except TimeoutError:
        raise SourceFailed(f"no answer within {patience.idle:g} s") from None
    except (aiohttp.ClientError, OSError, ValueError) as error:
        raise SourceFailed(_words(error)) from None


def _words(error: Exception) -> str:
    import aiohttp

    match error:
        case aiohttp.ClientConnectorCertificateError():
            return f"its certificate is not trusted: {_line(getattr(error.certificate_error, 'verify_message', ''))}"
        case aiohttp.ClientConnectorDNSError():
            return "its host name is not known"
        case aiohttp.ClientConnectorError():
            return reason(error.os_error)
        case aiohttp.NonHttpUrlClientError() | ValueError():
            return "it is no address of HTTP"
        case aiohttp.ClientPayloadError():
            return "the connection was closed"
        case aiohttp.ClientOSError() | OSError():
            return reason(error)
    return _line(str(error) or type(error).__name__)


def _line(text: str) -> str:
    return "".join(char if char.isprintable() else " " for char in text)[:200].lower()
