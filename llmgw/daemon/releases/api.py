"""Which files has a release, by the API of the place where it is published?

    b10991   GET {source}/releases/tags/b10991 ─▶ assets
    v0.4.1   GET {source}/releases/tags/v0.4.1 ─▶ its nightly-tag.txt ─▶ b10485 ─▶ as above

Two requests of the API at most, of the 60 that an address has in an hour. The newest release is never asked for: what
nodes run must not change by itself. What is answered is checked as what it is, the words of a stranger.
"""

import json
import re
import time
from datetime import datetime
from typing import Any

from llmgw.core.brief import cut
from llmgw.core.engines import releases
from llmgw.core.engines.orders import EngineWish, Release, ReleaseFile
from llmgw.core.engines.terms import EngineKind
from llmgw.core.errors import BadName
from llmgw.core.units import MIB, Bytes, age
from llmgw.core.urls import is_secure, web_url
from llmgw.daemon.releases.found import NoRelease
from llmgw.daemon.releases.web import NoAnswer, Web

MOST_JSON = 8 * MIB
"""Bytes of an answer; one with 60 files has 120 kB."""
MOST_ASSETS = 1_000
UPLOADING = 600.0
"""Seconds after its publication in which a release may still lack files."""

_POINTS = "nightly-tag.txt"
"""The file of a release that points to a build: one line, its tag."""
_MOST_POINTER = 1_024
_JSON = "application/vnd.github+json"


async def release(web: Web, wish: EngineWish) -> Release:
    """The release that `wish` leads to, without pins; or NoRelease."""
    if releases.points_on(wish.version):
        return await _build(web, wish, await _pointed_to(web, wish))
    if releases.is_build(wish.version):
        return await _build(web, wish, wish.version)
    forms = "a build (b10991) or a release (v0.4.1)"
    raise NoRelease(
        f"{wish.engine} {wish.version} is not {forms}, and no mirror has it; correct version: in server.yaml"
    )


async def _build(web: Web, wish: EngineWish, tag: str) -> Release:
    said = await _asked(web, wish, tag)
    files = _archives(said, tag, wish.source)
    if not files:
        raise NoRelease(f"{_name(wish, tag)} has no archive for Linux yet; it is asked for again")
    _refuse_if_fresh(said, _name(wish, tag))
    found = Release(engine=wish.engine, version=tag, kind=EngineKind.ARCHIVE, files=tuple(files))
    try:
        return releases.checked(found)
    except ValueError as error:
        raise NoRelease(f"{_name(wish, tag)} is not described as a release is: {cut(str(error))}") from None


async def _pointed_to(web: Web, wish: EngineWish) -> str:
    """The build that a release points to."""
    said = await _asked(web, wish, wish.version)
    name = _name(wish, wish.version)
    asset = next((asset for asset in said["assets"] if asset.get("name") == _POINTS and _is_there(asset)), None)
    if asset is None:
        raise NoRelease(f"{name} has no {_POINTS} that says which build it is; name the build in server.yaml")
    try:
        content = await web.read(_url(asset, wish.source), _MOST_POINTER)
    except NoAnswer as error:
        raise NoRelease(f"{name}: {error}", seconds=error.seconds) from None
    tag = content.decode("ascii", "replace").strip()
    if not releases.is_build(tag):
        raise NoRelease(f"{name}: its {_POINTS} says {cut(tag)!r}, which is no build; name the build in server.yaml")
    return tag


# --- what is answered -------------------------------------------------------------------------------------------


async def _asked(web: Web, wish: EngineWish, tag: str) -> dict[str, Any]:
    """The description of a release: it has this tag, and a list of objects as its assets."""
    url = f"{wish.source}/releases/tags/{tag}"
    try:
        body = await web.read(url, MOST_JSON, accept=_JSON)
    except NoAnswer as error:
        if error.status == 404:
            raise NoRelease(f"{wish.source} has no release {tag}; correct version: or source: in server.yaml") from None
        way_out = (
            "" if error.status else "; without a way there use a mirror: `llmgw mirror add` on a host that has one"
        )
        raise NoRelease(f"{error}{way_out}", seconds=error.seconds) from None
    try:
        said = json.loads(body)
    except (ValueError, RecursionError):
        raise NoRelease(f"{url} is not JSON; see whether source: in server.yaml is a release API") from None
    if not isinstance(said, dict) or said.get("tag_name") != tag or said.get("draft") is True:
        raise NoRelease(f"{url} does not describe release {tag}; see whether source: in server.yaml is a release API")
    assets = said.get("assets")
    if not isinstance(assets, list) or len(assets) > MOST_ASSETS or not all(isinstance(one, dict) for one in assets):
        raise NoRelease(f"{url} has no list of at most {MOST_ASSETS} files as its assets")
    return said


def _archives(said: dict[str, Any], tag: str, source: str) -> list[ReleaseFile]:
    """The archives for Linux; NoRelease while one of them is still uploaded."""
    pattern = re.compile(rf"(cudart-)?llama-{tag}-bin-ubuntu-([a-z0-9._]+-)*[a-z0-9_]+\.tar\.gz\Z")
    wanted = [asset for asset in said["assets"] if isinstance(asset.get("name"), str) and pattern.match(asset["name"])]
    for asset in wanted:
        if not _is_there(asset):
            raise NoRelease(f"release {tag}: {asset['name']} is still being uploaded; it is asked for again")
    return [
        ReleaseFile(name=asset["name"], size=_size(asset), digest=_digest(asset.get("digest")), url=_url(asset, source))
        for asset in wanted
    ]


def _is_there(asset: dict[str, Any]) -> bool:
    return asset.get("state") == "uploaded"


def _size(asset: dict[str, Any]) -> Bytes:
    found = asset.get("size")
    if not isinstance(found, int) or isinstance(found, bool):
        raise NoRelease(f"{cut(asset['name'])}: its size is said to be {cut(repr(found))}, which is no number of bytes")
    return Bytes(found)


def _digest(found: object) -> str:
    """Empty unless it is one that we can check."""
    try:
        return releases.digest(found.lower()) if isinstance(found, str) else ""
    except BadName:
        return ""


def _url(asset: dict[str, Any], source: str) -> str:
    found = asset.get("browser_download_url")
    try:
        url = web_url(found if isinstance(found, str) else "")
    except BadName:
        url = ""
    if not url or (is_secure(source) and not is_secure(url)):
        fact = f"{cut(str(asset.get('name')))}: its address is said to be {cut(repr(found))}"
        raise NoRelease(f"{fact}, which is not where a file of {source} can be had")
    return url


def _refuse_if_fresh(said: dict[str, Any], name: str) -> None:
    """Files come one by one after the publication: what is kept for good must be all of them."""
    try:
        since = time.time() - datetime.fromisoformat(str(said.get("published_at"))).timestamp()
    except (ValueError, OverflowError, OSError):
        return
    if since < UPLOADING:
        fact = f"{name} was published {age(since)} ago, and files may still be missing"
        raise NoRelease(f"{fact}; it is asked for again", seconds=min(UPLOADING, UPLOADING - since))


def _name(wish: EngineWish, tag: str) -> str:
    return f"{wish.engine} {tag}"
