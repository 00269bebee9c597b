"""What is remembered of a model's rolling change? What can be seen of its replicas is not."""

from dataclasses import dataclass

from llmgw.core.facts import Profile
from llmgw.core.names import NodeName


@dataclass(frozen=True, slots=True, kw_only=True)
class Roll:
    """A rolling change from its first move until its last replica is ready, or for as long as it stands still."""

    version: str
    """It leads to this one."""
    former: str
    """That the replica had which was to go first."""
    profile: Profile
    """The model's, for which it was begun."""
    emptied: NodeName | None = None
    """The node whose replica went before there was another."""
    failed_on: NodeName | None = None
    """Where it stopped."""
    problem: str = ""
    """Why it stopped, in words; empty while it goes on."""
