"""What does it mean to launch an engine? The words that all forms of launching share.

An engine is nobody's child: it outlives the agent, and an agent that starts again finds it by what stands in the
shard's directory, never by its pid alone. Every engine carries a mark in its environment, and what carries another
cluster's or node's mark is not touched.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from llmgw.core.names import NodeName, ShardId

MARK = "LLMGW_ENGINE"
"""The environment variable that holds an engine's mark."""

MARKED = f"{MARK}="
"""What the word in the environment begins with."""


class LaunchFailed(Exception):
    """No process was started; the text is one line for the operator."""


@dataclass(frozen=True, slots=True)
class Owner:
    """Whose engines these are.

    `instance` is drawn once for each state directory: two clusters of one name on one machine, two demos for example,
    have nodes of one name too, and neither may touch the other's engines.
    """

    cluster: str
    node: NodeName
    instance: str

    def __str__(self) -> str:
        return f"node {self.node} of cluster {self.cluster}"

    def mark(self, shard: ShardId, launch: int) -> str:
        """The mark of one launch of one shard."""
        return f"{self._ours}{shard}/{launch}"

    def marks(self, shard: ShardId, mark: str) -> bool:
        """Whether `mark` is of any launch of this shard."""
        start, _, launch = mark.rpartition("/")
        return start == f"{self._ours}{shard}" and launch.isdecimal()

    def owns(self, mark: str) -> bool:
        """Whether `mark` is of an engine of ours."""
        return mark.startswith(self._ours)

    @property
    def _ours(self) -> str:
        return f"{self.cluster}/{self.node}/{self.instance}/"


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """What to start."""

    shard: ShardId
    launch: int
    argv: tuple[str, ...]
    """No secret is in it: anyone on the machine can read it."""
    environment: Mapping[str, str]
    directory: Path
    """The shard's own; the launcher keeps its files there."""
    log: Path
    """Takes what the engine prints."""


@dataclass(frozen=True, slots=True)
class Exit:
    """How a process ended; both are None when nobody kept it."""

    status: int | None = None
    signal: int | None = None


class Alive(Protocol):
    """An engine process that exists."""

    @property
    def pid(self) -> int:
        """Of the engine itself."""

    async def ended(self) -> Exit:
        """Wait until the engine and all that it started are gone. Cancelling it does nothing to them.

        Raises OSError where the kernel does not say; then nothing is known.
        """

    async def stop(self, grace: float) -> None:
        """Ask the engine and all that it started to end, end them after `grace` seconds; returns when they are gone."""


class Launcher(Protocol):
    """One form of launching. What cannot be found out raises Unknown or OSError, and is never taken for an end."""

    async def start(self, task: Task) -> Alive:
        """Start the engine, ending what may be left of earlier launches of its shard; or raise LaunchFailed."""

    async def find(self, shard: ShardId, launch: int, directory: Path) -> Alive | Exit | None:
        """Return what became of a launch: it runs, it ended, or None when nothing of it is known any more."""

    async def clear(self, shard: ShardId, directory: Path) -> None:
        """Drop what is kept of ended launches; what of them still runs, unknown to all, is ended."""
