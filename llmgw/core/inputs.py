"""What the shell tells the cluster: things that happened, and requests from outside. One at a time, by one writer."""

from collections.abc import Mapping
from dataclasses import dataclass

from llmgw.core.catalog import Model
from llmgw.core.engines.orders import EngineWish, Release
from llmgw.core.engines.terms import Installs
from llmgw.core.link import Heartbeat, Listening, Registration, Report
from llmgw.core.names import ModelName, NodeName
from llmgw.core.routes import Tried


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
class AgentInstalls:
    """A node said how far its engines are."""

    session: int
    node: NodeName
    installs: Installs


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
    engines: tuple[EngineWish, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleaseFound:
    """The files of an engine that was asked for are known."""

    wish: EngineWish
    release: Release


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleaseNotFound:
    """They could not be had; the cluster decides when it is tried again."""

    wish: EngineWish
    problem: str
    seconds: float | None = None
    """Until the source wants to be asked again, where it said so."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LockEngine:
    """An operator locked the files of a Python engine."""

    release: Release
    by: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryEngine:
    """An operator wants a node to try again at once."""

    node: str
    engine: str
    """Empty for all of the node."""
    by: str


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


Act = ScaleModel | LockEngine | RetryEngine
"""What operators ask for: refused, with nothing changed, or done with an event that says who asked."""

Input = (
    AgentRegistered
    | AgentTurnedAway
    | AgentBeat
    | AgentReported
    | AgentInstalls
    | AgentListens
    | AgentGone
    | RouterCame
    | RouterGone
    | RouterTried
    | CatalogLoaded
    | ReleaseFound
    | ReleaseNotFound
    | Act
    | Tick
    | Overslept
)
