"""How does every watcher see every change, at the cost of one encoding and with bounded memory?

    publish ─▶ the entity's bytes are forgotten, its key is marked at each watcher of its noun
    watcher ─▶ snapshot in pages, then the marked entities as they are *now*, in the order of their last change

A watcher holds marks, not bytes: marks of one entity are one. With more than MOST_BEHIND marks it is behind: they are
dropped, and it gets a new snapshot when it reads on. An entity is encoded when the first watcher needs it, so changes
that nobody watches cost nothing.
"""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable
from contextlib import aclosing
from typing import Protocol

from llmgw.core.events import Event
from llmgw.core.views import Gone, Item, Noun, Revision
from llmgw.daemon.pages import Page, encode_item

MOST_BEHIND = 256
"""Changes that wait for one watcher."""

RECENT = 1_000
"""Events kept in memory; older ones come from the store."""
_RECENT_CHARACTERS = 4 << 20

_AT_ONCE = 16
"""Entities encoded before others get their turn."""

_GATHER = 0.02
"""Seconds between two pages of changes to one watcher: a burst travels as one."""

Send = Callable[[bytes], Awaitable[None]]


class Seen(Protocol):
    """What a hub looks at: `core.cluster.Cluster`."""

    @property
    def revision(self) -> Revision:
        """Where history is."""

    def names(self, noun: Noun) -> list[str]:
        """Of all entities."""

    def view(self, noun: Noun, name: str) -> Item:
        """One of them, or Gone."""


class OldEvents(Protocol):
    """Where events are that are no longer in memory: `daemon.store.Store.events`."""

    async def __call__(self, *, after: int, before: int, most: int) -> list[Event]:
        """The oldest `most` between the two, in order."""


class _Told:
    """An event, and its bytes from when they were first needed."""

    __slots__ = ("_item", "event", "size")

    def __init__(self, event: Event) -> None:
        self.event, self._item = event, b""
        self.size = len(event.text) + sum(map(len, event.lines))

    @property
    def item(self) -> bytes:
        self._item = self._item or encode_item(self.event)
        return self._item


class Hub:
    """The one place that changes go through on their way to watchers."""

    def __init__(self, seen: Seen, now: Callable[[], float], old_events: OldEvents) -> None:
        self.seen, self.now, self.old_events = seen, now, old_events
        self._items: dict[tuple[Noun, str], bytes] = {}
        self._recent: deque[_Told] = deque()
        self._recent_size = 0
        self._watchers: set[Watcher] = set()

    def recall(self, events: Iterable[Event]) -> None:
        """Take the last events of earlier, in order."""
        for event in events:
            self._remember(_Told(event))

    def publish(self, noun: Noun, name: str) -> None:
        """The view of this entity changed."""
        self._items.pop((noun, name), None)
        for watcher in self._watchers:
            watcher.mark((noun, name))

    def append(self, event: Event) -> None:
        """Something happened, and is on disk."""
        told = _Told(event)
        self._remember(told)
        for watcher in self._watchers:
            watcher.mark((Noun.EVENTS, str(event.seq)), told)

    async def watch(self, nouns: frozenset[Noun], send: Send, *, follow: bool, events: int = 0) -> None:
        """Send a snapshot and, with `follow`, every change after it until cancelled or `send` fails.

        `events` bounds the past events in a snapshot. `send` may take as long as its reader does.
        """
        watcher = Watcher(self, nouns, events)
        self._watchers.add(watcher)
        try:
            await watcher.run(send, follow)
        finally:
            self._watchers.discard(watcher)

    def item(self, noun: Noun, name: str) -> tuple[bytes, bool]:
        """Return an entity's bytes, and whether they had to be made; a Gone is not kept."""
        item = self._items.get((noun, name))
        if item is not None:
            return item, False
        view = self.seen.view(noun, name)
        item = encode_item(view)
        if not isinstance(view, Gone):
            self._items[noun, name] = item
        return item, True

    def recent(self) -> list[_Told]:
        """The events in memory, oldest first."""
        return list(self._recent)

    def _remember(self, told: _Told) -> None:
        self._recent.append(told)
        self._recent_size += told.size
        while len(self._recent) > RECENT or (self._recent_size > _RECENT_CHARACTERS and len(self._recent) > 1):
            self._recent_size -= self._recent.popleft().size


