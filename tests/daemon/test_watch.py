"""Snapshots and changes: in order, encoded once, bounded for whoever reads slowly."""

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace

import pytest

from llmgw.core.events import Event, EventKind
from llmgw.core.facts import Secret
from llmgw.core.names import ModelName, NodeName, ReplicaId
from llmgw.core.presence import NodeState
from llmgw.core.routes import Route, RouteReplica, Routes
from llmgw.core.units import Bytes
from llmgw.core.views import Gone, Item, ModelState, NodeView, Noun, Page, Revision
from llmgw.core.warnings import OtherWarning
from llmgw.daemon import pages, routes, watch
from llmgw.daemon.routes import RouteFeed
from llmgw.daemon.watch import MOST_BEHIND, Hub
from llmgw.wire.convert import decode, from_wire
from llmgw.wire.operator import v1
from tests.daemon.world import turns

NODES = frozenset({Noun.NODES})


@dataclass
class Fleet:
    """Nodes that a test changes; the hub looks at it as it would at the cluster."""

    nodes: dict[str, NodeView] = field(default_factory=dict)
    seq: int = 0

    @property
    def revision(self) -> Revision:
        return Revision(epoch=7, seq=self.seq)

    def names(self, noun: Noun) -> list[str]:
        return sorted(self.nodes) if noun is Noun.NODES else []

    def view(self, noun: Noun, name: str) -> Item:
        return self.nodes.get(name) or Gone(noun=noun, name=name)


class Reader:
    """Takes pages when told to, as a slow or fast client would."""

    def __init__(self, *, reading: bool = True) -> None:
        self.pages: list[Page] = []
        self.bytes: list[bytes] = []
        self._may_read = asyncio.Event()
        self._more = asyncio.Event()
        self.offered = asyncio.Event()
        """A page is on its way to it, or was."""
        if reading:
            self._may_read.set()

    async def send(self, page: bytes) -> None:
        self.offered.set()
        await self._may_read.wait()
        self.bytes.append(page)
        self.pages.append(from_wire(decode(page, v1.Page), Page))
        self._more.set()

    def read_on(self) -> None:
        self._may_read.set()

    def stop_reading(self) -> None:
        self._may_read.clear()
        self.offered.clear()

    async def has(self, count: int) -> list[Page]:
        async with asyncio.timeout(5):
            while len(self.pages) < count:
                self._more.clear()
                await self._more.wait()
        return self.pages

    async def sees(self, wanted: Item) -> None:
        async with asyncio.timeout(5):
            while not any(wanted in page.items for page in self.pages):
                self._more.clear()
                await self._more.wait()


class Scene:
    """A fleet, its hub and its readers."""

    def __init__(self, group: asyncio.TaskGroup, old: Iterable[Event] = ()) -> None:
        self.fleet, self._group = Fleet(), group
        self.old = list(old)
        self.tasks: list[asyncio.Task[None]] = []
        self.hub = Hub(self.fleet, lambda: 1000.0 + self.fleet.seq, self.events)

    async def events(self, *, after: int, before: int, most: int) -> list[Event]:
        return [event for event in self.old if after < event.seq < before][:most]

    def put(self, name: str, promised: int = 0, **fields: object) -> NodeView:
        view = NodeView(name=NodeName(name), state=NodeState.READY, since=1.0, promised=Bytes(promised))
        self.fleet.nodes[name] = view = replace(view, **fields)  # type: ignore[arg-type]
        self.fleet.seq += 1
        self.hub.publish(Noun.NODES, name)
        return view

    def drop(self, name: str) -> None:
        del self.fleet.nodes[name]
        self.fleet.seq += 1
        self.hub.publish(Noun.NODES, name)

    def read(self, reader: Reader, nouns: frozenset[Noun] = NODES, *, follow: bool = True, events: int = 0) -> None:
        self.tasks.append(self._group.create_task(self.hub.watch(nouns, reader.send, follow=follow, events=events)))


@asynccontextmanager
async def scene(old: Iterable[Event] = ()) -> AsyncIterator[Scene]:
    async with asyncio.TaskGroup() as group:
        one = Scene(group, old)
        yield one
        for task in one.tasks:
            task.cancel()


def happened(seq: int, text: str = "x") -> Event:
    return Event(seq=seq, at=1.0, kind=EventKind.NODE_READY, subject="node01", text=text)


