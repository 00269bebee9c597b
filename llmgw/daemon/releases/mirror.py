"""Which files does a mirror have of an engine? A directory says so with an index beside the files.

DIR/<engine>/<version>/release.json             one for all variants
DIR/<engine>/<version>/release-<variant>.json   one for a variant
"""

from pathlib import Path

from llmgw.core.brief import cut
from llmgw.core.engines import releases
from llmgw.core.engines.orders import EngineWish, Release
from llmgw.core.engines.terms import AUTO, EngineKind
from llmgw.core.units import MIB
from llmgw.daemon.releases.found import NoRelease
from llmgw.daemon.releases.web import NoAnswer, Web
from llmgw.host import files
from llmgw.host.reason import reason
from llmgw.host.threads import once

LIMIT = 30.0
"""Seconds that a directory has to answer: it may be on a share that does not."""
MOST_INDEX = 2 * MIB
"""Bytes of an index: what it says must fit in one message to a node."""


async def releases_in(directory: Path, wish: EngineWish) -> list[Release]:
    """The releases that a directory has for the wish, none when it has not that version; NoRelease for a bad index."""
    found = []
    for variant in _variants(wish):
        path = directory / wish.engine / wish.version / index_name(variant)
        content = await _waited(path)
        if content is not None:
            found.append(_read(content, wish, variant, str(path)))
    return found


async def releases_at(web: Web, base: str, wish: EngineWish) -> list[Release]:
    """The same of a directory that somebody serves over HTTP; NoRelease, too, when it cannot be asked."""
    found = []
    for variant in _variants(wish):
        url = f"{base}/{wish.engine}/{wish.version}/{index_name(variant)}"
        try:
            content = await web.read(url, MOST_INDEX)
        except NoAnswer as error:
            if error.status in (404, 410):
                continue
            raise NoRelease(f"mirror of {wish.engine} {wish.version}: {error}", seconds=error.seconds) from None
        found.append(_read(content, wish, variant, url))
    return found


def index_name(variant: str) -> str:
    """The name of the index of a variant, empty for that of all."""
    return f"release-{variant}.json" if variant else "release.json"


def _variants(wish: EngineWish) -> tuple[str, ...]:
    if wish.kind is EngineKind.ARCHIVE:
        return ("",)
    return tuple(one.variant for one in wish.packages if wish.variant in (AUTO, one.variant))


async def _waited(path: Path) -> bytes | None:
    try:
        return await once(path, LIMIT, _content, path)
    except TimeoutError as error:
        raise NoRelease(f"{path} {error.strerror}; is its share there?") from None


def _content(path: Path) -> bytes | None:
    """What stands in an index, None when it is not there."""
    try:
        content, _ = files.read(path, MOST_INDEX)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except files.Unfit as unfit:
        raise NoRelease(f"{path} cannot be used: it {unfit}") from None
    except OSError as error:
        raise NoRelease(f"{path} cannot be read: {reason(error)}") from None
    return content


def _read(content: bytes, wish: EngineWish, variant: str, where: str) -> Release:
    try:
        release = releases.read(content)
    except ValueError as error:
        raise NoRelease(f"{where}: {cut(str(error))}; make it again with `llmgw mirror add`") from None
    # `v0.4.1` may lead to a build, nothing else to anything but itself.
    right = release.version == wish.version or (wish.kind is EngineKind.ARCHIVE and releases.points_on(wish.version))
    if (release.engine, release.kind, release.variant) != (wish.engine, wish.kind, variant) or not right:
        words = " ".join(word for word in (release.engine, release.version, release.variant) if word)
        raise NoRelease(f"{where} describes {words}, not {wish.engine} {wish.version} {variant}".rstrip())
    return release
