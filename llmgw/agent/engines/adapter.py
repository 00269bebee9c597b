"""What does the agent need to know of an engine program? One module per program answers all of it."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Protocol

from llmgw.core.facts import ShardOrder


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where an engine is told to listen, and the file that holds its key."""

    host: str
    port: int
    key_file: Path


class Ready(Enum):
    """What an engine says of itself."""

    READY = "ready"
    LOADING = "loading"
    WRONG = "wrong"
    """It answered something else: not our engine, or broken."""


class Adapter(Protocol):
    """The shape of an engine's module."""

    HEALTH: str
    """The path that says whether the engine can serve."""
    OWN: str
    """A path that only the engine's own key opens: whoever else answers on its port is not our engine."""
    METRICS: str

    def version(self, text: str) -> str | None:
        """The version that `--version` printed, None when there is none in it."""

    def flags(self, text: str) -> frozenset[str]:
        """The flags that `--help` lists."""

    def lacking(self, known: frozenset[str]) -> str:
        """What a build with these flags cannot be told, as a problem; empty when nothing."""

    def argv(self, program: str, order: ShardOrder, place: Place, known: frozenset[str]) -> tuple[str, ...]:
        """The command line; BadProfile for arguments that a profile may not have."""

    def cache_ram(self, arguments: Sequence[str]) -> int | None:
        """MiB of prompt cache that a profile's arguments ask for; BadProfile when that has no bound."""

    def health(self, status: int) -> Ready:
        """What the HTTP status of `HEALTH` means."""

    def serving(self, metrics: bytes) -> int | None:
        """How many requests the engine has, by the body of `METRICS`; None when it does not say."""