async def test_a_snapshot_comes_in_pages_and_says_where_it_begins_and_ends() -> None:
    async with scene() as one:
        for index in range(600):
            one.put(f"node{index:03}")
        reader = Reader()
        one.read(reader, follow=False)
        await one.tasks[0]
        assert [(page.snapshot, page.first, page.complete) for page in reader.pages] == [
            (True, True, False),
            (True, False, False),
            (True, False, True),
        ]
        assert [len(page.items) for page in reader.pages] == [256, 256, 88]
        assert {page.revision for page in reader.pages} == {one.fleet.revision}
        assert [item for page in reader.pages for item in page.items] == list(one.fleet.nodes.values())


async def test_a_page_is_bounded_in_bytes_and_a_huge_item_travels_alone() -> None:
    async with scene() as one:
        fat = (OtherWarning(code="c", text="w" * 50_000),)  # on the wire typed, and in words beside it
        for index in range(5):
            one.put(f"node{index}", warnings=fat)
        one.put("node9", warnings=fat * 4)
        reader = Reader()
        one.read(reader, follow=False)
        await one.tasks[0]
        assert [len(page.items) for page in reader.pages] == [2, 2, 1, 1]
        assert all(len(page) <= pages.MOST_BYTES + 100 for page in reader.bytes[:3])


async def test_an_empty_cluster_is_one_empty_page() -> None:
    async with scene() as one:
        reader = Reader()
        one.read(reader, follow=False)
        await one.tasks[0]
        assert [(page.first, page.complete, page.items) for page in reader.pages] == [(True, True, ())]


async def test_changes_follow_the_snapshot_in_the_order_of_their_last_change() -> None:
    async with scene() as one:
        one.put("node01")
        reader = Reader()
        one.read(reader)
        await reader.has(1)
        one.put("node01", promised=1)
        second = one.put("node02")
        first = one.put("node01", promised=2)
        changes = (await reader.has(2))[1]
        assert changes.items == (second, first)
        assert (changes.snapshot, changes.complete, changes.revision) == (False, False, one.fleet.revision)
        one.drop("node02")
        assert (await reader.has(3))[2].items == (Gone(noun=Noun.NODES, name="node02"),)


async def test_a_change_is_encoded_once_for_all_watchers(monkeypatch: pytest.MonkeyPatch) -> None:
    encoded: list[Item] = []

    def counting(value: Item) -> bytes:
        encoded.append(value)
        return pages.encode_item(value)

    monkeypatch.setattr(watch, "encode_item", counting)
    async with scene() as one:
        for index in range(10):
            one.put(f"node{index}")
        assert encoded == [], "nobody watches, so nothing is encoded"
        readers = [Reader() for _ in range(8)]
        for reader in readers:
            one.read(reader)
        for reader in readers:
            await reader.has(1)
        assert len(encoded) == 10
        changed = one.put("node3", promised=5)
        one.hub.append(happened(1))
        for reader in readers:
            await reader.sees(changed)
        assert len(encoded) == 11


async def test_other_nouns_are_not_sent() -> None:
    async with scene() as one:
        reader = Reader()
        one.read(reader, frozenset({Noun.EVENTS}), events=10)
        await reader.has(1)
        one.put("node01")
        one.hub.append(happened(1))
        assert (await reader.has(2))[1].items == (happened(1),)


async def test_a_reader_that_stops_reading_costs_marks_only_and_gets_a_new_snapshot() -> None:
    async with scene() as one:
        one.put("node000")
        reader = Reader()
        one.read(reader)
        await reader.has(1)
        reader.stop_reading()
        for index in range(5_000):
            one.put(f"node{index:04}")
            if index % 100 == 0:
                await asyncio.sleep(0)
        (watcher,) = one.hub._watchers
        assert len(watcher._marked) <= MOST_BEHIND
        reader.read_on()
        await reader.sees(one.fleet.nodes["node4999"])
        again = next(index for index, page in enumerate(reader.pages) if page.first and index > 0)
        snapshot = [item for page in reader.pages[again:] for item in page.items]
        assert snapshot == [one.fleet.nodes[name] for name in sorted(one.fleet.nodes)]
        assert reader.pages[-1].complete


async def test_a_slow_reader_within_bounds_gets_each_entity_once_as_it_is_now() -> None:
    async with scene() as one:
        one.put("node01")
        reader = Reader()
        one.read(reader)
        await reader.has(1)
        reader.stop_reading()
        one.put("node02")
        await reader.offered.wait()  # the page with node02 is on its way and held up by the reader
        for count in range(1_000):
            last = one.put("node01", promised=count)
        reader.read_on()
        await reader.sees(last)
        assert [page.items for page in reader.pages[2:]] == [(last,)]


