"""A control plane's operator service over a world, behind a socket of its own."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from grpclib.const import Handler

from llmgw.config.client import ClientConfig
from llmgw.core.errors import UnknownModel
from llmgw.core.events import EventKind
from llmgw.core.identity import Role
from llmgw.core.views import Done, Item, Page
from llmgw.wire.convert import to_wire
from llmgw.wire.operator import v1
from llmgw.wire.operator.engines import v1 as engines
from llmgw.wire.server import RpcServer
from tests import worlds

EVERYONE = frozenset(Role)
CALLS = (
    *("operator.v1.Operator/" + call for call in ("About", "Watch", "WhyModel", "ScaleModel")),
    *("operator.v1.Operator/" + call for call in ("WatchRoutes", "WatchAttempts", "ReportAttempt")),
    *("operator.engines.v1.Engines/" + call for call in ("RetryEngine", "EnginesWanted", "LockEngine")),
)


class Operators(v1.OperatorBase, engines.EnginesBase):
    """Shows a world in pages of two, then what it is told to."""

    def __init__(self, world: worlds.World) -> None:
        self.world = world
        self.watching = 0
        self.now = worlds.T0
        self._more: set[asyncio.Queue[Page]] = set()

    def say(self, *items: Item) -> None:
        for queue in self._more:
            queue.put_nowait(Page(revision=worlds.REVISION, now=self.now, items=items))

    def __mapping__(self) -> dict[str, Handler]:
        return {**v1.OperatorBase.__mapping__(self), **engines.EnginesBase.__mapping__(self)}

    async def about(self, message: v1.AboutRequest) -> v1.AboutView:
        return to_wire(self.world.about, v1.AboutView)

    async def watch(self, message: v1.WatchRequest) -> AsyncIterator[v1.Page]:
        queue: asyncio.Queue[Page] = asyncio.Queue()
        self._more.add(queue)
        self.watching += 1
        try:
            for page in snapshot(self.world):
                yield to_wire(page, v1.Page)
            while message.follow:
                yield to_wire(await queue.get(), v1.Page)
        finally:
            self.watching -= 1
            self._more.discard(queue)

    async def why_model(self, message: v1.WhyModelRequest) -> v1.Why:
        if message.model not in self.world.whys:
            raise UnknownModel(message.model, self.world.whys)
        return to_wire(self.world.whys[message.model], v1.Why)

    async def scale_model(self, message: v1.ScaleModelRequest) -> v1.Done:
        what = worlds.event(48214, 0, EventKind.MODEL_SCALED, message.model, f"{message.replicas} replicas wanted")
        return to_wire(Done(revision=worlds.REVISION, event=what), v1.Done)

    async def retry_engine(self, message: engines.RetryEngineRequest) -> v1.Done:
        what = worlds.event(48214, 0, EventKind.ENGINE_RETRIED, message.node, message.engine)
        return to_wire(Done(revision=worlds.REVISION, event=what), v1.Done)

    async def watch_routes(self, message: v1.WatchRoutesRequest) -> AsyncIterator[v1.Routes]:
        return
        yield


def snapshot(world: worlds.World) -> Sequence[Page]:
    items: list[Item] = [*world.nodes, *world.models, *world.replicas, *world.engines, *world.events]
    parts = [items[at : at + 2] for at in range(0, len(items), 2)] or [[]]
    return [
        Page(
            revision=worlds.REVISION,
            now=worlds.T0,
            snapshot=True,
            first=number == 0,
            complete=number == len(parts) - 1,
            items=tuple(part),
        )
        for number, part in enumerate(parts)
    ]


@asynccontextmanager
async def served(operators: Operators, path: Path) -> AsyncIterator[ClientConfig]:
    """Serve it on a Unix socket while the block runs."""
    roles = {f"/{call}": EVERYONE for call in CALLS}
    server = RpcServer([operators], roles=roles, cluster="demo")
    await server.listen_unix(path, group=None)
    try:
        yield ClientConfig(socket=path)
    finally:
        await server.close(0.1)
