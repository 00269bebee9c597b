"""How large is a file that an index lists without its size, and what may be said of its address?"""

import asyncio
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from urllib.parse import unquote, urlsplit, urlunsplit

import aiohttp

from llmgw.core.engines.orders import ReleaseFile
from llmgw.core.units import GIB, Bytes

_LIMIT = aiohttp.ClientTimeout(total=60, connect=15)
_ARCHIVE_LIMIT = aiohttp.ClientTimeout(total=600, connect=15, sock_read=60)
_AT_ONCE = 8
MOST_INTERPRETER = GIB


class Unsized(Exception):
    """A server does not say what must be known of a file; the text is one line."""


def public(url: str) -> str:
    """The address as nodes may be told it: without user, password and fragment; empty when it is on this machine."""
    parts = urlsplit(url)
    return urlunsplit((parts.scheme, _host(parts.netloc), parts.path, parts.query, "")) if _served(url) else ""


def secretless(url: str) -> str:
    """The address as it may be shown."""
    parts = urlsplit(url)
    return urlunsplit((parts.scheme, _host(parts.netloc), parts.path, "", ""))


def _host(netloc: str) -> str:
    return netloc.rpartition("@")[2]


def _served(url: str) -> bool:
    return urlsplit(url).scheme in ("http", "https")


async def measure(
    files: Sequence[ReleaseFile], interpreters: Sequence[str], indexes: Sequence[str]
) -> list[ReleaseFile]:
    """Return the files with their sizes, and the interpreters, which are read whole for their digests. Raises Unsized.

    `indexes` are addresses whose user and password their own hosts are told.
    """
    secrets = {_host(urlsplit(one).netloc): _secret(one) for one in indexes if "@" in urlsplit(one).netloc}
    turns = asyncio.Semaphore(_AT_ONCE)
    async with aiohttp.ClientSession(trust_env=True) as session:
        found = await asyncio.gather(
            *(_sized(session, file, secrets, turns) for file in files),
            *(_interpreter(session, url, secrets, turns) for url in interpreters),
        )
    return list(found)


def _secret(url: str) -> str:
    parts = urlsplit(url)
    return aiohttp.encode_basic_auth(unquote(parts.username or ""), unquote(parts.password or ""), encoding="utf-8")


def _headers(url: str, secrets: Mapping[str, str]) -> dict[str, str]:
    secret = secrets.get(urlsplit(url).netloc)
    return {"Accept-Encoding": "identity"} | ({"Authorization": secret} if secret else {})


async def _sized(
    session: aiohttp.ClientSession,
    file: ReleaseFile,
    secrets: dict[str, str],
    turns: asyncio.Semaphore,
) -> ReleaseFile:
    if file.size:
        return file
    if not file.url:
        raise Unsized(f"{file.name}: neither its size nor its address is known")
    headers = _headers(file.url, secrets)
    try:
        async with (
            turns,
            session.head(file.url, allow_redirects=True, timeout=_LIMIT, headers=headers) as answer,
        ):
            length = answer.headers.get("Content-Length", "")
            if answer.status != 200 or not length.isdecimal() or not int(length):
                raise Unsized(f"{file.url}: answered {answer.status}, with no size")
    except (aiohttp.ClientError, TimeoutError) as error:
        raise Unsized(f"{file.url}: its size cannot be asked for: {error or 'no answer in time'}") from None
    return replace(file, size=Bytes(int(length)))


async def _interpreter(
    session: aiohttp.ClientSession, url: str, secrets: dict[str, str], turns: asyncio.Semaphore
) -> ReleaseFile:
    shown, digest, count = public(url), hashlib.sha256(), 0
    own = {_host(urlsplit(url).netloc): _secret(url)} if "@" in urlsplit(url).netloc else {}
    try:
        async with (
            turns,
            session.get(shown, timeout=_ARCHIVE_LIMIT, headers=_headers(shown, {**secrets, **own})) as answer,
        ):
            if answer.status != 200:
                raise Unsized(f"{shown}: answered {answer.status}")
            async for piece in answer.content.iter_chunked(1 << 18):
                digest.update(piece)
                count += len(piece)
                if count > MOST_INTERPRETER:
                    raise Unsized(f"{shown}: is larger than 1 GiB, so no Python")
    except (aiohttp.ClientError, TimeoutError, ValueError) as error:
        raise Unsized(f"{shown or url!r}: cannot be read: {error or 'no answer in time'}") from None
    name = unquote(urlsplit(shown).path.rpartition("/")[2])
    return ReleaseFile(name=name, size=Bytes(count), digest=f"sha256:{digest.hexdigest()}", url=shown)
