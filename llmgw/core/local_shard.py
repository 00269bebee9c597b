"""What does an agent know of one shard, and what does an outcome make of it?

Nobody but `happened` and the decisions of `converge` moves a shard, and both by the one table of `core.shard`.

How long an engine may be without a good answer: one that was never ready has `start_timeout` from its launch, working
or not, since that is what the operator allows for loading. One that was ready may be so deep in its requests that it
answers nothing else: it is taken out of service, and is given up only when for `start_timeout` it was seen to do
nothing at all (`Working` says otherwise).
"""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from enum import Enum

from llmgw.core.facts import Failure, FailureKind, Secret, ShardOrder, ShardReport
from llmgw.core.shard import ShardEvent, ShardState, advance

FIRST_RETRY, LONGEST_RETRY = 1.0, 60.0
"""Seconds before a failed shard is launched again: doubled with each failure in a row."""
REFUSED_RETRY = 60.0
"""Seconds before a node looks again at a profile that it refused; at once when it has other engines."""
STEADY = 60.0
"""Seconds of being ready after which earlier failures no longer count."""
MOST_LINES_TEXT = 200_000
"""Characters of engines' last lines in one message, of all shards together: a control plane takes no endless one."""

_S, _E = ShardState, ShardEvent


@dataclass(frozen=True, slots=True, kw_only=True)
class Process:
    """An engine process that exists."""

    pid: int
    host: str
    port: int
    key: Secret = field(default=Secret(""), repr=False)


class Doing(Enum):
    """What the agent is about with a shard; while it is, no other step is taken for it."""

    NOTHING = "nothing"
    LAUNCHING = "launching"
    STOPPING = "stopping"
    FORGETTING = "forgetting"


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalShard:
    """A shard as its agent knows it."""

    order: ShardOrder
    """What it was last launched with; before that, what it will be launched with."""
    state: ShardState = ShardState.PLACED
    since: float
    launch: int = 0
    process: Process | None = None
    doing: Doing = Doing.NOTHING
    attempts: int = 0
    retry_at: float | None = None
    failure: Failure | None = None
    start_by: float | None = None
    """While it starts: when that took too long."""
    was_ready: bool = False
    """Its engine was ready before, in this launch."""
    drain_by: float | None = None
    """While it drains: when it is stopped whatever it serves."""
    idle: bool = False
    """While it drains: its engine serves nothing more."""

    @property
    def unwell(self) -> bool:
        """Its engine was ready and is not now."""
        return self.state is ShardState.STARTING and self.was_ready


# --- what comes of it -------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class _Outcome:
    launch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Launched(_Outcome):
    """The engine process exists."""

    process: Process


