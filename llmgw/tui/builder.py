"""How do the pages of a watch become views?"""

from collections import deque
from collections.abc import Iterable

from llmgw.core.events import Event
from llmgw.core.safe import Safe
from llmgw.core.views import AboutView, Gone, Item, ModelView, NodeView, Noun, Page, ReplicaView, Revision
from llmgw.tui.view import Link, Replicas, View

EVENTS_HELD = 500
"""Older events are forgotten here."""


class Builder:
    """Takes pages in, gives views out. While a new snapshot comes in, views show what was there before it."""

    def __init__(self) -> None:
        self.whole = False
        self._held = _Held()
        self._coming: _Held | None = None
        self._revision: Revision | None = None

    def take(self, page: Page) -> bool:
        """Take one page in, in the order in which they came; False while nothing of it can be seen yet."""
        if not page.snapshot:
            self._held.take(page.items)
            self._revision = page.revision
            return True
        if page.first or self._coming is None:
            self._coming = _Held()
        self._coming.take(page.items)
        if not page.complete:
            return False
        self._held, self._coming, self._revision, self.whole = self._coming, None, page.revision, True
        return True

    def view(self, about: AboutView | None, link: Link, since: float, problem: Safe) -> View:
        """The moment as it is now."""
        held = self._held
        held.publish()
        return View(
            about=about,
            revision=self._revision,
            nodes=held.shown_nodes,
            models=held.shown_models,
            replicas=held.shown_replicas,
            events=held.shown_events,
            whole=self.whole,
            link=link,
            since=since,
            problem=problem,
        )


class _Held:
    """Everything, twice: as it changes, and as the last view shows it. Only parts that changed are copied."""

    def __init__(self) -> None:
        self.nodes: dict[str, NodeView] = {}
        self.models: dict[str, ModelView] = {}
        self.replicas: dict[str, ReplicaView] = {}
        self.events: deque[Event] = deque(maxlen=EVENTS_HELD)
        self._changed = set(Noun)
        self.publish()

    def take(self, items: Iterable[Item]) -> None:
        for item in items:
            match item:
                case NodeView():
                    self.nodes[item.name] = item
                    self._changed.add(Noun.NODES)
                case ModelView():
                    self.models[item.name] = item
                    self._changed.add(Noun.MODELS)
                case ReplicaView():
                    self.replicas[item.id] = item
                    self._changed.add(Noun.REPLICAS)
                case Event():
                    self.events.append(item)
                    self._changed.add(Noun.EVENTS)
                case Gone():
                    self._drop(item)

    def _drop(self, gone: Gone) -> None:
        match gone.noun:
            case Noun.NODES:
                self.nodes.pop(gone.name, None)
            case Noun.MODELS:
                self.models.pop(gone.name, None)
            case Noun.REPLICAS:
                self.replicas.pop(gone.name, None)
            case Noun.EVENTS:
                pass  # an event that happened stays so
        self._changed.add(gone.noun)

    def publish(self) -> None:
        if Noun.NODES in self._changed:
            self.shown_nodes = dict(self.nodes)
        if Noun.MODELS in self._changed:
            self.shown_models = dict(self.models)
        if Noun.REPLICAS in self._changed:
            self.shown_replicas = Replicas(dict(self.replicas))
        if Noun.EVENTS in self._changed:
            self.shown_events = tuple(self.events)
        self._changed.clear()
