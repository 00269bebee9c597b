"""What can be due at a time? The subjects of the cluster's deadlines."""

from dataclasses import dataclass

from llmgw.core.names import ModelName, NodeName


@dataclass(frozen=True, slots=True)
class NodeDue:
    """A node may have become unreachable, or lost."""

    node: NodeName


@dataclass(frozen=True, slots=True)
class AskDue:
    """A node that would not start this model may be asked again."""

    model: ModelName
    node: NodeName


@dataclass(frozen=True, slots=True)
class ReachDue:
    """Whether a node can be reached is to be judged, or tried again."""

    node: NodeName


@dataclass(frozen=True, slots=True)
class RouterDue:
    """A router that went has not come back."""

    router: str


@dataclass(frozen=True, slots=True)
class WarnDue:
    """A warning about a node says something else from now on, without news of it."""

    node: NodeName


@dataclass(frozen=True, slots=True)
class TellDue:
    """What was not told of a node's changes is to be summed up."""

    node: NodeName


@dataclass(frozen=True, slots=True)
class ReasonsDue:
    """What is kept of why models have no node is to be made anew."""


@dataclass(frozen=True, slots=True)
class ResolveDue:
    """The files of an engine are to be looked up again."""

    engine: str


@dataclass(frozen=True, slots=True)
class TurnDue:
    """A node made no use of its turn to download, or tries again after it failed."""

    node: NodeName


@dataclass(frozen=True, slots=True)
class WordsDue:
    """Refusals are to say how far installs are now."""


@dataclass(frozen=True, slots=True)
class SettleDue:
    """The time that nodes have to come back after a start is over."""


Due = (
    NodeDue
    | AskDue
    | ReachDue
    | ReasonsDue
    | RouterDue
    | WarnDue
    | TellDue
    | ResolveDue
    | TurnDue
    | WordsDue
    | SettleDue
)
