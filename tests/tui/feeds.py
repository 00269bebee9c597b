"""Feeds without a network."""

import asyncio
from collections.abc import Callable
from dataclasses import replace

from textual.pilot import Pilot

from llmgw.core.engines.terms import engine_id
from llmgw.core.errors import ControlUnreachable, UnknownModel, UnknownNode
from llmgw.core.events import EventKind
from llmgw.core.safe import safe
from llmgw.core.views import Done, Why
from llmgw.tui.view import Link, Replicas, View
from tests import worlds


def view_of(world: worlds.World, link: Link = Link.LIVE, *, ago: float = 0, problem: str = "") -> View:
    return View(
        about=world.about,
        revision=worlds.REVISION,
        nodes={node.name: node for node in world.nodes},
        models={model.name: model for model in world.models},
        replicas=Replicas({replica.id: replica for replica in world.replicas}),
        engines={engine_id(one.node, one.install.engine, one.install.version): one for one in world.engines},
        events=world.events,
        whole=True,
        link=link,
        since=worlds.T0 - ago,
        problem=safe(problem),
    )


async def until(pilot: Pilot[None], true: Callable[[], bool]) -> None:
    """Let the app work until something is so."""
    async with asyncio.timeout(5):
        while not true():
            await pilot.pause()


class FixedFeed:
    """Tells one view, and others when it is given them; the clock stands still."""

    def __init__(self, world: worlds.World, view: View | None = None, now: float = worlds.T0) -> None:
        self.where = safe("127.0.0.1:7443  mTLS")
        self.view = view if view is not None else view_of(world)
        self.scaled: list[tuple[str, int]] = []
        self.retried: list[tuple[str, str]] = []
        self.asked: list[str] = []
        self.time = now
        self._whys = world.whys
        self._more: asyncio.Queue[View] = asyncio.Queue()

    def now(self) -> float:
        return self.time

    async def run(self, tell: Callable[[View], None]) -> None:
        tell(self.view)
        while True:
            tell(await self._more.get())

    def say(self, view: View) -> None:
        self.view = view
        self._more.put_nowait(view)

    async def why(self, model: str) -> Why:
        self.asked.append(model)
        if self.view.link is not Link.LIVE:
            raise ControlUnreachable(self.where, "not connected", self.view.problem)
        if model not in self._whys:
            raise UnknownModel(model, self._whys)
        return self._whys[model]

    async def scale(self, model: str, replicas: int) -> Done:
        if model not in self.view.models:
            raise UnknownModel(model, self.view.models)
        self.scaled.append((model, replicas))
        what = worlds.event(48214, 0, EventKind.MODEL_SCALED, model, f"{replicas} replicas wanted", by="ana")
        return Done(revision=replace(worlds.REVISION, seq=48214), event=what)

    async def retry(self, node: str, engine: str) -> Done:
        if node not in self.view.nodes:
            raise UnknownNode(node, self.view.nodes)
        self.retried.append((node, engine))
        what = worlds.event(48214, 0, EventKind.ENGINE_RETRIED, node, f"{engine} b10991", by="ana")
        return Done(revision=replace(worlds.REVISION, seq=48214), event=what)
