"""What stands in a replica's row, under its model or on its node?"""

from collections.abc import Iterable

from llmgw.core.facts import Failure
from llmgw.core.hosts import host_port
from llmgw.core.safe import Safe, safe
from llmgw.core.shard import ShardState
from llmgw.core.views import ReplicaView, ShardView
from llmgw.tui.rows.row import EMPTY, Cell, Column, Entry, Row, Tone
from llmgw.tui.view import View

COLUMNS = (
    Column(safe("REPLICA"), most=32),
    Column(safe("STATE"), most=12),
    Column(safe("FOR"), right=True, most=7),
    Column(safe("NODES"), most=30),
    Column(safe("SERVES AT"), most=24, spare=1),
    Column(safe("PID"), right=True, spare=2),
    Column(safe("WHAT"), most=60, least=40),
)

TONES = {
    ShardState.PLACED: Tone.BUSY,
    ShardState.FETCHING: Tone.BUSY,
    ShardState.STARTING: Tone.BUSY,
    ShardState.READY: Tone.GOOD,
    ShardState.DRAINING: Tone.WARN,
    ShardState.STOPPED: Tone.QUIET,
    ShardState.FAILED: Tone.BAD,
}

OUTDATED = safe("runs an older profile; scale it down and up to change it")


def entries(view: View, node: str) -> Iterable[Entry]:
    """The replicas with a shard on the node."""
    for replica in view.replicas.on(node):
        yield replica.id, row, (replica, view.is_away(replica))


def row(replica: ReplicaView, away: bool) -> Row:
    """The row of one replica; `away`: a node of it says nothing now."""
    return Row(
        key=replica.id,
        cells=(
            Cell(safe(replica.id)),
            state(replica),
            Cell(safe(""), Tone.QUIET, at=replica.since),
            Cell(nodes(replica)),
            _address(replica),
            _pid(replica),
            what(replica, away),
        ),
        detail=tuple(detail(replica)),
    )


def state(replica: ReplicaView) -> Cell:
    """Its state in a word."""
    return Cell(safe(replica.state.value), TONES[replica.state])


def nodes(replica: ReplicaView) -> Safe:
    """Where its shards are."""
    return safe(" ".join(shard.node for shard in replica.shards) or "no node")


def what(replica: ReplicaView, away: bool = False) -> Cell:
    """What is special about it: that nobody hears it, why it failed and when it is tried again, who placed it.

    Of one that is as it should be its engine.
    """
    if away and replica.state is ShardState.READY:
        return Cell(safe("node away, may still serve"), Tone.WARN)
    for shard in replica.shards:
        if shard.state is ShardState.FAILED and shard.failure is not None:
            return _failed(shard, shard.failure)
    if away:
        return Cell(safe("node away"), Tone.WARN)
    if replica.adopted:
        return Cell(safe("adopted: found running, stays until you decide"), Tone.WARN)
    if replica.leaving:
        return Cell(safe("leaving"), Tone.QUIET)
    if replica.outdated:
        return Cell(OUTDATED, Tone.WARN)
    again = max((shard.attempts for shard in replica.shards), default=0)
    if again and replica.state is not ShardState.READY:
        return Cell(safe(f"attempt {again + 1}"), Tone.WARN)
    return Cell(safe(replica.engine), Tone.QUIET)


def detail(replica: ReplicaView) -> list[Safe]:
    """What its row may have no room for: why its last failure was, in the engine's last words."""
    lines = [safe(f"{replica.id} {OUTDATED}")] if replica.outdated else []
    for shard in replica.shards:
        if shard.failure is not None:
            lines.append(safe(f"{shard.shard} on {shard.node}: {shard.failure.text}"))
            lines += [safe(f"  {line}") for line in shard.failure.last_lines]
    return lines


def _failed(shard: ShardView, failure: Failure) -> Cell:
    if shard.retry_at is None:
        return Cell(safe(failure.text), Tone.BAD)
    return Cell(safe(f"{failure.text}, attempt {shard.attempts + 1} in "), Tone.BAD, at=shard.retry_at, until=True)


def _address(replica: ReplicaView) -> Cell:
    heads = (shard for shard in replica.shards if shard.rank == 0)
    first = next((host_port(shard.host, shard.port) for shard in heads if shard.port is not None), None)
    return EMPTY if first is None else Cell(safe(first))


def _pid(replica: ReplicaView) -> Cell:
    pids = [shard.pid for shard in replica.shards if shard.pid is not None]
    return Cell(safe(" ".join(map(str, pids)))) if pids else EMPTY
