"""What one look at a host gives: its checks, and what several of them say of the clock together."""

import asyncio
from collections.abc import Awaitable
from dataclasses import dataclass, field

from llmgw.agent.patience import words
from llmgw.cli.examine.user import as_root, user
from llmgw.core.checks import Check, fault, warning
from llmgw.core.errors import LlmgwError


@dataclass(frozen=True, slots=True, kw_only=True)
class Skew:
    """How far our clock is from a control plane's."""

    address: str
    seconds: float
    """Positive: ours is behind."""
    round_trip: float
    """Seconds that the question took: half of it is how far off `seconds` may be."""


@dataclass(slots=True)
class Findings:
    """What was found out so far."""

    checks: list[Check] = field(default_factory=list)
    skews: list[Skew] = field(default_factory=list)
    alone: bool = False
    """The whole cluster is on this machine: there is no other clock to agree with."""
    strange: bool = False
    """A control plane showed a certificate of another authority than ours."""
    early: bool = False
    """Our certificate and its authority begin later than it is here: no other clock is needed to judge this one."""

    def add(self, other: "Findings") -> None:
        """Take what another look found."""
        self.checks += other.checks
        self.skews += other.skews
        self.alone = self.alone or other.alone
        self.strange = self.strange or other.strange
        self.early = self.early or other.early


async def bounded(name: str, what: str, work: Awaitable[list[Check]], seconds: float) -> list[Check]:
    """The checks of `work`; trouble in it is a check too, so that it stops no other."""
    try:
        async with asyncio.timeout(seconds):
            return await work
    except TimeoutError:
        fact = f"{what} did not answer within {seconds:g} s"
        return [fault(name, fact, "see what holds it up: a dead share, a driver")]
    except PermissionError as error:
        return [warning(name, f"{what} cannot be looked at by {user()}: {words(error)}", as_root())]
    except (OSError, LlmgwError) as error:
        return [fault(name, f"{what} cannot be looked at: {words(error)}", "see to it, and run this again")]
