"""Why one node cannot take one shard: a typed reason with its numbers, a verdict and what would clear it.

A refusal is a value, never an exception. One class a reason; `code` is stable (JSON, wire, metric label, docs anchor).
"""

from dataclasses import dataclass, fields
from enum import Enum
from typing import ClassVar

from llmgw.core.engines.terms import InstallStep
from llmgw.core.hosts import host_port
from llmgw.core.names import ModelName, NodeName
from llmgw.core.units import NONE, Bytes, age, size, size_up, sizes


class Verdict(Enum):
    """Whether waiting can help."""

    NEVER = "never"
    """Not on this node as it is."""
    NOT_NOW = "not now"
    """When something is freed, comes back or is finished."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeAway:
    """The node's agent is not connected."""

    code: ClassVar[str] = "node_away"
    node: NodeName
    lost: bool
    """Away for so long that its replicas are placed elsewhere."""
    seconds: float

    verdict: ClassVar[Verdict] = Verdict.NOT_NOW

    def __str__(self) -> str:
        return f"{'lost' if self.lost else 'unreachable'} for {age(self.seconds)}"

    @property
    def clears(self) -> str:
        return "its agent reconnects"


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineNotProbed:
    """The node never said which engines it has."""

    code: ClassVar[str] = "engine_not_probed"
    node: NodeName
    engine: str

    verdict: ClassVar[Verdict] = Verdict.NOT_NOW

    def __str__(self) -> str:
        return f"engine: whether it has {self.engine} was not said yet"

    @property
    def clears(self) -> str:
        return "its agent has probed its engines"


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineMissing:
    """The node looked and does not have the engine."""

    code: ClassVar[str] = "engine_missing"
    node: NodeName
    engine: str
    has: tuple[str, ...]
    """The engines that it has."""

    verdict: ClassVar[Verdict] = Verdict.NEVER

    def __str__(self) -> str:
        return f"engine: needs {self.engine}, has {', '.join(self.has) or 'none'}"

    @property
    def clears(self) -> str:
        return f"{self.engine} under engines: in server.yaml or in its agent.yaml"


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineBroken:
    """The node has the engine and saw it fail, or could not install it; the text is the node's own."""

    code: ClassVar[str] = "engine_broken"
    node: NodeName
    engine: str
    text: str
    version: str = ""
    by_hand: bool = False
    """Named in its agent.yaml."""
    installed: bool = True
    """It was ready before; otherwise its install failed."""
    seconds: float | None = None
    """Until the node tries again by itself, where it said so."""

    verdict: ClassVar[Verdict] = Verdict.NOT_NOW

    def __str__(self) -> str:
        if self.installed:
            return f"engine broken: {self.text}"
        return f"engine {self.engine} {self.version} not installed: {self.text}"

    @property
    def clears(self) -> str:
        if self.by_hand:
            return "the engine runs; it is probed each minute"
        again = "" if self.seconds is None else f"; tried again in {age(self.seconds)}"
        state = "it is repaired" if self.installed else "it is installed"
        return f"{state}{again}; `llmgw ctl engine retry {self.node}` tries at once"


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineVersion:
    """The node has the engine at another version than the profile wants."""

    code: ClassVar[str] = "engine_version"
    node: NodeName
    engine: str
    needs: str
    has: str

    verdict: ClassVar[Verdict] = Verdict.NEVER

    def __str__(self) -> str:
        return f"engine: {self.engine} {self.has}, needs {self.needs}"

    @property
    def clears(self) -> str:
        return f"{self.engine} {self.needs} on the node, or another version in the profile"


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineInstalling:
    """The node is installing the engine, or waits to; the text is the node's own."""

    code: ClassVar[str] = "engine_installing"
    node: NodeName
    engine: str
    version: str
    step: InstallStep
    text: str

    verdict: ClassVar[Verdict] = Verdict.NOT_NOW

    def __str__(self) -> str:
        return f"installing {self.engine} {self.version}: {self.text}"

    @property
    def clears(self) -> str:
        return "it is installed; `llmgw ctl engines` shows how far it is"


