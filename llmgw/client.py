"""A control plane as its clients see it: one method for each rpc, values of core in and out.

What ctl, the console and the router talk through. Errors are LlmgwError: those that the control plane raised arrive as
the class they were. What few commands need is imported where it is used, so that the others start sooner.
"""

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import TYPE_CHECKING, Self, TypeVar

from llmgw.core import views
from llmgw.core.errors import BadConfig, ControlUnreachable
from llmgw.wire.channel import Channel
from llmgw.wire.convert import checked, enum_to_wire, from_wire, to_wire
from llmgw.wire.operator import v1

if TYPE_CHECKING:
    import betterproto2

    from llmgw.config.client import ClientConfig
    from llmgw.core.engines.orders import Release, WantedEngines
    from llmgw.core.routes import Attempt, Noted, Routes, Tried

_SERVICE, _ENGINES = "/operator.v1.Operator/", "/operator.engines.v1.Engines/"
_View = TypeVar("_View")


class ControlClient:
    """An async context manager; nothing is dialled before the first call.

    Of several control planes the first that can be reached answers, each call anew; a stream stays with the one that it
    began with.
    """

    def __init__(self, channels: Sequence[Channel]) -> None:
        self._channels = list(channels)

    @classmethod
    def open(cls, where: "ClientConfig") -> Self:
        """A client of the control planes that `where` names; raises BadConfig when its TLS files cannot be used."""
        if where.socket is not None:
            return cls([Channel.unix(where.socket)])
        if where.tls is None or not where.server:
            raise BadConfig("client.yaml", None, "", "must name a `server` with `tls`, or a `socket`")
        return cls([Channel(address.host, address.port, where.tls) for address in where.server])

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        for channel in self._channels:
            await channel.__aexit__(*exc)

    @property
    def address(self) -> str:
        """Of the control plane that answered last, or will be asked first."""
        return self._channels[0].address

    async def about(self) -> views.AboutView:
        """Who answers, and how the cluster is."""
        return await self._ask("About", v1.AboutRequest(), v1.AboutView, views.AboutView)

    async def why_model(self, model: str) -> views.Why:
        """Why a model has not all its replicas; UnknownModel."""
        request = v1.WhyModelRequest(model=checked("model", model))
        return await self._ask("WhyModel", request, v1.Why, views.Why)

    async def scale_model(self, model: str, replicas: int) -> views.Done:
        """Want another number of replicas; UnknownModel, NotAllowed."""
        request = v1.ScaleModelRequest(model=checked("model", model), replicas=checked("replicas", replicas))
        return await self._ask("ScaleModel", request, v1.Done, views.Done)

    async def retry_engine(self, node: str, engine: str = "") -> views.Done:
        """Let a node try again at once to install an engine, or all of them; UnknownNode, EngineNotWanted."""
        from llmgw.wire.operator.engines import v1 as engines_v1

        request = engines_v1.RetryEngineRequest(node=checked("node", node), engine=checked("engine", engine))
        return await self._ask("RetryEngine", request, v1.Done, views.Done, service=_ENGINES)

    async def engines_wanted(self) -> "WantedEngines":
        """Which engines nodes should have, and what is known of their releases."""
        from llmgw.core.engines.orders import WantedEngines
        from llmgw.wire.engines.v1 import WantedEngines as Answer
        from llmgw.wire.operator.engines import v1 as engines_v1

        request = engines_v1.EnginesWantedRequest()
        return await self._ask("EnginesWanted", request, Answer, WantedEngines, service=_ENGINES)

    async def lock_engine(self, release: "Release") -> views.Done:
        """Keep the locked files of a Python engine; BadMessage."""
        from llmgw.wire.engines.v1 import Release as Message
        from llmgw.wire.operator.engines import v1 as engines_v1

        request = engines_v1.LockEngineRequest(release=to_wire(release, Message))
        return await self._ask("LockEngine", request, v1.Done, views.Done, service=_ENGINES)

    def watch(self, nouns: Sequence[views.Noun], *, follow: bool, events: int = 0) -> AsyncGenerator[views.Page, None]:
        """A snapshot of the nouns in pages and, with `follow`, every change after it until the control plane goes.

        `events` is how many past events the snapshot holds at most.
        """
        wanted = [enum_to_wire(noun, v1.Noun) for noun in nouns]
        request = v1.WatchRequest(nouns=wanted, follow=follow, events=checked("events", events))
        return self._follow("Watch", request, v1.Page, views.Page)

    def watch_routes(self) -> AsyncGenerator["Routes", None]:
        """The whole route table, again after each change. For routers; it carries the engines' keys."""
        from llmgw.core.routes import Routes

        return self._follow("WatchRoutes", v1.WatchRoutesRequest(), v1.Routes, Routes)

    def watch_attempts(self) -> AsyncGenerator["Attempt", None]:
        """The nodes to try, as that is wanted. For routers; the control plane knows by it that this one is there."""
        from llmgw.core.routes import Attempt

        return self._follow("WatchAttempts", v1.WatchAttemptsRequest(), v1.Attempt, Attempt)

    async def report_attempt(self, tried: "Tried") -> "Noted":
        """Say whether a node was reached. For routers."""
        from llmgw.core.routes import Noted

        request = v1.ReportAttemptRequest(tried=to_wire(tried, v1.Tried))
        return await self._ask("ReportAttempt", request, v1.Noted, Noted)

    async def _ask(
        self,
        name: str,
        request: "betterproto2.Message",
        reply: "type[betterproto2.Message]",
        view: type[_View],
        *,
        service: str = _SERVICE,
    ) -> _View:
        channel = await self._reach()
        answer: _View = from_wire(await channel.call(service + name, request, reply), view)
        return answer

    async def _follow(
        self, name: str, request: "betterproto2.Message", reply: "type[betterproto2.Message]", view: type[_View]
    ) -> AsyncGenerator[_View, None]:
        channel = await self._reach()
        async with aclosing(channel.stream(_SERVICE + name, request, reply)) as messages:
            async for message in messages:
                yield from_wire(message, view)

    async def _reach(self) -> Channel:
        """The first control plane that takes a connection; it is kept at the head of the list.

        Once a request was sent nobody else is asked: an act must not be done twice.
        """
        last: ControlUnreachable | None = None
        for channel in list(self._channels):
            try:
                await channel.connect()
            except ControlUnreachable as error:
                last = error
            else:
                self._channels.remove(channel)
                self._channels.insert(0, channel)
                return channel
        raise last or ControlUnreachable("of this cluster", "no address is known")
