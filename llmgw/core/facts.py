"""What nodes say about their engines and shards, and what they are told to run.

With `inventory.py` these are the vocabulary of the agent link; `proto/facts/v1` has the wire form of each under the
same names. Times are seconds since 1970, sizes bytes.
"""

from dataclasses import dataclass, field
from enum import Enum

from llmgw.core.inventory import Inventory, Usage
from llmgw.core.names import ModelName, NodeName, ShardId
from llmgw.core.shard import ShardState
from llmgw.core.units import Bytes


class Secret(str):
    """A string that no log, repr or table shows. Compare and encode it as the string it is."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "Secret(…)"


class Exposure(Enum):
    """Where engines listen."""

    LOOPBACK = "loopback"
    """127.0.0.1: only a router on the same machine reaches them."""
    DIRECT = "direct"
    """The node's address, plain HTTP with a key per launch; shown as a warning."""


class Want(Enum):
    """What the control plane wants of a shard."""

    RUN = "run"
    DRAIN = "drain"
    """Finish what it serves, then stop."""
    STOP = "stop"


# --- which engines -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineReport:
    """An engine on a node: seen to run, or with the reason why it was not."""

    engine: str
    version: str = ""
    path: str = ""
    problem: str = ""
    """Empty when it ran; otherwise the node's own words."""
    by_hand: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Engines:
    """One probe of all engines. An empty list means "has none"; a probe never made is no `Engines` at all."""

    probed_at: float
    engines: tuple[EngineReport, ...] = ()


# --- what runs --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """How a model runs. What is reserved here is what is passed to the engine."""

    engine: str
    version: str = ""
    """The version wanted; empty takes what the node has."""
    weights: str
    """Absolute path on the node."""
    context: int = 4096
    """Tokens per request; llama.cpp is given context × slots."""
    slots: int = 1
    """Requests served at once by one replica."""
    memory: Bytes
    """RAM of one replica, weights and prompt cache included."""
    threads: int = 0
    """CPU threads; 0 leaves it to the engine."""
    arguments: tuple[str, ...] = ()
    """More arguments for the engine, as written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardOrder:
    """One shard that a node should run, drain or stop."""

    shard: ShardId
    model: ModelName
    aliases: tuple[str, ...] = ()
    want: Want
    profile: Profile
    drain: float = 30.0
    """Seconds a drain may take before the engine is stopped all the same."""


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """Why a shard is not running; at most one of `exit_status` and `signal` is set."""

    kind: "FailureKind"
    text: str
    """One line, the node's own words."""
    exit_status: int | None = None
    signal: int | None = None
    last_lines: tuple[str, ...] = ()
    """The engine's last lines of output, at most 40."""
    at: float


class FailureKind(Enum):
    """What went wrong with a shard."""

    REFUSED = "refused"
    """The node would not start it: the profile does not fit what is there."""
    EXITED = "exited"
    """The engine process ended by itself."""
    TIMEOUT = "timeout"
    """It did not become ready in time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardReport:
    """One shard as its node sees it."""

    shard: ShardId
    state: ShardState
    since: float
    """When it entered this state."""
    launch: int = 0
    """Counts the launches of this shard on its node; with the shard's id it names one engine process."""
    pid: int | None = None
    host: str = ""
    port: int | None = None
    key: Secret = field(default=Secret(""), repr=False)
    """The engine's API key. Goes to routers only."""
    attempts: int = 0
    """Launches in a row that failed."""
    retry_at: float | None = None
    failure: Failure | None = None
    """The last one, kept while the shard is tried again."""
    order: ShardOrder | None = None
    """What it was launched with, so that a control plane without memory can adopt it."""


# --- the agent link ---------------------------------------------------------------------------------------------


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


AgentMessage = Registration | Heartbeat | Report | Listening | Leaving
ControlMessage = Accepted | Refused | Desired | TryAddress
