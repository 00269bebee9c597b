"""What the shell tells the cluster: things that happened, and requests from outside. One at a time, by one writer."""

from collections.abc import Mapping
from dataclasses import dataclass

from llmgw.core.catalog import Model
from llmgw.core.facts import Heartbeat, Listening, Registration, Report
from llmgw.core.names import ModelName, NodeName
from llmgw.core.views import Tried


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentRegistered:
    """An agent opened a stream. `session` is unique and grows: the newest session of a machine wins."""

    session: int
    registration: Registration


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentTurnedAway:
    """An agent was refused at the door: its certificate is not for the node that it claims to be."""

    node: NodeName
    """The node claimed."""
    holder: str
    """Whom the certificate is for."""
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentBeat:
    """A heartbeat came in."""

    session: int
    node: NodeName
    heartbeat: Heartbeat


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentReported:
    """A report came in."""

    session: int
    node: NodeName
    report: Report


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentListens:
    """An agent answered a TryAddress."""

    session: int
    node: NodeName
    listening: Listening


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentGone:
    """A session's stream ended."""

    session: int
    node: NodeName
    reason: str
    clean: bool = False
    """The agent said that it leaves."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RouterCame:
    """A router can be asked to try nodes' addresses. `session` is unique among routers."""

    session: int
    router: str
    """The name in its certificate."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RouterGone:
    """A router's stream ended."""

    session: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RouterTried:
    """A router said whether it reaches a node, on this session."""

    session: int
    tried: Tried


@dataclass(frozen=True, slots=True, kw_only=True)
class CatalogLoaded:
    """server.yaml was read."""

    models: Mapping[ModelName, Model]


@dataclass(frozen=True, slots=True, kw_only=True)
class ScaleModel:
    """An operator wants another number of replicas."""

    model: str
    """A name or an alias."""
    replicas: int
    by: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Tick:
    """Time passed: a deadline of the cluster was reached."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Overslept:
    """The control plane itself was deaf: stopped, or waiting for its disk. Nobody could be heard meanwhile."""

    seconds: float


Input = (
    AgentRegistered
    | AgentTurnedAway
    | AgentBeat
    | AgentReported
    | AgentListens
    | AgentGone
    | RouterCame
    | RouterGone
    | RouterTried
    | CatalogLoaded
    | ScaleModel
    | Tick
    | Overslept
)
