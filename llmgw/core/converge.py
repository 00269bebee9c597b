"""What should an agent do next? What is wanted and what runs go in; the shards after the decision and steps come out.

```text
Desired ─▶ objection? ─▶ admit ─▶ decide ─▶ steps (Launch, Stop, Forget) ─▶ the agent acts
                                    ▲                                            │
                                    └── local_shard.happened(shard, outcome) ◀───┘
```
Level-triggered: `decide` looks at how things are, never at how they came to be so; asked again it has no more steps.
Nothing is stopped by omission alone: only a settled leader's `Desired`, of the same cluster and of no lower epoch than
was ever obeyed, stops a shard by leaving it out.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from llmgw.core.facts import Exposure, Failure, FailureKind, ShardOrder, Want
from llmgw.core.link import Desired
from llmgw.core.local_shard import STEADY, Doing, LocalShard, failed, moved
from llmgw.core.names import ShardId
from llmgw.core.shard import ShardEvent, ShardState
from llmgw.core.units import age

_S, _E = ShardState, ShardEvent


# --- what an agent does -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """Check the profile and start the engine."""

    order: ShardOrder
    launch: int
    exposure: Exposure


@dataclass(frozen=True, slots=True, kw_only=True)
class Stop:
    """End the engine process and all that it started."""

    shard: ShardId
    launch: int
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Forget:
    """Nothing runs and nobody asks for it: remove what the node keeps about it."""

    shard: ShardId
    launch: int


Step = Launch | Stop | Forget


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """The shards with what was decided marked in them, and the steps to take."""

    shards: Mapping[ShardId, LocalShard]
    steps: tuple[Step, ...] = ()


# --- obeying ----------------------------------------------------------------------------------------------------


def objection(desired: Desired, epoch: int, cluster: str) -> str | None:
    """Return why `desired` is not obeyed by an agent of `cluster` that obeyed `epoch` (0: none yet), or None."""
    if desired.cluster != cluster:
        return f"it is of cluster {desired.cluster}, this agent belongs to {cluster}"
    if desired.epoch < epoch:
        return f"it is of epoch {desired.epoch}, epoch {epoch} was obeyed before"
    return None


def admit(desired: Desired, shards: Mapping[ShardId, LocalShard], now: float) -> dict[ShardId, LocalShard]:
    """Return the shards with those that `desired` names for the first time."""
    known = dict(shards)
    for order in desired.shards:
        if order.shard not in known:
            known[order.shard] = LocalShard(order=order, since=now)
    return known


def decide(desired: Desired | None, shards: Mapping[ShardId, LocalShard], now: float, start_timeout: float) -> Decision:
    """Return what to do now, by what is wanted and how each shard is. Without a Desired only deadlines count.

    `start_timeout`: seconds that an engine may take from its launch until it is ready.
    """
    orders = {order.shard: order for order in desired.shards} if desired else {}
    after, steps = dict[ShardId, LocalShard](), list[Step]()
    for name in sorted(shards):
        shard = _due(shards[name], now, start_timeout)
        step: Step | None = None
        if shard.doing is Doing.NOTHING:
            shard, step = _one(desired, orders.get(name), shard, now)
        after[name] = shard
        if step is not None:
            steps.append(step)
    return Decision(shards=after, steps=tuple(steps))


def next_due(shards: Iterable[LocalShard]) -> float | None:
    """When `decide` may have something new to say though nothing happened; None for never."""
    times = [at for shard in shards for at in _deadlines(shard)]
    return min(times, default=None)


def _deadlines(shard: LocalShard) -> Iterable[float]:
    if shard.doing is not Doing.NOTHING:
        return
    if shard.state is _S.STARTING and shard.start_by is not None:
        yield shard.start_by
    if shard.state is _S.DRAINING and shard.drain_by is not None:
        yield shard.drain_by
    if shard.state is _S.FAILED and shard.process is None and shard.retry_at is not None:
        yield shard.retry_at
    if shard.state is _S.READY and (shard.attempts or shard.failure):
        yield shard.since + STEADY


def _due(shard: LocalShard, now: float, start_timeout: float) -> LocalShard:
    """What the time alone does to a shard."""
    if shard.doing is not Doing.NOTHING:
        return shard
    if shard.state is _S.STARTING and shard.start_by is not None and now >= shard.start_by:
        text = f"was not ready {age(start_timeout)} after its launch"
        if shard.was_ready:
            text = f"did not answer and did nothing for {age(start_timeout)}"
        return failed(shard, Failure(kind=FailureKind.TIMEOUT, text=text, at=now), now)
    if shard.state is _S.READY and (shard.attempts or shard.failure) and now >= shard.since + STEADY:
        return replace(shard, attempts=0, failure=None)
    return shard


def _one(
    desired: Desired | None, order: ShardOrder | None, shard: LocalShard, now: float
) -> tuple[LocalShard, Launch | Stop | Forget | None]:
    if shard.state is _S.FAILED and shard.process is not None:
        return _stop(shard, now, f"it {shard.failure.text}" if shard.failure else "it failed")
    if desired is None:
        return _finish(shard, now)
    if order is None:
        return _left_out(shard, now) if desired.settled else _finish(shard, now)
    match order.want:
        case Want.RUN:
            return _run(order, desired.exposure, shard, now)
        case Want.DRAIN:
            return _drain(order, shard, now)
        case Want.STOP:
            return _end(shard, now, "it is wanted no more")


def _run(
    order: ShardOrder, exposure: Exposure, shard: LocalShard, now: float
) -> tuple[LocalShard, Launch | Stop | None]:
    if shard.process is not None:
        return _finish(shard, now)
    if shard.state is _S.FAILED and shard.retry_at is not None and now < shard.retry_at:
        return shard, None
    launch = shard.launch + 1
    shard = replace(shard, order=order, launch=launch, doing=Doing.LAUNCHING, idle=False, drain_by=None)
    return shard, Launch(order=order, launch=launch, exposure=exposure)


def _drain(order: ShardOrder, shard: LocalShard, now: float) -> tuple[LocalShard, Stop | None]:
    if shard.process is None:
        return _rest(shard, now), None
    if shard.state is not _S.DRAINING:
        shard = replace(moved(shard, _E.DRAIN, now), drain_by=now + order.drain, idle=False)
    return _finish(shard, now)


def _finish(shard: LocalShard, now: float) -> tuple[LocalShard, Stop | None]:
    """A drain that was begun ends, whatever is wanted meanwhile: there is no way back from it."""
    if shard.state is _S.DRAINING:
        if shard.idle:
            return _stop(shard, now, "it has drained")
        if shard.drain_by is None or now >= shard.drain_by:
            return _stop(shard, now, "its time to drain is over")
    return shard, None


def _left_out(shard: LocalShard, now: float) -> tuple[LocalShard, Stop | Forget | None]:
    if shard.process is None:
        return replace(shard, doing=Doing.FORGETTING), Forget(shard=shard.order.shard, launch=shard.launch)
    return _end(shard, now, "the control plane lists it no more")


def _end(shard: LocalShard, now: float, why: str) -> tuple[LocalShard, Stop | None]:
    return _stop(shard, now, why) if shard.process is not None else (_rest(shard, now), None)


def _stop(shard: LocalShard, now: float, why: str) -> tuple[LocalShard, Stop]:
    if shard.state in (_S.STARTING, _S.READY):
        shard = replace(moved(shard, _E.DRAIN, now), drain_by=now)
    return replace(shard, doing=Doing.STOPPING), Stop(shard=shard.order.shard, launch=shard.launch, why=why)


def _rest(shard: LocalShard, now: float) -> LocalShard:
    """Nothing runs and nothing should."""
    if shard.state is _S.STOPPED:
        return shard
    return replace(moved(shard, _E.GONE, now), retry_at=None)
