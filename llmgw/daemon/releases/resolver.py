"""Who finds out what an engine is made of? One task per engine at a time, beside the brain, which hears the answer.

    wish ─▶ our own mirror ─▶ the wish's mirror ─▶ the release API (archives only) ─▶ ReleaseFound | ReleaseNotFound

The files of a Python engine are locked by an operator or found in a mirror: a package index says what is newest today,
not what was tried.
"""

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path

from llmgw.core.engines.orders import EngineWish, Release
from llmgw.core.engines.terms import EngineKind
from llmgw.core.hosts import is_loopback
from llmgw.core.inputs import Input, ReleaseFound, ReleaseNotFound
from llmgw.core.urls import host_of, is_secure
from llmgw.daemon.releases import api, mirror
from llmgw.daemon.releases.found import NoRelease, pinned
from llmgw.daemon.releases.web import Web

log = logging.getLogger(__name__)


class Resolver:
    """Takes wishes at any time; `run` it in one task. `own` is the mirror that llmgwd serves."""

    def __init__(self, own: Path | None) -> None:
        self._own = own
        self._waiting: dict[str, EngineWish] = {}
        self._running = set[str]()
        self._changed = asyncio.Event()

    def resolve(self, wish: EngineWish) -> None:
        """Find out the files of this engine; of several wishes for one engine that wait only the newest counts."""
        self._waiting[wish.engine] = wish
        self._changed.set()

    async def run(self, note: Callable[[Input], None]) -> None:
        """Answer wishes, to `note`, until cancelled."""
        async with asyncio.TaskGroup() as group:
            while True:
                await self._changed.wait()
                self._changed.clear()
                for engine in self._waiting.keys() - self._running:
                    self._running.add(engine)
                    group.create_task(self._answer(self._waiting.pop(engine), note), name=f"resolve {engine}")

    async def _answer(self, wish: EngineWish, note: Callable[[Input], None]) -> None:
        try:
            for answer in await self._answers(wish):
                note(answer)
        finally:
            self._running.discard(wish.engine)
            self._changed.set()

    async def _answers(self, wish: EngineWish) -> list[Input]:
        try:
            found = [pinned(release, wish.pins) for release in await self._releases(wish)]
        except NoRelease as error:
            return [ReleaseNotFound(wish=wish, problem=str(error), seconds=error.seconds)]
        except Exception as error:  # a fault of ours: others must not be kept from an answer
            log.exception("a fault of ours: %s %s could not be looked for", wish.engine, wish.version)
            problem = f"{wish.engine} {wish.version} could not be looked for: {type(error).__name__}"
            return [ReleaseNotFound(wish=wish, problem=f"{problem}; the log of llmgwd says where")]
        return [ReleaseFound(wish=wish, release=release) for release in found]

    async def _releases(self, wish: EngineWish) -> list[Release]:
        """One release or several, or NoRelease."""
        if self._own is not None and (found := await mirror.releases_in(self._own, wish)):
            return found
        _warn_if_plain(wish)
        async with Web() as web:
            if wish.mirror and (found := await mirror.releases_at(web, wish.mirror, wish)):
                return found
            if wish.kind is EngineKind.ARCHIVE:
                return [await api.release(web, wish)]
        way_out = f"add it to one, or run `llmgw ctl engine lock {wish.engine}=={wish.version}`"
        raise NoRelease(f"no mirror has {wish.engine} {wish.version}, and it is not locked; {way_out}")


def _warn_if_plain(wish: EngineWish) -> None:
    """Digests that came in plain HTTP are whoever's who stands on the way."""
    for key, url in (("mirror", wish.mirror), ("source", wish.source if wish.kind is EngineKind.ARCHIVE else "")):
        if url and not is_secure(url) and not is_loopback(host_of(url)):
            log.warning("engines: %s: %s: %s is read in plain HTTP; pin its files' digests", wish.engine, key, url)
