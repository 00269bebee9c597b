"""The daemon's parts around a real cluster: a store that can fail on demand, and mailboxes that keep what they got."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from llmgw.core.catalog import Model
from llmgw.core.cluster import Cluster
from llmgw.core.effects import Persist
from llmgw.core.engines.orders import EngineWish
from llmgw.core.events import Event, EventKind
from llmgw.core.inputs import AgentRegistered, CatalogLoaded
from llmgw.core.link import Accepted, Desired, Refused, Registration, TryAddress
from llmgw.core.names import NodeName
from llmgw.core.settings import Settings, Stored
from llmgw.daemon.attempts import AttemptFeed
from llmgw.daemon.brain import Brain
from llmgw.daemon.routes import RouteFeed
from llmgw.daemon.store import NotStored
from llmgw.daemon.watch import Hub
from tests.core.stage import LLAMA, inventory

SETTINGS = Settings(cluster="demo", heartbeat=2.0, lost_after=60.0, settle=0.05)


@dataclass
class FakeStore:
    """Keeps what it is given. A real full disk cannot be had for each test; test_store.py has one of SQLite's."""

    saved: list[Sequence[Persist]] = field(default_factory=list)
    failing: NotStored | None = None
    writing: asyncio.Event = field(default_factory=asyncio.Event)
    may_finish: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        self.may_finish.set()

    async def save(self, effects: Sequence[Persist]) -> None:
        self.writing.set()
        await self.may_finish.wait()
        if self.failing:
            raise self.failing
        self.saved.append(list(effects))

    async def events(self, *, after: int, before: int, most: int) -> list[Event]:
        return []

    def kinds(self) -> list[list[str]]:
        return [[type(effect).__name__ for effect in effects] for effects in self.saved]


@dataclass
class FakeSessions:
    """What agents would have been sent."""

    answers: dict[int, Accepted | Refused] = field(default_factory=dict)
    orders: list[tuple[str, Desired]] = field(default_factory=list)
    questions: list[tuple[str, TryAddress]] = field(default_factory=list)
    told: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def ordered(self) -> list[str]:
        return [node for node, _ in self.orders]

    def answer(self, session: int, answer: Accepted | Refused) -> None:
        self.answers[session] = answer

    def end(self, session: int, why: Refused) -> None:
        self.answers[session] = why

    def send_desired(self, node: NodeName, desired: Desired) -> None:
        self.orders.append((node, desired))
        self.told.set()

    def ask(self, node: NodeName, question: TryAddress) -> None:
        self.questions.append((node, question))


@dataclass
class FakeResolver:
    """What was to be found out."""

    wishes: list[EngineWish] = field(default_factory=list)

    def resolve(self, wish: EngineWish) -> None:
        self.wishes.append(wish)


class Clock:
    """The loop's clock, offset so that it looks like wall time, and put on by a test that lets time pass."""

    def __init__(self) -> None:
        self._offset = 1_764_000_000.0

    def now(self) -> float:
        return self._offset + asyncio.get_running_loop().time()

    def pass_by(self, seconds: float) -> None:
        self._offset += seconds


async def turns() -> None:
    """Let every task that can go on do so; what has not happened by then waits for something else."""
    for _ in range(20):
        await asyncio.sleep(0)


class ListeningHub(Hub):
    """A hub whose events a test can wait for."""

    def __init__(self, *parts: Any) -> None:
        super().__init__(*parts)
        self.heard: list[Event] = []
        self._more = asyncio.Event()

    def append(self, event: Event) -> None:
        super().append(event)
        self.heard.append(event)
        self._more.set()

    async def hears(self, kind: EventKind) -> Event:
        async with asyncio.timeout(10):
            while not (found := [event for event in self.heard if event.kind is kind]):
                self._more.clear()
                await self._more.wait()
        return found[-1]


@dataclass
class World:
    """A running brain with its surroundings."""

    cluster: Cluster
    store: FakeStore
    sessions: FakeSessions
    hub: ListeningHub
    routes: RouteFeed
    brain: Brain
    clock: Clock
    resolver: FakeResolver

    async def join(self, name: str, session: int) -> None:
        await self.brain.tell(AgentRegistered(session=session, registration=registration(name)))


def registration(name: str, **fields: object) -> Registration:
    whole = Registration(
        node=NodeName(name),
        machine=f"machine-of-{name}",
        boot="boot",
        agent_version="0.1.0",
        address="10.0.0.1",
        inventory=inventory(),
        engines=LLAMA,
    )
    return replace(whole, **fields)  # type: ignore[arg-type]


@asynccontextmanager
async def running(*models: Model, settings: Settings = SETTINGS, stored: Stored | None = None) -> AsyncIterator[World]:
    """A brain at work; at the end it is stopped, and must then end by itself."""
    clock, store, sessions, resolver = Clock(), FakeStore(), FakeSessions(), FakeResolver()
    cluster = Cluster(settings, stored or Stored(), epoch=7, now=clock.now())
    hub, routes = ListeningHub(cluster, clock.now, store.events), RouteFeed()
    brain = Brain(cluster, store, hub, routes, AttemptFeed(), sessions, resolver, clock.now, beat=settings.heartbeat)
    async with asyncio.TaskGroup() as group:
        group.create_task(brain.run())
        try:
            await brain.tell(CatalogLoaded(models={model.name: model for model in models}))
            yield World(cluster, store, sessions, hub, routes, brain, clock, resolver)
        finally:
            brain.stop()
