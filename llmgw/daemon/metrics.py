"""Who may ask for figures, and what does asking cost? An HTTP listener for a monitoring system, plain and bounded.

    GET /metrics ─▶ the page of the last second, or a new one: views of nodes and models, a few at a time

It is opened only where server.yaml says `metrics:`; nothing else imports this module, or the libraries it takes.
"""

import asyncio
import logging
from asyncio import TimerHandle, Transport
from collections.abc import AsyncIterator, Awaitable, Callable
from itertools import islice
from typing import Any

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError
from aiohttp.web_protocol import RequestHandler
from prometheus_client.exposition import CONTENT_TYPE_LATEST

from llmgw import __version__
from llmgw.config.address import Address
from llmgw.core.cluster import Cluster
from llmgw.core.hosts import is_loopback
from llmgw.core.views import EngineView, ModelView, NodeView, Noun
from llmgw.daemon import gauges
from llmgw.daemon.gauges import Samples
from llmgw.daemon.listen import opened

log = logging.getLogger(__name__)

Answers = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]

CONNECTIONS = 16
"""Served at once; one more is closed."""
SECONDS = 10.0
"""That a connection may last, from its first byte to its last."""
HEAD = 8 << 10
"""Bytes of a request's first line, and of one header."""
HEADERS = 64
FRESH = 1.0
"""Seconds that a page is given out again."""
_SLICE = 200
"""Samples that are written before others get their turn: about 4 ms."""
_GRACE = 0.5
"""Seconds that answers under way have when the control plane stops."""


class Page:
    """The page of all figures, made at most once in `FRESH` seconds."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._made = b""
        self._until = float("-inf")
        self._making = asyncio.Lock()

    async def read(self) -> bytes:
        """The page as it is now, or was a moment ago. Who asks while it is made waits for it."""
        async with self._making:
            loop = asyncio.get_running_loop()
            if loop.time() >= self._until:
                self._made = await self._make()
                self._until = loop.time() + FRESH
            return self._made

    async def _make(self) -> bytes:
        text = gauges.Text()
        text.add(gauges.of_cluster(__version__, self._cluster.settled))
        for noun in (Noun.NODES, Noun.MODELS):
            for name in self._cluster.names(noun):
                samples = iter(self._samples(noun, name))
                while some := list(islice(samples, _SLICE)):
                    text.add(some)
                    await asyncio.sleep(0)
        text.add(gauges.of_engines([view async for view in self._engines()]))
        return text.whole()

    async def _engines(self) -> AsyncIterator[EngineView]:
        """All engines on all nodes, with turns for others."""
        for count, name in enumerate(self._cluster.names(Noun.ENGINES)):
            if count % _SLICE == 0:
                await asyncio.sleep(0)
            view = self._cluster.view(Noun.ENGINES, name)
            if isinstance(view, EngineView):
                yield view

    def _samples(self, noun: Noun, name: str) -> Samples:
        match self._cluster.view(noun, name):
            case NodeView() as node:
                return gauges.of_node(node)
            case ModelView() as model:
                return gauges.of_model(model)
            case _:
                return ()  # it went while the page was made


class _Server(web.Server):
    """aiohttp's server with a bound on connections and on how long each lasts."""

    def __init__(self, answer: Answers, **bounds: Any) -> None:
        super().__init__(answer, **bounds)
        self._timers: dict[RequestHandler, TimerHandle] = {}

    def connection_made(self, handler: RequestHandler, transport: Transport) -> None:
        """Somebody connected."""
        if len(self._timers) >= CONNECTIONS:
            transport.abort()
        else:
            self._timers[handler] = asyncio.get_running_loop().call_later(SECONDS, transport.abort)
        super().connection_made(handler, transport)

    def connection_lost(self, handler: RequestHandler, exc: BaseException | None = None) -> None:
        """Somebody is gone."""
        if (timer := self._timers.pop(handler, None)) is not None:
            timer.cancel()
        super().connection_lost(handler, exc)


class Metrics:
    """The listener; `open` makes one."""

    def __init__(self, page: Page) -> None:
        self._page = page
        self._server = _Server(
            self._answer,
            access_log=None,
            logger=_logger(),
            max_line_size=HEAD,
            max_field_size=HEAD,
            max_headers=HEADERS,
            lingering_time=0.0,
        )
        self._listener: asyncio.Server | None = None
        self.port = 0

    @classmethod
    async def open(cls, at: Address, cluster: Cluster) -> "Metrics":
        """Listen, or raise CannotListen."""
        made = cls(Page(cluster))
        listener = opened(at, "metrics")
        made.port = listener.getsockname()[1]
        made._listener = await asyncio.get_running_loop().create_server(made._server, sock=listener)
        where = Address(at.host, made.port)
        log.info("figures at http://%s/metrics", where)
        if not is_loopback(listener.getsockname()[0]):
            log.warning("metrics: %s is read in plain HTTP by whoever reaches it, with the nodes' names", where)
        return made

    async def close(self) -> None:
        """Let answers under way end, for a moment."""
        if self._listener is not None:
            self._listener.close()
        self._server.pre_shutdown()
        await self._server.shutdown(_GRACE)

    async def _answer(self, request: web.BaseRequest) -> web.StreamResponse:
        if request.path != "/metrics":
            answer = web.Response(status=404, text="figures are at /metrics\n")
        elif request.method not in ("GET", "HEAD"):
            answer = web.Response(status=405, text="only GET\n", headers={"Allow": "GET, HEAD"})
        else:
            answer = web.Response(body=await self._page.read(), headers={"Content-Type": CONTENT_TYPE_LATEST})
        answer.headers["Server"] = "llmgwd"
        answer.force_close()
        return answer


class _OursOnly(logging.Filter):
    """What a client got wrong is answered, and no news for our log."""

    def filter(self, record: logging.LogRecord) -> bool:
        return not (record.exc_info and isinstance(record.exc_info[1], HttpProcessingError))


def _logger() -> logging.Logger:
    http = log.getChild("http")
    if not http.filters:
        http.addFilter(_OursOnly())
    return http
