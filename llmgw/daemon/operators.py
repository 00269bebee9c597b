"""What can operators and routers ask? Each rpc converts, calls and converts; watching passes bytes through."""

from collections.abc import Callable
from functools import partial

from grpclib.const import Cardinality, Handler

from llmgw import __version__
from llmgw.core.errors import BadMessage
from llmgw.core.inputs import ScaleModel
from llmgw.core.settings import Settings
from llmgw.core.views import AboutView, Noun
from llmgw.daemon.brain import Brain
from llmgw.daemon.routes import RouteFeed
from llmgw.daemon.store import KEPT_EVENTS
from llmgw.daemon.watch import Hub
from llmgw.wire.convert import enum_from_wire, to_wire
from llmgw.wire.door import BoundedStream
from llmgw.wire.operator import v1
from llmgw.wire.server import current_peer

PATIENCE = 60.0
"""Seconds that a watcher may read nothing before it loses its stream; until then it costs one page and its marks."""


class Operators(v1.OperatorBase):
    """The operator service."""

    def __init__(self, brain: Brain, hub: Hub, routes: RouteFeed, settings: Settings, now: Callable[[], float]) -> None:
        self._brain, self._hub, self._routes, self._settings, self._now = brain, hub, routes, settings, now
        self._started = now()

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

    def __mapping__(self) -> dict[str, Handler]:
        """The rpcs by path; the two that watch send bytes that were encoded once for all readers."""
        service, kind = "/operator.v1.Operator/", Cardinality.UNARY_STREAM
        return super().__mapping__() | {
            service + "Watch": Handler(self._watch, kind, v1.WatchRequest, v1.Page),
            service + "WatchRoutes": Handler(self._watch_routes, kind, v1.WatchRoutesRequest, v1.Routes),
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