class Watcher:
    """One reader: what it has still to be sent."""

    def __init__(self, hub: Hub, nouns: frozenset[Noun], events: int) -> None:
        self._hub, self._nouns, self._events = hub, nouns, events
        self._marked: dict[tuple[Noun, str], _Told | None] = {}
        self._behind = False
        self._changed = asyncio.Event()
        self._sent = hub.seen.revision

    def mark(self, key: tuple[Noun, str], told: _Told | None = None) -> None:
        """This has to be sent, after all that is marked already."""
        if key[0] not in self._nouns or self._behind:
            return
        self._marked.pop(key, None)
        self._marked[key] = told
        if len(self._marked) > MOST_BEHIND:
            self._marked.clear()
            self._behind = True
        self._changed.set()

    async def run(self, send: Send, follow: bool) -> None:
        """Send a snapshot, then changes."""
        await self._snapshot(send)
        while follow:
            await self._changed.wait()
            if self._behind:
                await self._snapshot(send)
            else:
                page, more = self._changes()
                await send(page)
                if more:
                    await asyncio.sleep(0)
                    continue
            await asyncio.sleep(_GATHER)

    async def _snapshot(self, send: Send) -> None:
        """Send all there is. What changes meanwhile is marked, and so sent again after it."""
        self._marked.clear()
        self._changed.clear()
        self._behind = False
        self._sent = self._hub.seen.revision
        page, first = Page(), True
        async with aclosing(self._everything()) as items:
            async for item in items:
                if not page.has_room(item):
                    await send(page.encoded(self._sent, self._hub.now(), snapshot=True, first=first))
                    page, first = Page(), False
                page.add(item)
        await send(page.encoded(self._sent, self._hub.now(), snapshot=True, first=first, complete=True))

    async def _everything(self) -> AsyncGenerator[bytes]:
        names = [(noun, name) for noun in Noun if noun in self._nouns for name in self._hub.seen.names(noun)]
        recent = self._hub.recent()[-self._events :] if self._events and Noun.EVENTS in self._nouns else []
        made = 0
        for noun, name in names:
            item, fresh = self._hub.item(noun, name)
            made += fresh
            if fresh and made % _AT_ONCE == 0:
                await asyncio.sleep(0)
            yield item
        async with aclosing(self._older(recent)) as older:
            async for item in older:
                yield item
        for told in recent:
            yield told.item

    async def _older(self, recent: list[_Told]) -> AsyncGenerator[bytes]:
        """The events that were asked for and are no longer in memory."""
        if not recent or len(recent) >= self._events:
            return
        before = recent[0].event.seq
        after = recent[-1].event.seq - self._events
        while page := await self._hub.old_events(after=after, before=before, most=_AT_ONCE):
            for event in page:
                yield encode_item(event)
            after = page[-1].seq

    def _changes(self) -> tuple[bytes, bool]:
        """Return one page of what is marked, and whether that was not all of it.

        Only the last page carries the revision that it brings the reader to.
        """
        page, made = Page(), 0
        for (noun, name), told in list(self._marked.items()):
            item, fresh = (told.item, False) if told is not None else self._hub.item(noun, name)
            if made >= _AT_ONCE or not page.has_room(item):
                break
            made += fresh
            page.add(item)
            del self._marked[noun, name]
        if not self._marked:
            self._changed.clear()
            self._sent = self._hub.seen.revision
        return page.encoded(self._sent, self._hub.now()), bool(self._marked)
