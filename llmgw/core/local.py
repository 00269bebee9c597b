"""What does an agent know of one shard, and what does an outcome make of it?

Nobody but `happened` and the decisions of `converge` moves a shard, and both by the one table of `core.shard`.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from enum import Enum

from llmgw.core.facts import Failure, FailureKind, Secret, ShardOrder, ShardReport
from llmgw.core.shard import ShardEvent, ShardState, advance

FIRST_RETRY, LONGEST_RETRY = 1.0, 60.0
"""Seconds before a failed shard is launched again: doubled with each failure in a row."""
REFUSED_RETRY = 60.0
"""Seconds before a node looks again at a profile that it refused."""
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Shard:
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
    drain_by: float | None = None
    """While it drains: when it is stopped whatever it serves."""
    idle: bool = False
    """While it drains: its engine serves nothing more."""


# --- what comes of it -------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class _Outcome:
    launch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Launched(_Outcome):
    """The engine process exists."""

    process: Process


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused(_Outcome):
    """The node would not start it, in its own words."""

    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Healthy(_Outcome):
    """The engine answers and its model is loaded."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Unhealthy(_Outcome):
    """The engine was ready and is no more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Idle(_Outcome):
    """The engine serves nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended(_Outcome):
    """The engine process is gone; both numbers are None when nobody kept its exit status."""

    exit_status: int | None = None
    signal: int | None = None
    last_lines: tuple[str, ...] = ()


Outcome = Launched | Refused | Healthy | Unhealthy | Idle | Ended


# --- outcomes ---------------------------------------------------------------------------------------------------


def happened(shard: Shard, outcome: Outcome, now: float, start_timeout: float) -> Shard:
    """Return the shard after `outcome`; what belongs to an earlier launch changes nothing."""
    if outcome.launch != shard.launch:
        return shard
    match outcome:
        case Launched():
            started = moved(shard, _E.LAUNCHED, now)
            return replace(
                started, process=outcome.process, doing=Doing.NOTHING, retry_at=None, start_by=now + start_timeout
            )
        case Refused():
            failure = Failure(kind=FailureKind.REFUSED, text=outcome.text, at=now)
            refused = moved(shard, _E.FAILED, now)
            return replace(refused, doing=Doing.NOTHING, failure=failure, retry_at=now + REFUSED_RETRY)
        case Healthy():
            return moved(shard, _E.HEALTHY, now) if shard.state is _S.STARTING else shard
        case Unhealthy():
            if shard.state is not _S.READY:
                return shard
            return replace(moved(shard, _E.UNHEALTHY, now), start_by=now + start_timeout)
        case Idle():
            return replace(shard, idle=True) if shard.state is _S.DRAINING else shard
        case Ended():
            return _ended(shard, outcome, now)


def _ended(shard: Shard, outcome: Ended, now: float) -> Shard:
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


def failed(shard: Shard, failure: Failure, now: float) -> Shard:
    """The shard after a failure that counts: launched again after a while that doubles with each in a row."""
    steady = shard.state is _S.READY and now >= shard.since + STEADY
    attempts = 1 if steady else shard.attempts + 1
    wait = min(LONGEST_RETRY, FIRST_RETRY * 2 ** min(attempts - 1, 16))
    failed = replace(moved(shard, _E.FAILED, now), attempts=attempts, failure=failure, retry_at=now + wait)
    return replace(failed, start_by=None)


def moved(shard: Shard, event: ShardEvent, now: float) -> Shard:
    """The shard after `event` by the table; `since` is kept where the state is."""
    state = advance(shard.order.shard, shard.state, event)
    return shard if state is shard.state else replace(shard, state=state, since=now)


# --- reporting --------------------------------------------------------------------------------------------------


def report(shard: Shard) -> ShardReport:
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


def reports(shards: Iterable[Shard]) -> tuple[ShardReport, ...]:
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
) -> Shard:
    """The shard that an agent finds again when it starts.

    `record` is what it kept, `process` the engine when one still runs, `ready` whether that engine answers now.
    Without a process it is as if it had never been launched: an engine that a power cut took is no failure.
    """
    state = record.state
    if process is None and state in (_S.STARTING, _S.READY, _S.FETCHING):
        state = _S.PLACED
    if process is None and state is _S.DRAINING:
        state = _S.STOPPED
    if process is not None and state in (_S.PLACED, _S.FETCHING, _S.STARTING, _S.READY, _S.STOPPED):
        state = _S.READY if ready else _S.STARTING
    return Shard(
        order=order,
        state=state,
        since=record.since if state is record.state else now,
        launch=record.launch,
        process=process,
        attempts=record.attempts,
        retry_at=record.retry_at,
        failure=record.failure,
        start_by=now + start_timeout if state is _S.STARTING else None,
        drain_by=now + order.drain if state is _S.DRAINING else None,
    )