@dataclass(frozen=True, slots=True, kw_only=True)
class NotEnoughMemory:
    """The replica does not fit in what is left of the node's RAM."""

    code: ClassVar[str] = "not_enough_memory"
    node: NodeName
    need: Bytes
    free: Bytes
    total: Bytes
    """What engines may use on this node in all."""
    more: Bytes = NONE
    """What its memory lacks for the empty node to take it: above `need - total` where a share of it is kept back."""
    by_hand: bool = False
    """Its memory is what agent.yaml states."""
    limited: bool = False
    """Its memory is the limit of a control group."""

    @property
    def verdict(self) -> Verdict:
        """NEVER when the empty node would be too small."""
        return Verdict.NEVER if self.need > self.total else Verdict.NOT_NOW

    def __str__(self) -> str:
        if self.need > self.total:
            need, total = sizes(self.need, self.total)
            return f"memory: needs {need}, engines may use {total}"
        need, free = sizes(self.need, self.free)
        return f"memory: needs {need}, {free} of {size(self.total)} free"

    @property
    def clears(self) -> str:
        if self.need <= self.total:
            return f"{size_up(self.need - self.free)} is freed"
        more = size_up(max(self.more, self.need - self.total))
        way = f"{more} more RAM"
        if self.by_hand:
            way = f"{more} more in memory: of its agent.yaml"
        elif self.limited:
            way = f"{more} more in the limit of its control group"
        return f"{way}, or a smaller `memory:` in the profile"


@dataclass(frozen=True, slots=True, kw_only=True)
class RefusedByNode:
    """The node itself would not start this model; the text is the node's own."""

    code: ClassVar[str] = "refused_by_node"
    node: NodeName
    model: ModelName
    text: str
    seconds: float
    """Until it is asked again."""

    verdict: ClassVar[Verdict] = Verdict.NOT_NOW

    def __str__(self) -> str:
        return f"the node says: {self.text}"

    @property
    def clears(self) -> str:
        return f"that is mended; asked again in {age(self.seconds)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class WillNotObey:
    """The node's agent has obeyed a later epoch than ours, so what we ask of it changes nothing there."""

    code: ClassVar[str] = "will_not_obey"
    node: NodeName
    obeyed: int
    ours: int

    verdict: ClassVar[Verdict] = Verdict.NOT_NOW

    def __str__(self) -> str:
        return f"its agent obeyed epoch {self.obeyed}, ours is {self.ours}"

    @property
    def clears(self) -> str:
        return f"llmgwd has an epoch above {self.obeyed}; an epoch is the time of its start, in seconds since 1970"


@dataclass(frozen=True, slots=True, kw_only=True)
class UnreachableAddress:
    """No router reaches the node where its engines would listen; the text is the router's own."""

    code: ClassVar[str] = "unreachable_address"
    node: NodeName
    router: str
    address: str
    port: int
    error: str

    verdict: ClassVar[Verdict] = Verdict.NOT_NOW

    def __str__(self) -> str:
        return f"address: router {self.router} does not reach {host_port(self.address, self.port)}: {self.error}"

    @property
    def clears(self) -> str:
        return f"{self.router} reaches it; tried again each minute (engine_ports open to routers? address: right?)"


@dataclass(frozen=True, slots=True, kw_only=True)
class AddressNotTried:
    """Routers are trying whether they reach the node."""

    code: ClassVar[str] = "address_not_tried"
    node: NodeName

    verdict: ClassVar[Verdict] = Verdict.NOT_NOW

    def __str__(self) -> str:
        return "address: no router has said yet whether it reaches it"

    @property
    def clears(self) -> str:
        return "a router has tried, within seconds"


Unreached = UnreachableAddress | AddressNotTried
"""What is against a node's address."""

Refusal = (
    NodeAway
    | EngineNotProbed
    | EngineMissing
    | EngineBroken
    | EngineVersion
    | EngineInstalling
    | NotEnoughMemory
    | RefusedByNode
    | WillNotObey
    | UnreachableAddress
    | AddressNotTried
)

DERIVED = ("code", "verdict", "text", "clears")
"""Written on the wire beside the typed form for a reader that does not know the type; ignored on read.

(`text` here is `str(refusal)`; a type may have a field `text` of its own.)
"""


def numbers(refusal: Refusal) -> dict[str, object]:
    """The refusal's own fields, for `--json`: sizes in bytes, durations in seconds, members of enums by their value."""
    own = {f.name: getattr(refusal, f.name) for f in fields(refusal) if f.name not in ("node", "model")}
    return {name: value.value if isinstance(value, Enum) else value for name, value in own.items()}


def counts(refusals: tuple[Refusal, ...]) -> dict[Verdict, int]:
    """How many of each verdict; computed, never stored."""
    return {verdict: sum(1 for r in refusals if r.verdict is verdict) for verdict in Verdict}
