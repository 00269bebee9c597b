"""What the ledger looks like from outside: views for operators, routes for routers."""

from collections.abc import Iterator
from dataclasses import replace

from llmgw.core import reach, roll_words, rollout
from llmgw.core.catalog import Model
from llmgw.core.device_warnings import GpuGone
from llmgw.core.facts import Exposure, Profile, Want
from llmgw.core.ledger import Ledger
from llmgw.core.placement import Placement, Unplaced, usable
from llmgw.core.provision import wanted
from llmgw.core.reconcile import on_lost_node, serves
from llmgw.core.refusals import Verdict, counts
from llmgw.core.routes import Route, RouteReplica, Routes
from llmgw.core.shard import ShardState
from llmgw.core.state import Node, Replica, Shard
from llmgw.core.symptoms import of_inventory, shrunk
from llmgw.core.units import NONE
from llmgw.core.views import ModelState, ModelView, NodeView, ReplicaView, ShardView, Why
from llmgw.core.warnings import (
    ClockSkew,
    EngineFails,
    EnginesExposed,
    EpochAhead,
    FoundRunning,
    NodeWarning,
    StrayEngines,
)


def node(ledger: Ledger, record: Node) -> NodeView:
    """A node as operators see it."""
    return NodeView(
        name=record.name,
        state=record.state,
        since=record.since,
        address=record.address,
        agent_version=record.agent_version,
        inventory=record.inventory,
        engines=record.engines,
        usage=record.usage,
        promised=ledger.promised(record.name),
        usable=usable(record.inventory) if record.inventory else NONE,
        reach=ledger.reach.results(record.name),
        installing=wanted.installing(ledger, record),
        warnings=tuple(_warnings(ledger, record)),
    )


def model(ledger: Ledger, record: Model) -> ModelView:
    """A model as operators see it."""
    profile = record.profile
    return ModelView(
        name=record.name,
        aliases=record.aliases,
        state=model_state(ledger, record),
        wanted=record.replicas,
        ready=sum(1 for replica in ledger.replicas_of(record.name) if serves(replica, ledger.node_state)),
        away=sum(1 for replica in ledger.replicas_of(record.name) if _away(ledger, replica)),
        declared=ledger.declared[record.name].replicas,
        context=profile.context,
        slots=profile.slots,
        memory=profile.memory,
        engine=_engine(profile),
        refusals=ledger.refusals.get(record.name, ()),
        roll=roll_words.words(ledger, record),
    )


def replica(ledger: Ledger, record: Replica) -> ReplicaView:
    """A replica as operators see it."""
    return ReplicaView(
        id=record.id,
        model=record.model,
        state=record.state,
        leaving=record.want is not Want.RUN,
        adopted=record.adopted,
        outdated=outdated(ledger, record),
        engine=_engine(record.profile),
        since=record.placed_at,
        shards=tuple(_shard(shard) for shard in record.shards),
    )


def outdated(ledger: Ledger, record: Replica) -> bool:
    """Whether it has an older profile, and no rolling change replaces it: only a `scale` does."""
    now = ledger.models.get(record.model)
    if now is None or not older(ledger, record):
        return False
    if not rollout.is_behind(ledger, now, record):
        return True
    return rollout.stopped(ledger, now) is not None and replace(now.profile, version=record.profile.version) != (
        record.profile
    )


def older(ledger: Ledger, record: Replica) -> bool:
    """Whether its profile is not its model's any more, or its node would run it with another version now."""
    now = ledger.models.get(record.model)
    if now is None:
        return False
    version = rollout.version_now(ledger, now, record)
    return replace(now.profile, version=version) != record.profile


def _engine(profile: Profile) -> str:
    return f"{profile.engine} {profile.version}".strip()


def model_state(ledger: Ledger, record: Model) -> ModelState:
    """What a client can expect of a model."""
    staying = [one for one in ledger.replicas_of(record.name) if one.want is Want.RUN]
    ready = sum(1 for one in staying if serves(one, ledger.node_state))
    if record.replicas == 0:
        return ModelState.STOPPED
    if ready >= record.replicas:
        return ModelState.READY
    if ready or any(_away(ledger, one) for one in staying):
        return ModelState.DEGRADED
    states = {one.state for one in staying}
    if states & {ShardState.PLACED, ShardState.FETCHING, ShardState.STARTING}:
        return ModelState.STARTING
    if ShardState.FAILED in states:
        return ModelState.FAILED
    return ModelState.REFUSED if record.name in ledger.refusals else ModelState.STARTING


