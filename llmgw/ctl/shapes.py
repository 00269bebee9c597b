"""The objects of `--json`. They are a promise: keys are added, never renamed or taken away; docs/ctl.md lists them.

Times are ISO 8601 in UTC, durations seconds, sizes bytes; what is not known is null.
"""

from collections.abc import Iterable

from llmgw.core.events import Event
from llmgw.core.facts import Failure
from llmgw.core.fold import Fold
from llmgw.core.presence import NodeState
from llmgw.core.refusals import Refusal, counts, numbers
from llmgw.core.shard import ShardState
from llmgw.core.views import AboutView, Done, ModelState, ModelView, NodeView, ReplicaView, ShardView, Why
from llmgw.ctl.nodeshape import warnings
from llmgw.ctl.values import Shape, at

UNLISTED = "unlisted"
"""The state of a model that is not in the catalog and still has replicas."""


def status(about: AboutView, world: Fold) -> Shape:
    """The cluster in sums."""
    models = world.models.values()
    return {
        "cluster": about.cluster,
        "version": about.version,
        "started": at(about.started),
        "settled": about.settled,
        "exposure": about.exposure,
        "nodes": _sum((node.state for node in world.nodes.values()), NodeState),
        "models": _sum((model.state for model in models), ModelState),
        "replicas": {
            "ready": sum(model.ready for model in models),
            "away": sum(model.away for model in models),
            "wanted": sum(model.wanted for model in models),
        },
        "warnings": [{"node": node.name, **warning} for node in _sorted(world) for warning in warnings(node)],
    }


def _sorted(world: Fold) -> list[NodeView]:
    return [world.nodes[name] for name in sorted(world.nodes)]


def _sum(states: Iterable[NodeState | ModelState], of: type[NodeState] | type[ModelState]) -> dict[str, int]:
    seen = [state.value for state in states]
    return {state.value: seen.count(state.value) for state in of}


def model(view: ModelView, replicas: list[ReplicaView]) -> Shape:
    """One of `models`, with its replicas."""
    return {
        "name": view.name,
        "aliases": list(view.aliases),
        "state": view.state.value,
        "wanted": view.wanted,
        "ready": view.ready,
        "away": view.away,
        "declared": view.declared,
        "engine": view.engine,
        "context": view.context,
        "slots": view.slots,
        "memory": view.memory,
        "replicas": [_replica(one) for one in replicas],
        "refusals": [refusal(one) for one in view.refusals],
        "roll": view.roll,
    }


def models(world: Fold) -> list[Shape]:
    """All `models` by name; one that left the catalog while it has replicas is `unlisted`."""
    listed = [model(world.models[name], world.replicas_of(name)) for name in world.models]
    unlisted = [_unlisted(name, world.replicas_of(name)) for name in world.unlisted()]
    return sorted([*listed, *unlisted], key=lambda shape: str(shape["name"]))


def _unlisted(name: str, replicas: list[ReplicaView]) -> Shape:
    return {
        "name": name,
        "aliases": [],
        "state": UNLISTED,
        "wanted": 0,
        "ready": sum(one.state is ShardState.READY for one in replicas),
        "away": 0,
        "declared": 0,
        **dict.fromkeys(("engine", "context", "slots", "memory")),
        "replicas": [_replica(one) for one in replicas],
        "refusals": [],
        "roll": "",
    }


def _replica(view: ReplicaView) -> Shape:
    return {
        "id": view.id,
        "state": view.state.value,
        "since": at(view.since),
        "leaving": view.leaving,
        "adopted": view.adopted,
        "outdated": view.outdated,
        "engine": view.engine,
        "shards": [_shard(shard) for shard in view.shards],
    }


def _shard(view: ShardView) -> Shape:
    return {
        "node": view.node,
        "rank": view.rank,
        "state": view.state.value,
        "since": at(view.since),
        "pid": view.pid,
        "host": view.host,
        "port": view.port,
        "launch": view.launch,
        "attempts": view.attempts,
        "retry_at": at(view.retry_at),
        "failure": _failure(view.failure),
    }


def _failure(failure: Failure | None) -> Shape | None:
    if failure is None:
        return None
    return {
        "kind": failure.kind.value,
        "text": failure.text,
        "exit_status": failure.exit_status,
        "signal": failure.signal,
        "last_lines": list(failure.last_lines),
        "at": at(failure.at),
    }


def why(view: Why, away: int) -> Shape:
    """The answer to `why`; `away` of the model's replicas are on nodes that say nothing now."""
    return {
        "model": view.model,
        "state": view.state.value,
        "wanted": view.wanted,
        "placed": view.placed,
        "away": away,
        "engine": view.engine,
        "memory": view.memory,
        "fits": list(view.fits),
        "counts": {verdict.value: count for verdict, count in counts(view.refusals).items()},
        "refusals": [refusal(one) for one in view.refusals],
    }


def refusal(one: Refusal) -> Shape:
    """Why one node does not take the model; `numbers` holds what the text was made from."""
    return {
        "node": one.node,
        "code": one.code,
        "verdict": one.verdict.value,
        "numbers": numbers(one),
        "text": str(one),
        "clears": one.clears,
    }


def event(one: Event) -> Shape:
    """One of `events`, and a line of `events --follow --json`."""
    return {
        "seq": one.seq,
        "at": at(one.at),
        "kind": one.kind.value,
        "subject": one.subject,
        "text": one.text,
        "cause": one.cause,
        "by": one.by,
        "lines": list(one.lines),
    }


def done(
    view: Done, model: str, ready: int | None = None, waited: float | None = None, away: Iterable[ReplicaView] = ()
) -> Shape:
    """The answer to an act; `ready` and `waited` are null without `--wait`, `away` holds what waits on lost nodes."""
    return {
        "event": event(view.event),
        "model": model,
        "ready": ready,
        "waited": None if waited is None else round(waited, 3),
        "away": [{"replica": one.id, "nodes": [shard.node for shard in one.shards]} for one in away],
    }
