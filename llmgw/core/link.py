"""What an agent and its control plane say to one another: a registration, then what changes; in turn what to run.

`proto/agent/v1` has the wire form of each under the same names. Times are seconds since 1970.
"""

from dataclasses import dataclass

from llmgw.core.engines.orders import EngineOrder
from llmgw.core.engines.terms import Install, Installs
from llmgw.core.facts import Engines, Exposure, ShardOrder, ShardReport
from llmgw.core.inventory import Inventory, Usage
from llmgw.core.names import NodeName


@dataclass(frozen=True, slots=True, kw_only=True)
class Desired:
    """All that one node should run. An agent keeps it on disk before it acts."""

    cluster: str
    epoch: int
    """Of the control plane's leader; a lower one than seen before is not obeyed."""
    revision: int
    settled: bool
    """Only a settled leader's omission stops a shard."""
    exposure: Exposure
    shards: tuple[ShardOrder, ...] = ()
    engines: tuple[EngineOrder, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Registration:
    """The first message of an agent's stream: everything there is to know about the node."""

    node: NodeName
    machine: str
    """The machine-id: tells two machines with one name apart."""
    boot: str
    agent_version: str
    address: str
    """Of the node, where its engines listen when they are exposed; empty where it has no route to anywhere."""
    inventory: Inventory
    engines: Engines | None = None
    installs: tuple[Install, ...] = ()
    files_port: int | None = None
    """Where its agent serves the files of engines to other agents; None where it does not."""
    shards: tuple[ShardReport, ...] = ()
    cluster: str = ""
    """Of the last Desired that it obeyed, with its epoch; empty and 0 when there was none."""
    epoch: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Heartbeat:
    """Sent at the interval the control plane asked for; nothing in it that did not change, but the usage."""

    at: float
    usage: Usage


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What changed on the node: all its shards, and its engines or inventory when those changed."""

    shards: tuple[ShardReport, ...] = ()
    engines: Engines | None = None
    inventory: Inventory | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Listening:
    """The answer to a TryAddress: the agent listens there for routers that try, or says why it cannot."""

    token: str
    host: str = ""
    port: int | None = None
    problem: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Leaving:
    """The agent ends the stream on purpose; the only clean end."""

    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Accepted:
    """The answer to a registration that the control plane took."""

    cluster: str
    epoch: int
    heartbeat: float
    """Seconds between heartbeats."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """The answer to a registration that the control plane did not take, or the end of a session it closes."""

    code: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TryAddress:
    """Asks an agent to listen for a while where its engines would, so that routers can try whether they reach it."""

    token: str
    """What the agent's listener says to whoever connects, so that another machine's answer is not taken for it."""
    exposure: Exposure
    seconds: float
    """How long it should listen."""


def greeting(token: str) -> bytes:
    """What a listener that was asked for by a TryAddress says to whoever connects, and a router expects."""
    return f"llmgw-reach {token}\n".encode()


AgentMessage = Registration | Heartbeat | Report | Installs | Listening | Leaving


ControlMessage = Accepted | Refused | Desired | TryAddress