@dataclass(frozen=True, slots=True, kw_only=True)
class NotStarted(_Outcome):
    """The node would not start it, in its own words."""

    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class OtherEngines(_Outcome):
    """The node has other engines than it had: what it refused for want of one may be started now."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Healthy(_Outcome):
    """The engine answers and its model is loaded."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Unhealthy(_Outcome):
    """The engine was ready and is no more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Working(_Outcome):
    """The engine was ready before and is not now, and is seen to do something all the same."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Idle(_Outcome):
    """The engine serves nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended(_Outcome):
    """The engine process is gone; both numbers are None when nobody kept its exit status."""

    exit_status: int | None = None
    signal: int | None = None
    last_lines: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Forgotten(_Outcome):
    """Nothing of the shard is left on the node."""


Outcome = Launched | NotStarted | OtherEngines | Healthy | Unhealthy | Working | Idle | Ended | Forgotten


# --- outcomes ---------------------------------------------------------------------------------------------------


def happened(shard: LocalShard, outcome: Outcome, now: float, start_timeout: float) -> LocalShard | None:
    """Return the shard after `outcome`, None when it is no more; what belongs to an earlier launch changes nothing."""
    if outcome.launch != shard.launch:
        return shard
    if isinstance(outcome, Forgotten):
        return None if shard.doing is Doing.FORGETTING else shard
    return _after(shard, outcome, now, start_timeout)


def _after(
    shard: LocalShard,
    outcome: Launched | NotStarted | OtherEngines | Healthy | Unhealthy | Working | Idle | Ended,
    now: float,
    start_timeout: float,
) -> LocalShard:
    match outcome:
        case Launched():
            return _launched(shard, outcome.process, now, start_timeout)
        case NotStarted():
            failure = Failure(kind=FailureKind.REFUSED, text=outcome.text, at=now)
            refused = moved(shard, _E.FAILED, now)
            return replace(refused, doing=Doing.NOTHING, failure=failure, retry_at=now + REFUSED_RETRY)
        case OtherEngines():
            return replace(shard, retry_at=now) if _is_refused(shard) else shard
        case Healthy():
            return replace(moved(shard, _E.HEALTHY, now), was_ready=True) if shard.state is _S.STARTING else shard
        case Unhealthy():
            if shard.state is not _S.READY:
                return shard
            return replace(moved(shard, _E.UNHEALTHY, now), start_by=now + start_timeout)
        case Working():
            return replace(shard, start_by=now + start_timeout) if shard.unwell else shard
        case Idle():
            return replace(shard, idle=True) if shard.state is _S.DRAINING else shard
        case Ended():
            return _ended(shard, outcome, now)


def _is_refused(shard: LocalShard) -> bool:
    refused = shard.failure is not None and shard.failure.kind is FailureKind.REFUSED
    return refused and shard.state is _S.FAILED and shard.doing is Doing.NOTHING


def _launched(shard: LocalShard, process: Process, now: float, start_timeout: float) -> LocalShard:
    started = moved(shard, _E.LAUNCHED, now)
    start_by = now + start_timeout
    return replace(started, process=process, doing=Doing.NOTHING, retry_at=None, start_by=start_by, was_ready=False)


def _ended(shard: LocalShard, outcome: Ended, now: float) -> LocalShard:
    if shard.process is None:
        return shard
    gone = replace(shard, process=None, doing=Doing.NOTHING, start_by=None, drain_by=None)
    if shard.state is _S.DRAINING:
        return moved(gone, _E.GONE, now)
    if shard.state is _S.FAILED:
        # It was stopped because it took too long: its last words belong to that failure.
        failure = shard.failure and replace(shard.failure, last_lines=outcome.last_lines)
        return replace(gone, failure=failure)
    failure = Failure(
        kind=FailureKind.EXITED,
        text=ending(outcome.exit_status, outcome.signal),
        exit_status=outcome.exit_status,
        signal=outcome.signal,
        last_lines=outcome.last_lines,
        at=now,
    )
    return failed(gone, failure, now)


def ending(exit_status: int | None, signal: int | None) -> str:
    """How a process ended, in words."""
    if signal is not None:
        return f"was ended by signal {signal}"
    if exit_status is not None:
        return f"ended by itself with exit status {exit_status}"
    return "ended by itself; its exit status was not kept"


def failed(shard: LocalShard, failure: Failure, now: float) -> LocalShard:
    """The shard after a failure that counts: launched again after a while that doubles with each in a row."""
    steady = shard.state is _S.READY and now >= shard.since + STEADY
    attempts = 1 if steady else shard.attempts + 1
    wait = min(LONGEST_RETRY, FIRST_RETRY * 2 ** min(attempts - 1, 16))
    failed = replace(moved(shard, _E.FAILED, now), attempts=attempts, failure=failure, retry_at=now + wait)
    return replace(failed, start_by=None)


def moved(shard: LocalShard, event: ShardEvent, now: float) -> LocalShard:
    """The shard after `event` by the table; `since` is kept where the state is."""
    state = advance(shard.order.shard, shard.state, event)
    return shard if state is shard.state else replace(shard, state=state, since=now)


# --- reporting --------------------------------------------------------------------------------------------------


def report(shard: LocalShard) -> ShardReport:
    """What the control plane is told about a shard."""
    process = shard.process
    return ShardReport(
        shard=shard.order.shard,
        state=shard.state,
        since=shard.since,
        launch=shard.launch,
        pid=process.pid if process else None,
        host=process.host if process else "",
        port=process.port if process else None,
        key=process.key if process else Secret(""),
        attempts=shard.attempts,
        retry_at=shard.retry_at if shard.state is _S.FAILED else None,
        failure=shard.failure,
        order=shard.order,
    )


def reports(shards: Iterable[LocalShard]) -> tuple[ShardReport, ...]:
    """Every shard's report. Of the engines' last lines only as much as one message may hold, the newest failures'."""
    told = [report(shard) for shard in shards]
    failures = [(one.failure, at) for at, one in enumerate(told) if one.failure is not None]
    left = MOST_LINES_TEXT
    for failure, at in sorted(failures, key=lambda pair: pair[0].at, reverse=True):
        left -= sum(map(len, failure.last_lines))
        if left < 0:
            told[at] = replace(told[at], failure=replace(failure, last_lines=()))
    return tuple(told)


def recalled(
    record: ShardReport, order: ShardOrder, process: Process | None, *, ready: bool, now: float, start_timeout: float
) -> LocalShard:
    """The shard that an agent finds again when it starts.

    `record` is what it kept, `process` the engine when one still runs, `ready` whether that engine answers now.
    An engine that was ready when the agent left may be so busy that it does not answer now: that is not a slow start.
    Without a process it is as if it had never been launched: an engine that a power cut took is no failure.
    """
    state = record.state
    if process is None and state in (_S.STARTING, _S.READY, _S.FETCHING):
        state = _S.PLACED
    if process is None and state is _S.DRAINING:
        state = _S.STOPPED
    if process is not None and state in (_S.PLACED, _S.FETCHING, _S.STARTING, _S.READY, _S.STOPPED):
        state = _S.READY if ready else _S.STARTING
    return LocalShard(
        order=order,
        state=state,
        since=record.since if state is record.state else now,
        launch=record.launch,
        process=process,
        attempts=record.attempts,
        retry_at=record.retry_at,
        failure=record.failure,
        start_by=now + start_timeout if state is _S.STARTING else None,
        was_ready=process is not None and (ready or record.state is _S.READY),
        drain_by=now + order.drain if state is _S.DRAINING else None,
    )
