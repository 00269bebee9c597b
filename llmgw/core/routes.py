"""What routers are told: where each model is served, and which nodes to try to reach.

`proto/operator/v1` has the wire form.
"""

from dataclasses import dataclass, field

from llmgw.core.facts import Secret
from llmgw.core.names import ModelName, NodeName, ReplicaId
from llmgw.core.views import ModelState, Revision


@dataclass(frozen=True, slots=True, kw_only=True)
class RouteReplica:
    """Where one replica serves."""

    id: ReplicaId
    launch: int
    """With `id` it names one engine process: a restarted engine is another."""
    node: NodeName
    machine: str
    """The machine-id, so that a router knows whether a loopback address is its own."""
    host: str
    port: int
    key: Secret = field(default=Secret(""), repr=False)
    slots: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """A model as routers see it: where it is served, or why not."""

    model: ModelName
    aliases: tuple[str, ...] = ()
    replicas: tuple[RouteReplica, ...] = ()
    state: ModelState
    not_now: int = 0
    never: int = 0
    """How many nodes refuse it with which verdict."""
    created: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Routes:
    """The whole table; the next one replaces it."""

    revision: Revision
    routes: tuple[Route, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """What a router is asked to try: to reach a node's listener and hear the token from it."""

    token: str
    node: NodeName
    machine: str
    """Of the node: a loopback address is for routers on the same machine only."""
    host: str
    port: int
    stream: str = ""
    """Of the stream that it came on, known to its reader alone; what the answer names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tried:
    """A router's answer to an Attempt."""

    token: str
    error: str = ""
    """Why it does not reach it, in one line; empty when it does."""
    stream: str = ""
    """The Attempt's: two routers may have one name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Noted:
    """The control plane has heard."""
