"""Which engines carry our node's name and another state's mark? Nobody ends those, so somebody must be told."""

from llmgw.agent.launch import pids
from llmgw.agent.launch.launcher import MARK, Owner

_WORD = f"{MARK}="


def namesakes(owner: Owner) -> dict[int, str]:
    """Return their pids with their shards: of an agent whose state was lost, or of another agent of this name."""
    names = f"{_WORD}{owner.cluster}/{owner.node}/"

    def stranger(word: str) -> bool:
        return word.startswith(names) and not owner.owns(word.removeprefix(_WORD))

    found = {}
    for pid in pids.carrying(stranger):
        mark = next((word for word in pids.environment(pid) if stranger(word)), names)
        found[pid] = mark.removeprefix(names).partition("/")[2].rpartition("/")[0]
    return found


def warning(owner: Owner) -> str:
    """What to say about them in one line; empty when there are none."""
    found = [f"{shard} (pid {pid})" for pid, shard in sorted(namesakes(owner).items())]
    if not found:
        return ""
    return (
        f"engines of {owner} run here that this state does not know, {', '.join(found[:8])}; they are of another agent "
        "or of one whose state was lost: then end them by hand, for their memory is in use and counted nowhere"
    )
