"""Is this process an engine of ours? By the mark in its environment, which what it starts inherits."""

from llmgw.agent.launch import pids
from llmgw.agent.launch.launcher import MARKED, Owner


def runs(owner: Owner, pid: int) -> bool:
    """Whether `pid` is of an engine of `owner`'s; False also for a process that we may not look into."""
    return any(word.startswith(MARKED) and owner.owns(word.removeprefix(MARKED)) for word in pids.environment(pid))
