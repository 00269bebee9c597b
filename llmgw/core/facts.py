"""What nodes say about their engines and shards, and what they are told to run.

With `inventory.py` these are the vocabulary of the agent link; `proto/facts/v1` has the wire form of each under the
same names. Times are seconds since 1970, sizes bytes.
"""

from dataclasses import dataclass, field
from enum import Enum

from llmgw.core.names import ModelName, ShardId
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
    """Named in agent.yaml; otherwise installed by us."""
    variant: str = ""
    """Of an installed one: `cpu`, `cuda 13.3`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Engines:
    """One probe of all engines that were ever ready, of each version one.

    An empty list means "has none"; a probe never made is no `Engines` at all.
    """

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
