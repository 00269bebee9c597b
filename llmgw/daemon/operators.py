"""What can operators and routers ask? Each rpc converts, calls and converts; watching passes bytes through."""

import itertools
from collections.abc import Callable
from dataclasses import replace
from functools import partial

from grpclib.const import Cardinality, Handler

from llmgw import __version__
from llmgw.core.errors import BadMessage
from llmgw.core.inputs import RouterCame, RouterGone, RouterTried, ScaleModel
from llmgw.core.routes import Noted, Tried
from llmgw.core.settings import Settings
from llmgw.core.views import AboutView, Noun
from llmgw.daemon.attempts import AttemptFeed
from llmgw.daemon.brain import Brain
from llmgw.daemon.routes import RouteFeed
from llmgw.daemon.store import KEPT_EVENTS
from llmgw.daemon.watch import Hub
from llmgw.wire.convert import enum_from_wire, from_wire, to_wire
from llmgw.wire.door import BoundedStream
from llmgw.wire.operator import v1
from llmgw.wire.server import current_peer

PATIENCE = 60.0
"""Seconds that a watcher may read nothing before it loses its stream; until then it costs one page and its marks."""
MOST_WORDS = 300
"""Characters of a router's words that are kept."""


class Operators(v1.OperatorBase):
    """The operator service."""

    def __init__(
        self,
        brain: Brain,
        hub: Hub,
        routes: RouteFeed,
        attempts: AttemptFeed,
        settings: Settings,
        now: Callable[[], float],
    ) -> None:
        self._brain, self._hub, self._routes, self._attempts = brain, hub, routes, attempts
        self._settings, self._now, self._started = settings, now, now()
        self._sessions = itertools.count(1)
        self._routers = dict[tuple[str, str], int]()
        """Sessions of routers, by the router's name and its stream's."""

    async def about(self, message: v1.AboutRequest) -> v1.AboutView:
        """Say who answers, and how the cluster is."""
        view = AboutView(
            cluster=self._settings.cluster,
            version=__version__,
            revision=self._brain.cluster.revision,
            now=self._now(),
            started=self._started,
            settled=self._brain.cluster.settled,
            exposure=self._settings.exposure.value,
        )
        return to_wire(view, v1.AboutView)

    async def why_model(self, message: v1.WhyModelRequest) -> v1.Why:
        """Say what each node answers to one more replica."""
        return to_wire(self._brain.cluster.why(message.model, self._now()), v1.Why)

    async def scale_model(self, message: v1.ScaleModelRequest) -> v1.Done:
        """Want another number of replicas; the answer means that it is on disk."""
        act = ScaleModel(model=message.model, replicas=message.replicas, by=str(current_peer().identity))
        return to_wire(await self._brain.ask(act), v1.Done)

    async def report_attempt(self, message: v1.ReportAttemptRequest) -> v1.Noted:
        """Hear whether a router reaches a node."""
        if message.tried is None:
            raise BadMessage("ReportAttemptRequest", "tried", "is missing")
        tried = from_wire(message.tried, Tried)
        tried = replace(tried, error=tried.error[:MOST_WORDS])
        session = self._routers.get((current_peer().identity.name, tried.stream))
        if session is not None:  # else its stream ended meanwhile
            await self._brain.tell(RouterTried(session=session, tried=tried))
        return to_wire(Noted(), v1.Noted)

    def __mapping__(self) -> dict[str, Handler]:
        """The rpcs by path; those that watch send bytes that were encoded once for all readers."""
        service, kind = "/operator.v1.Operator/", Cardinality.UNARY_STREAM
        return super().__mapping__() | {
            service + "Watch": Handler(self._watch, kind, v1.WatchRequest, v1.Page),
            service + "WatchRoutes": Handler(self._watch_routes, kind, v1.WatchRoutesRequest, v1.Routes),
            service + "WatchAttempts": Handler(self._watch_attempts, kind, v1.WatchAttemptsRequest, v1.Attempt),
        }

    async def _watch(self, stream: BoundedStream[v1.WatchRequest, v1.Page]) -> None:
        request = await stream.recv_message()
        if request is None or not request.nouns:
            raise BadMessage("WatchRequest", "nouns", "must name at least one")
        nouns = frozenset(enum_from_wire(noun, Noun) for noun in request.nouns)
        events = min(request.events, KEPT_EVENTS)
        await self._hub.watch(
            nouns, partial(stream.send_message, timeout=PATIENCE), follow=request.follow, events=events
        )

    async def _watch_routes(self, stream: BoundedStream[v1.WatchRoutesRequest, v1.Routes]) -> None:
        await stream.recv_message()
        await self._routes.watch(partial(stream.send_message, timeout=PATIENCE))

    async def _watch_attempts(self, stream: BoundedStream[v1.WatchAttemptsRequest, v1.Attempt]) -> None:
        """A router is there for as long as this call is."""
        await stream.recv_message()
        session, router = next(self._sessions), stream.peer.identity.name
        with self._attempts.reading() as attempts:
            self._routers[router, attempts.stream] = session
            try:
                await self._brain.tell(RouterCame(session=session, router=router))
                await attempts.send_each(partial(stream.send_message, timeout=PATIENCE))
            finally:
                del self._routers[router, attempts.stream]
                self._brain.note(RouterGone(session=session))
