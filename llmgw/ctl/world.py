"""What a watch has told so far, as one value, whole at every step."""

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from llmgw.core.errors import ControlUnreachable
from llmgw.core.events import Event
from llmgw.core.names import ModelName, NodeName, ReplicaId
from llmgw.core.views import Gone, ModelView, NodeView, Noun, Page, ReplicaView, Revision

if TYPE_CHECKING:
    from llmgw.client import ControlClient  # main imports this module for --help, too


@dataclass(slots=True)
class World:
    """The entities by name. `take` brings it up to date; read it only when `complete`."""

    revision: Revision = field(default_factory=lambda: Revision(epoch=0, seq=0))
    now: float = 0.0
    """The control plane's clock at the last page."""
    complete: bool = False
    nodes: dict[NodeName, NodeView] = field(default_factory=dict)
    models: dict[ModelName, ModelView] = field(default_factory=dict)
    replicas: dict[ReplicaId, ReplicaView] = field(default_factory=dict)
    events: list[Event] = field(default_factory=list)
    """Those of the snapshot; those of the last page once it is complete."""

    def take(self, page: Page) -> None:
        """Apply a page: the first of a snapshot drops all that was there."""
        if page.snapshot and page.first:
            self.nodes, self.models, self.replicas, self.events = {}, {}, {}, []
            self.complete = False
        elif not page.snapshot:
            self.events = []
        self.revision, self.now = page.revision, page.now
        for item in page.items:
            self._take(item)
        self.complete = self.complete or page.complete

    def _take(self, item: object) -> None:
        match item:
            case NodeView():
                self.nodes[item.name] = item
            case ModelView():
                self.models[item.name] = item
            case ReplicaView():
                self.replicas[item.id] = item
            case Event():
                self.events.append(item)
            case Gone(noun=Noun.NODES):
                self.nodes.pop(NodeName(item.name), None)
            case Gone(noun=Noun.MODELS):
                self.models.pop(ModelName(item.name), None)
            case Gone(noun=Noun.REPLICAS):
                self.replicas.pop(ReplicaId(item.name), None)

    def replicas_of(self, model: ModelName) -> list[ReplicaView]:
        """A model's replicas by their ordinal."""
        found = [replica for replica in self.replicas.values() if replica.model == model]
        return sorted(found, key=lambda replica: (len(replica.id), replica.id))

    def unlisted(self) -> list[ModelName]:
        """Models that are not in the catalog and still have replicas."""
        return sorted({replica.model for replica in self.replicas.values()} - self.models.keys())

    def model(self, name: str) -> ModelView | None:
        """The model of this name or alias."""
        found = self.models.get(ModelName(name))
        return found or next((model for model in self.models.values() if name in model.aliases), None)


async def worlds(
    client: "ControlClient", nouns: Sequence[Noun], *, follow: bool = False, events: int = 0
) -> AsyncIterator[World]:
    """Yield the world once it is whole and, with `follow`, after each change; it is the same object each time."""
    world = World()
    async for page in client.watch(nouns, follow=follow, events=events):
        world.take(page)
        if world.complete:
            yield world
            if not follow:
                return
    raise ControlUnreachable("at the other end", "it ended its answer early", "try again")