def why(ledger: Ledger, record: Model, answer: Placement | Unplaced, now: float) -> Why:
    """Each node's answer to one more replica."""
    running = [one for one in ledger.replicas_of(record.name) if one.want is Want.RUN]
    placed = sum(1 for one in running if not on_lost_node(one, ledger.node_state))
    return Why(
        model=record.name,
        state=model_state(ledger, record),
        wanted=record.replicas,
        placed=placed,
        memory=record.profile.memory,
        engine=_engine(record.profile),
        refusals=answer.refusals,
        fits=answer.fits if isinstance(answer, Placement) else (),
        revision=ledger.revision,
        now=now,
    )


def routes(ledger: Ledger) -> Routes:
    """Where every model is served.

    A replica of a node that is away stays: its engine may well serve, and the router finds out. It goes when the
    control plane drains it.
    """
    return Routes(
        revision=ledger.revision, routes=tuple(_route(ledger, ledger.models[name]) for name in sorted(ledger.models))
    )


def _route(ledger: Ledger, record: Model) -> Route:
    verdicts = counts(ledger.refusals.get(record.name, ()))
    places = [_place(ledger, one) for one in ledger.replicas_of(record.name) if one.want is Want.RUN]
    return Route(
        model=record.name,
        aliases=record.aliases,
        replicas=tuple(place for place in places if place is not None),
        state=model_state(ledger, record),
        not_now=verdicts[Verdict.NOT_NOW],
        never=verdicts[Verdict.NEVER],
        created=ledger.started,
    )


def _place(ledger: Ledger, record: Replica) -> RouteReplica | None:
    head = record.shards[0]
    report = head.report
    if record.state is not ShardState.READY or report is None or report.port is None:
        return None
    return RouteReplica(
        id=record.id,
        launch=report.launch,
        node=head.node,
        machine=ledger.nodes[head.node].machine if head.node in ledger.nodes else "",
        host=report.host,
        port=report.port,
        key=report.key,
        slots=record.profile.slots,
    )


def _shard(record: Shard) -> ShardView:
    report = record.report
    if report is None:
        return ShardView(shard=record.id, node=record.node, rank=record.rank, state=record.state, since=record.since)
    return ShardView(
        shard=record.id,
        node=record.node,
        rank=record.rank,
        state=report.state,
        since=report.since,
        launch=report.launch,
        pid=report.pid,
        host=report.host,
        port=report.port,
        attempts=report.attempts,
        retry_at=report.retry_at,
        failure=report.failure,
    )


def _away(ledger: Ledger, record: Replica) -> bool:
    """Ready by what was said last, on a node that says nothing now."""
    if record.want is not Want.RUN or record.state is not ShardState.READY:
        return False
    return not serves(record, ledger.node_state)


def _warnings(ledger: Ledger, record: Node) -> list[NodeWarning]:
    found: list[NodeWarning] = []
    if ledger.settings.exposure is Exposure.DIRECT:
        found.append(EnginesExposed())
    if record.epoch > ledger.epoch:
        found.append(EpochAhead(obeyed=record.epoch, ours=ledger.epoch))
    if record.skew:
        found.append(ClockSkew(seconds=record.skew))
    found += _of_machine(ledger, record)
    found += reach.warnings(ledger.reach.results(record.name))
    for report in record.engines.engines if record.engines else ():
        if report.problem:
            found.append(EngineFails(engine=report.engine, text=report.problem))
    adopted = tuple(one.id for one in ledger.replicas_on(record.name) if one.adopted)
    if adopted:
        found.append(FoundRunning(replicas=adopted))
    if strays := tuple(ledger.strays.get(record.name, ())):
        found.append(StrayEngines(shards=strays))
    return found


def _of_machine(ledger: Ledger, record: Node) -> Iterator[NodeWarning]:
    """What it says of itself, held against what it said before and what others say."""
    inventory = record.inventory
    if inventory is None:
        return
    if (less := shrunk(inventory, record.registered)) is not None:
        yield less
    for gpu in record.gone_gpus:
        yield GpuGone(name=gpu.name, uuid=gpu.uuid)
    yield from of_inventory(inventory, ledger.now, record.name)
    yield from ledger.subnets.differing(record.name)