async def test_what_changes_while_a_snapshot_is_sent_is_sent_after_it() -> None:
    async with scene() as one:
        for index in range(300):
            one.put(f"node{index:03}")
        reader = Reader(reading=False)
        one.read(reader)
        await reader.offered.wait()
        changed = one.put("node000", promised=9)
        one.drop("node299")
        revision = one.fleet.revision
        reader.read_on()
        await reader.sees(changed)
        world = {}
        for page in reader.pages:
            for item in page.items:
                assert isinstance(item, NodeView | Gone)
                world[item.name] = item
        assert world["node000"] == changed
        assert world["node299"] == Gone(noun=Noun.NODES, name="node299")
        assert reader.pages[1].revision.seq < revision.seq
        assert reader.pages[-1].revision == revision


async def test_the_last_events_come_from_memory_and_the_older_from_the_store() -> None:
    old = [happened(seq) for seq in range(1, 1_501)]
    async with scene(old) as one:
        one.hub.recall(old[-1_000:])
        for asked, got in ((0, []), (3, [1_498, 1_499, 1_500]), (1_200, list(range(301, 1_501)))):
            reader = Reader()
            one.read(reader, frozenset({Noun.EVENTS}), follow=False, events=asked)
            await one.tasks[-1]
            seqs = [item.seq for page in reader.pages for item in page.items if isinstance(item, Event)]
            assert seqs == got


async def test_fat_events_do_not_fill_the_memory() -> None:
    async with scene() as one:
        for seq in range(1, 200):
            one.hub.append(happened(seq, "x" * 100_000))
        assert sum(told.size for told in one.hub.recent()) <= 4 << 20
        assert one.hub.recent()[-1].event.seq == 199


async def test_a_reader_that_left_is_forgotten() -> None:
    async with scene() as one:
        reader = Reader()
        one.read(reader)
        await reader.has(1)
        one.tasks[0].cancel()
        await asyncio.wait(one.tasks)
        assert one.hub._watchers == set()


# --- routes -----------------------------------------------------------------------------------------------------


def table(seq: int) -> Routes:
    replica = RouteReplica(
        id=ReplicaId("gemma/0"),
        launch=1,
        node=NodeName("node01"),
        machine="m",
        host="127.0.0.1",
        port=21000 + seq,
        key=Secret("hush"),
    )
    route = Route(model=ModelName("gemma"), replicas=(replica,), state=ModelState.READY)
    return Routes(revision=Revision(epoch=1, seq=seq), routes=(route,))


class Router:
    """Keeps the revisions of the tables that it was sent, and takes no more while it is held up."""

    def __init__(self) -> None:
        self.seqs: list[int] = []
        self.reads = asyncio.Event()
        self.reads.set()
        self._more = asyncio.Event()

    async def send(self, data: bytes) -> None:
        self.seqs.append(from_wire(decode(data, v1.Routes), Routes).revision.seq)
        self._more.set()
        await self.reads.wait()

    async def has(self, seq: int) -> None:
        async with asyncio.timeout(5):
            while seq not in self.seqs:
                self._more.clear()
                await self._more.wait()


async def test_routers_get_no_table_before_there_is_one_and_then_the_newest(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Routes] = []

    def counting(value: Routes) -> bytes:
        made.append(value)
        return pages.encode_routes(value)

    monkeypatch.setattr(routes, "encode_routes", counting)
    feed, fast, slow = RouteFeed(), Router(), Router()
    slow.reads.clear()
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(feed.watch(router.send)) for router in (fast, slow)]
        await turns()
        assert len(feed._readers) == 2, "they wait"
        for seq in range(1, 5):
            feed.publish(table(seq))
            await fast.has(seq)
        slow.reads.set()
        await slow.has(4)
        late = Router()
        tasks.append(group.create_task(feed.watch(late.send)))
        await late.has(4)
        await turns()
        assert (fast.seqs, slow.seqs, late.seqs) == ([1, 2, 3, 4], [1, 4], [4])
        assert len(made) == 4, "encoded once for all"
        for task in tasks:
            task.cancel()
    assert feed._readers == set()
    assert b"hush" in pages.encode_routes(table(1))
