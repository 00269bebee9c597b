"""What the shell must do after an input: answer, persist, publish, send.

Effects that persist are carried out, in one transaction, before any other effect of the same input.
"""

from dataclasses import dataclass

from llmgw.core.catalog import Scaled
from llmgw.core.engines.orders import EngineWish, Release
from llmgw.core.events import Event
from llmgw.core.facts import Profile, Want
from llmgw.core.link import Accepted, Refused, TryAddress
from llmgw.core.names import ModelName, NodeName, ReplicaId
from llmgw.core.routes import Attempt
from llmgw.core.units import Bytes
from llmgw.core.views import Noun

# --- persist ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Assignment:
    """What is stored of a replica: where its shards are (by rank), how it runs and what is wanted of it."""

    replica: ReplicaId
    model: ModelName
    nodes: tuple[NodeName, ...]
    want: Want
    profile: Profile
    placed_at: float
    adopted: bool = False


@dataclass(frozen=True, slots=True)
class SaveAssignment:
    """Insert or replace."""

    assignment: Assignment


@dataclass(frozen=True, slots=True)
class DropAssignment:
    """Its shards are gone."""

    replica: ReplicaId


@dataclass(frozen=True, slots=True)
class SaveOrdinal:
    """The next ordinal of a model's replicas; it outlives them, so that ids are never used again."""

    model: ModelName
    next: int


@dataclass(frozen=True, slots=True)
class SaveOverlay:
    """Insert or replace."""

    overlay: Scaled


@dataclass(frozen=True, slots=True)
class DropOverlay:
    """The file's value holds again."""

    model: ModelName


@dataclass(frozen=True, slots=True)
class SaveNode:
    """Insert or replace: a node with this machine-id was accepted, another machine with its name will be refused."""

    node: NodeName
    machine: str
    memory: Bytes
    """The most RAM that it registered with."""


@dataclass(frozen=True, slots=True)
class SaveRelease:
    """Insert or replace, by engine, version and variant."""

    release: Release
    wanted: str
    """The version that led to it, as server.yaml has it."""


@dataclass(frozen=True, slots=True)
class AppendEvent:
    """Store and publish it."""

    event: Event


Persist = (
    SaveAssignment | DropAssignment | SaveOrdinal | SaveOverlay | DropOverlay | SaveNode | SaveRelease | AppendEvent
)

# --- then do ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Answer:
    """Answer a registration; after a Refused the session ends."""

    session: int
    answer: Accepted | Refused


@dataclass(frozen=True, slots=True)
class EndSession:
    """A newer session of the same machine took over."""

    session: int
    why: Refused


@dataclass(frozen=True, slots=True)
class SendDesired:
    """Send the node's session what the node should run: `cluster.desired(node)`."""

    node: NodeName


@dataclass(frozen=True, slots=True)
class AskAddress:
    """Send the node's session this question."""

    node: NodeName
    question: TryAddress


@dataclass(frozen=True, slots=True)
class Resolve:
    """Find out the files of this engine: a ReleaseFound or a ReleaseNotFound is the answer."""

    wish: EngineWish


@dataclass(frozen=True, slots=True)
class AskRouters:
    """Let all routers that are connected try this."""

    attempt: Attempt


@dataclass(frozen=True, slots=True)
class Publish:
    """The view of this entity changed (or it is no more): `cluster.view(noun, name)`."""

    noun: Noun
    name: str


@dataclass(frozen=True, slots=True)
class PublishRoutes:
    """The route table changed: `cluster.routes()`."""


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault of ours met while the input was handled. What was done before it stands, and comes before it."""

    error: Exception


Effect = (
    Persist | Answer | EndSession | SendDesired | AskAddress | Resolve | AskRouters | Publish | PublishRoutes | Fault
)
