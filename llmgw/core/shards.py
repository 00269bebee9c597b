"""Orders to nodes and their reports, shard by shard.

What a node reports is a fact: it is taken as it is, and what changed becomes an event. A running engine that nobody
placed is never stopped: it is adopted, or shown as a stray that gets no requests.
"""

from collections.abc import Iterable
from dataclasses import replace

from llmgw.core.due import AskDue
from llmgw.core.errors import BadName
from llmgw.core.events import EventKind
from llmgw.core.facts import FailureKind, ShardOrder, ShardReport, Want
from llmgw.core.ledger import Ledger, NodesWords
from llmgw.core.names import ModelName, NodeName, ShardId, replica_of, split_shard
from llmgw.core.placement import usable
from llmgw.core.reconcile import gap
from llmgw.core.shard import ShardState
from llmgw.core.state import Replica, Shard
from llmgw.core.units import age

ASK_AGAIN, ASK_AGAIN_AT_MOST = 60.0, 600.0
"""Seconds until a node that would not start a model is asked again; doubled each time."""

_MOST_ADOPTED = 900_000_000
"""Ordinals above are a node's invention: the names that are left must do for ever."""

_RUNNING = (ShardState.STARTING, ShardState.READY, ShardState.DRAINING)
_EVENTS = {
    ShardState.STARTING: EventKind.SHARD_STARTING,
    ShardState.READY: EventKind.SHARD_READY,
    ShardState.DRAINING: EventKind.SHARD_DRAINING,
    ShardState.STOPPED: EventKind.SHARD_STOPPED,
    ShardState.FAILED: EventKind.SHARD_FAILED,
}


def orders(ledger: Ledger, node: NodeName) -> tuple[ShardOrder, ...]:
    """Return what a node should run, by shard; strays are kept running as they were found."""
    own = [
        _order(ledger, replica, shard.id)
        for replica in ledger.replicas_on(node)
        for shard in replica.shards
        if shard.node == node
    ]
    strays = [report.order for _, report in sorted(ledger.strays.get(node, {}).items())]
    return (*own, *(replace(order, want=Want.RUN) for order in strays if order))


def _order(ledger: Ledger, replica: Replica, shard: ShardId) -> ShardOrder:
    model = ledger.models.get(replica.model)
    return ShardOrder(
        shard=shard,
        model=replica.model,
        aliases=model.aliases if model else (),
        want=replica.want,
        profile=replica.profile,
        drain=ledger.settings.drain,
    )


def retire(ledger: Ledger, replica: Replica, *, want: Want = Want.DRAIN, why: str) -> None:
    """Let a replica go; it keeps its assignment until its node says that it is gone."""
    event = ledger.emit(EventKind.REPLICA_DRAINED, replica.id, f"{why} (on {', '.join(replica.nodes)})")
    ledger.caused(replica.id, event)
    for shard in replica.shards:
        ledger.caused(shard.id, event)
    ledger.put_replica(replace(replica, want=want), save=True)


def take(ledger: Ledger, node: NodeName, reports: Iterable[ShardReport]) -> None:
    """Take all that a node says of its shards; what it leaves out it does not have."""
    said = {report.shard: report for report in reports}
    for replica in ledger.replicas_on(node):
        for shard in replica.shards:
            if shard.node == node:
                _take_one(ledger, replica, shard, said.pop(shard.id, None))
    running = {shard: report for shard, report in said.items() if report.state in _RUNNING}
    for gone in ledger.strays.get(node, {}).keys() - running.keys():
        ledger.drop_stray(node, gone)
        ledger.turn.models |= ledger.short_of_room  # what it held is free now
    for report in running.values():
        _found(ledger, node, report)


def _take_one(ledger: Ledger, replica: Replica, shard: Shard, report: ShardReport | None) -> None:
    if report is None:
        _not_there(ledger, replica, shard)
        return
    if shard.report == report:
        return
    _say(ledger, shard, report)
    shards = tuple(
        replace(one, report=report, since=report.since) if one.id == shard.id else one for one in replica.shards
    )
    replica = replace(replica, shards=shards)
    replica = replace(replica, was_ready=replica.was_ready or _was_ready(replica, report))
    ledger.put_replica(replica)
    _hear_refusal(ledger, replica, shard, report)
    if replica.want is not Want.RUN and replica.state is ShardState.STOPPED:
        _removed(ledger, replica)


def _was_ready(replica: Replica, report: ShardReport) -> bool:
    """Of one that failed before we knew it the launches tell: those that failed in a row are counted again from 0."""
    failed_only = report.launch <= report.attempts + 1  # the next launch is counted while it is failed
    return replica.state is ShardState.READY or (report.state is ShardState.FAILED and not failed_only)


def _not_there(ledger: Ledger, replica: Replica, shard: Shard) -> None:
    """The node does not have it: gone if it was to go or was only ever found there, else not started yet."""
    if replica.want is not Want.RUN or replica.adopted:
        _removed(ledger, replica)
    elif shard.report is not None:
        shards = tuple(
            replace(one, report=None, since=ledger.now) if one.id == shard.id else one for one in replica.shards
        )
        ledger.put_replica(replace(replica, shards=shards))


def _removed(ledger: Ledger, replica: Replica) -> None:
    ledger.emit(EventKind.REPLICA_REMOVED, replica.id, f"gone from {', '.join(replica.nodes)}")
    ledger.drop_replica(replica)


