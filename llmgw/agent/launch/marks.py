"""Is this process an engine of ours? By the mark in its environment, which what it starts inherits."""

from collections.abc import Iterable

from llmgw.agent.launch import pids
from llmgw.agent.launch.launcher import MARKED, Owner


def runs(owner: Owner, pid: int) -> bool:
    """Whether `pid` is of an engine of `owner`'s; False also for a process that we may not look into."""
    return any(owner.owns(mark) for mark in marks(pids.environment(pid)))


def marks(environment: Iterable[str]) -> list[str]:
    """The marks in a process's environment; one that has any is of an engine of ours, whichever agent's."""
    return [word.removeprefix(MARKED) for word in environment if word.startswith(MARKED)]
