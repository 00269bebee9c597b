"""What is done about one model: replicas are drained, placed and moved, and what has no node is said.

a roll that fails stops → surplus is drained → what is missing is placed → a roll makes its next move
"""

from llmgw.core import roll_words, rollout, shards
from llmgw.core.catalog import Model
from llmgw.core.due import AskDue
from llmgw.core.events import EventKind
from llmgw.core.facts import Failure, Profile, Want
from llmgw.core.ledger import Ledger, Reason
from llmgw.core.names import ModelName, NodeName, ReplicaId, replica_id, shard_id
from llmgw.core.placement import Room, chosen, fill
from llmgw.core.reconcile import gap
from llmgw.core.refusals import AddressNotTried, EngineBroken, EngineInstalling, Refusal, counts
from llmgw.core.rooms import room
from llmgw.core.serving import as_run
from llmgw.core.state import Replica, Shard
from llmgw.core.units import several


def reconcile(ledger: Ledger, name: ModelName) -> None:
    """Bring a model nearer to what is wanted of it."""
    model = ledger.models.get(name)
    if ledger.strays:
        shards.adopt_strays(ledger, name)
    if model:
        _stop_failed(ledger, model)
    wanted = model.replicas if model else 0
    standing = rollout.standing(ledger, model) if model else None
    (ledger.behind.add if standing else ledger.behind.discard)(name)
    difference = gap(wanted, ledger.replicas_of(name), ledger.node_state, standing)
    for replica in difference.surplus:
        _drain(ledger, model, replica)
    missing = _fill(ledger, model, difference.missing) if model else None
    if missing is None:
        ledger.refusals.pop(name, None)
        ledger.reasons.pop(name, None)
    else:
        _say_refused(ledger, name, *missing)
    if model:
        _move(ledger, model)
    rollout.tidy(ledger, name)


def rooms(ledger: Ledger, model: Model) -> list[Room]:
    """Every node as it is seen for one more replica of a model."""
    same: dict[NodeName, int] = {}
    for replica in ledger.replicas_of(model.name):
        for name in replica.nodes:
            same[name] = same.get(name, 0) + 1
    return [room(ledger, node, model, same=same.get(node.name, 0)) for node in ledger.nodes.values()]


# --- rolling changes ---------------------------------------------------------------------------------------------


def _stop_failed(ledger: Ledger, model: Model) -> None:
    """A new version that fails goes no further: what failed is retired and the model keeps the version it had."""
    failing = rollout.failing(ledger, model) if ledger.settled else []
    if failing and rollout.stopped(ledger, model) is None:
        _stop(ledger, model, *failing[0])
    for replica, _ in failing:
        if replica.want is Want.RUN:
            ledger.turn.because[replica.id] = ledger.turn.because.get(model.name, ledger.turn.first_event)
            engine = f"{replica.profile.engine} {replica.profile.version}"
            shards.retire(ledger, replica, why=f"it failed with {engine} before it was ever ready")


def _stop(ledger: Ledger, model: Model, replica: Replica, failure: Failure) -> None:
    roll, node = rollout.stop(ledger, model, replica, failure), replica.nodes[0]
    engine = f"{model.profile.engine} {roll.version}"
    text = f"{replica.id} on {node} failed with {engine}: {failure.text}; the others stay as they are"
    text = f"{text}; {roll_words.way_out(model, roll)}"
    event = ledger.emit(EventKind.ROLL_STOPPED, model.name, text, lines=failure.last_lines)
    ledger.turn.because[model.name] = event.seq
    if ledger.words.pop((model.name, node), None):  # it was the version that the node refused
        ledger.deadlines.set(AskDue(model.name, node), None)


def _move(ledger: Ledger, model: Model) -> None:
    """Make the next move of a rolling change, if one is due."""
    if not rollout.may_move(ledger, model):
        return
    version = rollout.target(ledger, model)
    match rollout.move(ledger, model, rooms(ledger, model)):
        case rollout.Surge(node=node, profile=profile):
            rollout.begin(ledger, model)
            _assign(ledger, model, node, profile, f", for the change to {profile.engine} {version}")
        case rollout.Yield(replica=replica):
            rollout.begin(ledger, model, emptied=replica.nodes[0])
            why = f"makes room for one with {replica.profile.engine} {version}"
            shards.retire(ledger, replica, why=why)
        case None:
            pass


# --- as many as are wanted ---------------------------------------------------------------------------------------


def _drain(ledger: Ledger, model: Model | None, name: ReplicaId) -> None:
    replica = ledger.replicas[name]
    why = f"{model.replicas} wanted" if model else "its model is no longer in server.yaml"
    if model and rollout.is_behind(ledger, model, replica):
        why = f"{model.replicas} wanted, others run with {model.profile.engine} {rollout.target(ledger, model)}"
    shards.retire(ledger, replica, why=why)


def _fill(ledger: Ledger, model: Model, missing: int) -> tuple[int, tuple[Refusal, ...]] | None:
    """Place what is missing; return how many have no node and why, or None when all have one."""
    if not missing:
        return None
    need, seen = rollout.need(ledger, model), {one.node.name: one for one in rooms(ledger, model)}
    nodes, refusals = fill(need, seen.values(), missing, ledger.now)
    for node in nodes:
        _assign(ledger, model, node, as_run(model.profile, chosen(need, seen[node])))
    return (missing - len(nodes), refusals) if len(nodes) < missing else None


def _assign(ledger: Ledger, model: Model, node: NodeName, profile: Profile, note: str = "") -> None:
    replica = replica_id(model.name, ledger.next_ordinal(model.name))
    ledger.turn.because[replica] = ledger.turn.because.get(model.name, ledger.turn.first_event)
    event = ledger.emit(EventKind.REPLICA_PLACED, replica, f"on {node}{note}")
    shard = Shard(id=shard_id(replica, 0), node=node, rank=0, since=ledger.now)
    ledger.caused(shard.id, event)
    ledger.put_replica(
        Replica(
            id=replica,
            model=model.name,
            profile=profile,
            want=Want.RUN,
            placed_at=ledger.now,
            shards=(shard,),
        ),
        save=True,
    )


def _say_refused(ledger: Ledger, name: ModelName, missing: int, refusals: tuple[Refusal, ...]) -> None:
    """An event when the reasons change; numbers that only grew older are no news."""
    before = ledger.reasons.get(name)
    ledger.refusals[name], ledger.reasons[name] = refusals, _reasons(refusals, before or frozenset())
    if any(isinstance(refusal, AddressNotTried) for refusal in refusals):
        return  # whether a node takes it is known within seconds, and said then
    if before == ledger.reasons[name]:
        return
    verdicts = ", ".join(f"{count} {verdict.value}" for verdict, count in counts(refusals).items() if count)
    text = f"{several(len(refusals), 'node')}: {verdicts}" if refusals else "there are no nodes yet"
    ledger.emit(EventKind.PLACE_REFUSED, name, f"{missing} more wanted; {text}")


def _reasons(refusals: tuple[Refusal, ...], before: frozenset[Reason]) -> frozenset[Reason]:
    """That a node is being tried, or installs, has an end by itself, and so is no reason that is told.

    That an install failed is, once: it is tried again and again, and is still the reason while it is.
    """
    lasting = {(one.node, one.code) for one in refusals if not isinstance(one, AddressNotTried | EngineInstalling)}
    again = {(one.node, EngineBroken.code) for one in refusals if isinstance(one, EngineInstalling)}
    return frozenset(lasting | (again & before))