def _say(ledger: Ledger, shard: Shard, report: ShardReport) -> None:
    """One event for each change of state; a launch or a failure that nobody saw come and go counts as one."""
    if shard.report is not None and _step(shard.report) == _step(report):
        return
    kind = _EVENTS.get(report.state)
    if kind is None:
        return
    if kind is EventKind.SHARD_FAILED and report.failure is not None:
        event = ledger.emit(kind, shard.id, _failed(ledger, shard, report), lines=report.failure.last_lines)
    else:
        event = ledger.emit(kind, shard.id, _where(shard, report))
    ledger.caused(shard.id, event)


def _step(report: ShardReport) -> tuple[ShardState, int]:
    """What makes a report news. A failed shard is launched again while it is failed: then only failures count."""
    return report.state, report.attempts if report.state is ShardState.FAILED else report.launch


def _where(shard: Shard, report: ShardReport) -> str:
    port = f":{report.port}" if report.port else ""
    pid = f", pid {report.pid}" if report.pid else ""
    return f"on {shard.node}{port}{pid}"


def _failed(ledger: Ledger, shard: Shard, report: ShardReport) -> str:
    assert report.failure is not None
    # Both times are of the node's clock, which may not be ours.
    retry = f"; tried again in {age(report.retry_at - report.failure.at)}" if report.retry_at else ""
    return f"on {shard.node}: {report.failure.text}{retry}"


def _hear_refusal(ledger: Ledger, replica: Replica, shard: Shard, report: ShardReport) -> None:
    """The node would not start it: its words bar this model there for a while, and the replica goes elsewhere."""
    key = (replica.model, shard.node)
    if report.state is ShardState.READY:
        ledger.words.pop(key, None)
    failure = report.failure
    if report.state is not ShardState.FAILED or failure is None or failure.kind is not FailureKind.REFUSED:
        return
    if replica.want is not Want.RUN or replica.adopted:
        return
    times = ledger.words[key].times + 1 if key in ledger.words else 1
    until = ledger.now + min(ASK_AGAIN * 2 ** min(times - 1, 10), ASK_AGAIN_AT_MOST)
    ledger.words[key] = NodesWords(text=failure.text, until=until, times=times)
    ledger.deadlines.set(AskDue(*key), until)
    retire(ledger, replica, want=Want.STOP, why=f"{shard.node} would not start it: {failure.text}")


def _found(ledger: Ledger, node: NodeName, report: ShardReport) -> None:
    """A running engine that is in no assignment: the store was lost or is older than the engine, or the node lies."""
    try:
        model, ordinal, _ = split_shard(report.shard)
    except BadName:  # the wire checks the grammar; an agent of another version may not
        return
    if report.order is None or not _adoptable(ledger, node, model, report.order):
        _strayed(ledger, node, report)
        return
    replica = replica_of(report.shard)
    ledger.drop_stray(node, report.shard)
    ledger.reserve_ordinal(model, ordinal)
    ledger.emit(EventKind.REPLICA_ADOPTED, replica, f"found running on {node}, not in the store")
    ledger.put_replica(_adopted(ledger, node, model, report), save=True)


def adopt_strays(ledger: Ledger, model: ModelName) -> None:
    """Take over strays of a model that has a place for them now."""
    for node in sorted(ledger.strays):
        for shard, report in sorted(ledger.strays[node].items()):
            if split_shard(shard)[0] == model:
                _found(ledger, node, report)


def _adoptable(ledger: Ledger, node: NodeName, model: ModelName, order: ShardOrder) -> bool:
    """Whether it may become a replica.

    After a start all that runs and fits its node is taken over: the store may have been lost. Later only what fills
    an empty place is, so that no node draws a model to itself by saying that it runs it.
    """
    if replica_of(order.shard) in ledger.replicas or split_shard(order.shard)[1] > _MOST_ADOPTED:
        return False
    inventory = ledger.nodes[node].inventory
    # As a stray it holds its memory already.
    held = order.profile.memory if order.shard in ledger.strays.get(node, {}) else 0
    room = usable(inventory) - ledger.promised(node) + held if inventory else 0
    if order.profile.memory > room:
        return False
    declared = ledger.models.get(model)
    if not ledger.settled:
        return True
    return declared is not None and gap(declared.replicas, ledger.replicas_of(model), ledger.node_state).missing > 0


def _strayed(ledger: Ledger, node: NodeName, report: ShardReport) -> None:
    before = ledger.strays.get(node, {}).get(report.shard)
    if before == report:
        return
    if before is None and ledger.is_news(node, "strays"):
        text = f"{report.shard} runs there and was not ordered; it is left running and gets no requests"
        ledger.emit(EventKind.STRAY_FOUND, node, text)
    ledger.put_stray(node, report)
    model, ordinal, _ = split_shard(report.shard)
    if model in ledger.models and ordinal <= _MOST_ADOPTED:
        ledger.reserve_ordinal(model, ordinal)


def _adopted(ledger: Ledger, node: NodeName, model: ModelName, report: ShardReport) -> Replica:
    assert report.order is not None
    shard = Shard(id=report.shard, node=node, rank=0, since=report.since, report=report)
    return Replica(
        id=replica_of(report.shard),
        model=model,
        profile=report.order.profile,
        want=Want.RUN,
        placed_at=ledger.now,
        adopted=True,
        shards=(shard,),
    )
