"""Where do the console's views come from?

One watch of everything, for as long as the console runs. When it breaks, the last view stays, marked stale, and the
next watch's snapshot replaces it. A flood of changes becomes at most ten views a second.
"""

import asyncio
import importlib
import random
import time
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TypeVar

from llmgw.config.client import ClientConfig
from llmgw.config.tls import TlsFiles
from llmgw.core.errors import ControlUnreachable, LlmgwError
from llmgw.core.safe import Safe, safe
from llmgw.core.views import AboutView, Done, Noun, Why
from llmgw.tui.builder import EVENTS_HELD, Builder
from llmgw.tui.view import Link, View

if TYPE_CHECKING:
    from llmgw.client import ControlClient

T = TypeVar("T")

PAUSE = 0.1
"""Seconds between two views at least."""
BEAT = 5.0
"""Seconds between two questions that prove that the other end still answers: a watch alone may be silent for hours."""
ANSWER = 5.0
"""Seconds that an answer may take."""
BACKOFF = (0.25, 5.0)
"""The first wait before another attempt, and the longest."""


class LiveFeed:
    """A feed from a control plane."""

    def __init__(self, where: ClientConfig) -> None:
        """Raises BadConfig when the TLS files cannot be used."""
        if where.tls is not None:
            _check(where.tls)
        self.where = _place(where)
        self._config = where
        self._client: ControlClient | None = None
        self._builder = Builder()
        self._about: AboutView | None = None
        self._ahead = time.time() - time.monotonic()
        self._link, self._since, self._problem = Link.CONNECTING, self.now(), safe("")
        self._news = asyncio.Event()
        self._came = False

    def now(self) -> float:
        """The control plane's clock at its last word, moved on by ours."""
        return time.monotonic() + self._ahead

    async def run(self, tell: Callable[[View], None]) -> None:
        """Watch, and watch again when that broke, for ever."""
        # Not at the top: a third of what stands between a command line and its first frame. Aside, so that keys and
        # drawing go on meanwhile.
        await asyncio.to_thread(importlib.import_module, "llmgw.client")
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._publish(tell))
            tasks.create_task(self._keep_watching(tasks))

    async def why(self, model: str) -> Why:
        """Ask the control plane; ControlUnreachable while there is none."""
        return await self._soon(self._connected().why_model(model))

    async def scale(self, model: str, replicas: int) -> Done:
        """Ask the control plane; ControlUnreachable while there is none."""
        return await self._soon(self._connected().scale_model(model, replicas))

    async def retry(self, node: str, engine: str) -> Done:
        """Ask the control plane; ControlUnreachable while there is none."""
        return await self._soon(self._connected().retry_engine(node, engine))

    async def _soon(self, answer: Awaitable[T]) -> T:
        try:
            async with asyncio.timeout(ANSWER):
                return await answer
        except TimeoutError:
            raise ControlUnreachable(self.where, f"no answer for {ANSWER:.0f} seconds") from None

    def _connected(self) -> "ControlClient":
        if self._client is None:
            raise ControlUnreachable(self.where, "not connected", self._problem or "still connecting")
        return self._client

    async def _publish(self, tell: Callable[[View], None]) -> None:
        while True:
            await self._news.wait()
            self._news.clear()
            tell(self._builder.view(self._about, self._link, self._since, self._problem))
            await asyncio.sleep(PAUSE)

    async def _keep_watching(self, tasks: asyncio.TaskGroup) -> None:
        wait = BACKOFF[0]
        while True:
            self._came = False
            # In a task of its own: when this one is cancelled while the stream breaks, the group in there raises only
            # the break, and on Python 3.11 it also leaves its task marked as cancelled. Here the mark can be trusted.
            self._lost(await tasks.create_task(self._watch()))
            if (task := asyncio.current_task()) is not None and task.cancelling():
                raise asyncio.CancelledError
            wait = BACKOFF[0] if self._came else min(2 * wait, BACKOFF[1])
            await asyncio.sleep(wait * random.uniform(0.7, 1.3))

    async def _watch(self) -> LlmgwError:
        """Watch until the stream breaks, and return why it did."""
        from llmgw.client import ControlClient

        why: list[LlmgwError] = []
        try:
            async with ControlClient.open(self._config) as client, asyncio.TaskGroup() as tasks:
                self._client = client
                tasks.create_task(self._pages(client))
                tasks.create_task(self._beats(client))
        except* LlmgwError as group:
            why.append(_first(group))
        finally:
            self._client = None
        return why[0]

    async def _pages(self, client: "ControlClient") -> None:
        async for page in client.watch(list(Noun), follow=True, events=EVENTS_HELD):
            self._ahead = page.now - time.monotonic()
            if not self._builder.take(page):
                continue
            if self._link is not Link.LIVE:
                self._link, self._since, self._problem, self._came = Link.LIVE, self.now(), safe(""), True
            self._news.set()
        raise ControlUnreachable(self.where, "it ended the stream")

    async def _beats(self, client: "ControlClient") -> None:
        while True:
            about = await self._soon(client.about())
            if self._about is None or (about.settled, about.exposure) != (self._about.settled, self._about.exposure):
                self._news.set()
            self._about = about
            await asyncio.sleep(BEAT)

    def _lost(self, error: LlmgwError) -> None:
        if self._link is Link.LIVE:
            self._link, self._since = Link.STALE, self.now()
        self._problem = safe(str(error))
        self._news.set()


def _check(files: TlsFiles) -> None:
    """Find before a screen is taken what no dialling would get over; BadConfig."""
    from llmgw.wire.tls import client_context, own_identity

    client_context(files)
    own_identity(files)


def _place(where: ClientConfig) -> Safe:
    if where.socket is not None:
        return safe(f"{where.socket}  local socket")
    return safe(f"{' '.join(str(address) for address in where.server)}  mTLS")


def _first(group: BaseExceptionGroup[LlmgwError]) -> LlmgwError:
    error = group.exceptions[0]
    return _first(error) if isinstance(error, BaseExceptionGroup) else error
