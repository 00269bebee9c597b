"""What has a watch told so far, as one value that is whole at every step?

A snapshot comes in pages. Until its last one is there, what was known before it stays to be read.
"""

from dataclasses import dataclass, field

from llmgw.core.engines.terms import engine_id
from llmgw.core.events import Event
from llmgw.core.names import ModelName, NodeName, ReplicaId
from llmgw.core.views import EngineView, Gone, Item, ModelView, NodeView, Noun, Page, ReplicaView, Revision


@dataclass(slots=True, kw_only=True)
class Fold:
    """The entities by name. `take` brings it up to date; read it once `whole`."""

    revision: Revision = field(default_factory=lambda: Revision(epoch=0, seq=0))
    now: float = 0.0
    """The control plane's clock at the last page."""
    whole: bool = False
    """A whole snapshot has come: empty tables mean an empty cluster."""
    nodes: dict[NodeName, NodeView] = field(default_factory=dict)
    models: dict[ModelName, ModelView] = field(default_factory=dict)
    replicas: dict[ReplicaId, ReplicaView] = field(default_factory=dict)
    engines: dict[str, EngineView] = field(default_factory=dict)
    """By `engine_id`."""
    news: tuple[Event, ...] = ()
    """The events of the last step: all of a snapshot, or those of one page after it."""
    _coming: "list[Item] | None" = None
    """The pages of a snapshot that is not all there."""

    def take(self, page: Page) -> frozenset[Noun] | None:
        """Take in one page, in the order in which they came.

        The answer is of which nouns something may be different now; None while nothing of it can be seen yet.
        """
        if not page.snapshot:
            if self._coming is not None:
                self._coming += page.items
            self._step(page)
            return self._apply(page.items) if self.whole else None
        if page.first or self._coming is None:
            self._coming = []
        self._coming += page.items
        if not page.complete:
            return None
        items, self._coming = self._coming, None
        self.nodes, self.models, self.replicas, self.engines, self.whole = {}, {}, {}, {}, True
        self._step(page)
        self._apply(items)
        return frozenset(Noun)

    def _step(self, page: Page) -> None:
        self.revision, self.now, self.news = page.revision, page.now, ()

    def _apply(self, items: "tuple[Item, ...] | list[Item]") -> frozenset[Noun]:
        self.news = tuple(item for item in items if isinstance(item, Event))
        return frozenset(map(self._put, items))

    def _put(self, item: Item) -> Noun:
        match item:
            case NodeView():
                self.nodes[item.name] = item
                return Noun.NODES
            case ModelView():
                self.models[item.name] = item
                return Noun.MODELS
            case ReplicaView():
                self.replicas[item.id] = item
                return Noun.REPLICAS
            case EngineView(node=node, install=install):
                self.engines[engine_id(node, install.engine, install.version)] = item
                return Noun.ENGINES
            case Gone():
                self._drop(item)
                return item.noun
            case Event():
                return Noun.EVENTS

    def _drop(self, gone: Gone) -> None:
        match gone.noun:
            case Noun.NODES:
                self.nodes.pop(NodeName(gone.name), None)
            case Noun.MODELS:
                self.models.pop(ModelName(gone.name), None)
            case Noun.REPLICAS:
                self.replicas.pop(ReplicaId(gone.name), None)
            case Noun.ENGINES:
                self.engines.pop(gone.name, None)
            case Noun.EVENTS:
                pass  # what happened stays so

    def model(self, name: str) -> ModelView | None:
        """The model of this name or alias."""
        found = self.models.get(ModelName(name))
        return found or next((model for model in self.models.values() if name in model.aliases), None)

    def replicas_of(self, model: ModelName) -> list[ReplicaView]:
        """A model's replicas by their ordinal."""
        return sorted((one for one in self.replicas.values() if one.model == model), key=by_ordinal)

    def engines_of(self, node: NodeName) -> list[EngineView]:
        """A node's engines by name and version."""
        return [view for _, view in sorted(self.engines.items()) if view.node == node]

    def unlisted(self) -> list[ModelName]:
        """Models that are not in the catalog and still have replicas."""
        return sorted({replica.model for replica in self.replicas.values()} - self.models.keys())


def by_ordinal(replica: ReplicaView) -> tuple[str, int]:
    """What sorts `gemma/10` after `gemma/9`."""
    number = replica.id.rpartition("/")[2]
    return replica.model, int(number) if number.isascii() and number.isdigit() else 0
