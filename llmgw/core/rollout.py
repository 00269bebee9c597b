"""When the wanted version of an engine changes: which replica of a model moves next, and when does that stop?

    behind    runs with another version of an installed engine than the one that is wanted
    surge     one more replica is placed with the new version; when it is ready one that is behind is drained
    yield     where no node has or is about to have room for one more, but a replica's own would have it: it goes first

One move at a time, none while something of the model is starting, leaving, missing or failed with the new version, and
none that leaves fewer ready than one below what is wanted. A model that has fewer replicas than wanted does not move.
Only versions move by themselves: a profile that changed otherwise is taken by what is placed next.

A replica that fails with the new version before it was ever ready stops the roll: it is retired, the others serve on,
and new ones are given the old version until server.yaml names another one, the profile changes or an operator asks for
a new try. That is kept in memory: a control plane that restarts may try once more.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from llmgw.core.catalog import Model
from llmgw.core.facts import Failure, FailureKind, Profile, Want
from llmgw.core.ledger import Ledger
from llmgw.core.names import ModelName, NodeName
from llmgw.core.placement import Need, Placement, Room, chosen, has_memory, place, refusal_of
from llmgw.core.presence import NodeState
from llmgw.core.provision import wanted
from llmgw.core.reconcile import Standing, on_lost_node, serves, usefulness
from llmgw.core.refusals import AddressNotTried, EngineInstalling, NodeAway, NotEnoughMemory, Refusal
from llmgw.core.roll import Roll
from llmgw.core.serving import NO_PREFERENCE, Preference, as_run, by_hand, choose, natural
from llmgw.core.shard import ShardState
from llmgw.core.state import Replica
from llmgw.core.units import Bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Surge:
    """Place one more there."""

    node: NodeName
    profile: Profile


@dataclass(frozen=True, slots=True, kw_only=True)
class Yield:
    """Drain this one, so that its node has room."""

    replica: Replica


# --- where a model is ---------------------------------------------------------------------------------------------


def target(ledger: Ledger, model: Model) -> str:
    """Return the version that replicas should run with; empty when nobody wants a certain one."""
    return model.profile.version or wanted.version_of(ledger, model.profile.engine)


def is_behind(ledger: Ledger, model: Model, replica: Replica) -> bool:
    """Whether it runs with another version of an installed engine than the one that is wanted."""
    return _differs(ledger, model, replica, target(ledger, model))


def version_now(ledger: Ledger, model: Model, replica: Replica) -> str:
    """Return the version that its profile would have if it were placed where it is now.

    Its own while that is not known, or while the node does not have the one that is wanted.
    """
    node = ledger.nodes.get(replica.nodes[0])
    if model.profile.version:
        return model.profile.version
    if node is None or node.engines is None:
        return replica.profile.version
    if by_hand(model.profile.engine, node.engines):
        return ""
    install = wanted.install_of(ledger, node, model.profile.engine)
    engine = choose(model.profile, NO_PREFERENCE, node.engines, install)
    ready = engine is not None and install is not None and engine.version == install.version
    return install.version if ready and install else replica.profile.version


def standing(ledger: Ledger, model: Model) -> Standing | None:
    """Return how far a rolling change of the model is; None where there is none, or it stopped."""
    if not target(ledger, model) or stopped(ledger, model) is not None:
        return None
    behind = frozenset(replica.id for replica in _behind(ledger, model))
    return Standing(behind=behind, pending=_any_pending(ledger, model)) if behind else None


def moved(ledger: Ledger, model: Model) -> tuple[int, int] | None:
    """Return how many replicas run with the new version, and how many will; None where no rolling change is on."""
    behind = len(_behind(ledger, model))
    if not target(ledger, model) or stopped(ledger, model) or not (behind or remembered(ledger, model)):
        return None
    living = _living(ledger, model)
    new = _new(ledger, model)
    done = sum(1 for replica in new if serves(replica, ledger.node_state))
    whole = max(model.replicas - (len(living) - behind - len(new)), 1)  # without those that are not ours to move
    return min(done, whole), whole


def remembered(ledger: Ledger, model: Model) -> Roll | None:
    """Return what is remembered of the rolling change to what is wanted now."""
    roll = ledger.rolls.get(model.name)
    if roll is None or (roll.version, roll.profile) != (target(ledger, model), model.profile):
        return None
    return roll


def stopped(ledger: Ledger, model: Model) -> Roll | None:
    """Return the rolling change to what is wanted now, if it stopped."""
    roll = remembered(ledger, model)
    return roll if roll is not None and roll.problem else None


def need(ledger: Ledger, model: Model) -> Need:
    """Return what one more replica asks for: after a roll that stopped the version of those that serve."""
    roll = stopped(ledger, model)
    version = _former(ledger, model, roll) if roll else ""
    if roll is None or not version:
        return Need(model=model.name, profile=model.profile)
    if model.profile.version:
        return Need(model=model.name, profile=replace(model.profile, version=version))
    why = f"{model.profile.engine} {roll.version} did not run {model.name}: {roll.problem}"
    return Need(
        model=model.name,
        profile=model.profile,
        preference=Preference(version=version, avoid=roll.version, why=why),
    )


def _former(ledger: Ledger, model: Model, roll: Roll) -> str:
    """The version that those have that are behind, or that was replaced; empty when no node has another one."""
    serving = sorted(replica.id for replica in _behind(ledger, model))
    if serving:
        return ledger.replicas[serving[-1]].profile.version or roll.former
    there = (node for node in ledger.nodes.values() if node.state is NodeState.READY and node.engines)
    reports = (one for node in there if node.engines for one in node.engines.engines)
    others = {
        one.version
        for one in reports
        if one.engine == model.profile.engine and not (one.problem or one.by_hand) and one.version != roll.version
    }
    return roll.former if roll.former in others else max(others, key=natural, default="")


# --- when it stops ------------------------------------------------------------------------------------------------


def failing(ledger: Ledger, model: Model) -> list[tuple[Replica, Failure]]:
    """Return those that failed with the new version before they were ever ready, with their failures.

    None while there is nothing to go back to.
    """
    version, roll = target(ledger, model), remembered(ledger, model)
    if not version:
        return []
    if roll is None and not _behind(ledger, model):
        return []
    if roll is not None and roll.problem and not _former(ledger, model, roll):
        return []
    found: list[tuple[Replica, Failure]] = []
    for replica in ledger.replicas_of(model.name):
        failure = next((one.report.failure for one in replica.shards if one.report and one.report.failure), None)
        if failure is not None and _failed_early(ledger, replica, version) and _counts(replica, failure, roll):
            found.append((replica, failure))
    return found


def _failed_early(ledger: Ledger, replica: Replica, version: str) -> bool:
    new = not replica.adopted and replica.profile.version == version and _is_installed(ledger, replica)
    return new and replica.state is ShardState.FAILED and not replica.was_ready


def _counts(replica: Replica, failure: Failure, roll: Roll | None) -> bool:
    """A node that would not start it says nothing of the version, unless it ran the model just before."""
    if failure.kind is FailureKind.REFUSED:
        return roll is not None and not roll.problem and roll.emptied in replica.nodes
    return replica.want is Want.RUN


def stop(ledger: Ledger, model: Model, replica: Replica, failure: Failure) -> Roll:
    """Remember that it goes no further, and return what is remembered of it."""
    roll = remembered(ledger, model) or begin(ledger, model)
    (node, *_) = replica.nodes
    ledger.rolls[model.name] = roll = replace(roll, failed_on=node, problem=f"{replica.id} on {node}: {failure.text}")
    _renew_outdated(ledger, model.name)
    return roll


def retried(ledger: Ledger, engine: str) -> None:
    """An operator wants an engine (empty: all) tried again: rolls that stopped begin anew."""
    for name, roll in list(ledger.rolls.items()):
        if roll.problem and engine in ("", roll.profile.engine):
            del ledger.rolls[name]
            ledger.turn.models.add(name)
            _renew_outdated(ledger, name)


def _renew_outdated(ledger: Ledger, name: ModelName) -> None:
    """Whether a rolling change replaces what is outdated is another now."""
    ledger.turn.replicas.update(replica.id for replica in ledger.replicas_of(name))


# --- the next move ------------------------------------------------------------------------------------------------


def may_move(ledger: Ledger, model: Model) -> bool:
    """Whether all of a model is at rest, and something of it is behind."""
    if not ledger.settled:
        return False
    at = standing(ledger, model)
    if at is None or at.pending or len(_living(ledger, model)) != model.replicas:
        return False
    leaving = [replica for replica in ledger.replicas_of(model.name) if replica.want is not Want.RUN]
    return all(on_lost_node(replica, ledger.node_state) for replica in leaving)


def begin(ledger: Ledger, model: Model, *, emptied: NodeName | None = None) -> Roll:
    """Remember a rolling change at one of its moves."""
    before = sorted(one.profile.version for one in _behind(ledger, model))
    known = remembered(ledger, model)
    former = before[0] if before else known.former if known else ""
    roll = Roll(version=target(ledger, model), former=former, profile=model.profile, emptied=emptied)
    ledger.rolls[model.name] = roll
    return roll


def move(ledger: Ledger, model: Model, rooms: Sequence[Room]) -> Surge | Yield | None:
    """Return the next move of a model that may move; None when none is possible as things are."""
    rooms = [room for room in rooms if not by_hand(model.profile.engine, room.node.engines)]
    profile = replace(model.profile, version=target(ledger, model))
    answer = place(Need(model=model.name, profile=profile), rooms, ledger.now)
    if isinstance(answer, Placement):
        room = next(room for room in rooms if room.node.name == answer.node)
        engine = chosen(Need(model=model.name, profile=profile), room)
        return Surge(node=answer.node, profile=as_run(model.profile, engine))
    behind = sorted(_behind(ledger, model), key=usefulness(ledger.node_state))
    soon = _fits_soon(ledger, Need(model=model.name, profile=profile), rooms, answer.refusals)
    for replica in behind:
        if _may_yield(ledger, model, replica, soon=soon) and _fits_after(ledger, replica, profile, rooms):
            return Yield(replica=replica)
    return None


def _may_yield(ledger: Ledger, model: Model, replica: Replica, *, soon: bool) -> bool:
    serving = [one for one in _living(ledger, model) if serves(one, ledger.node_state)]
    if replica not in serving:
        return True
    return len(serving) >= model.replicas and not soon


def _fits_after(ledger: Ledger, replica: Replica, profile: Profile, rooms: Iterable[Room]) -> bool:
    """Whether its own node would take the new one when it is gone."""
    (name, *others) = replica.nodes
    room = next((room for room in rooms if room.node.name == name), None)
    if room is None or others:
        return False
    left = replace(room, promised=Bytes(room.promised - replica.profile.memory), same=room.same - 1)
    return refusal_of(Need(model=replica.model, profile=profile), left, ledger.now) is None


def _fits_soon(ledger: Ledger, need: Need, rooms: Iterable[Room], refusals: Iterable[Refusal]) -> bool:
    """Whether a node with the room for it, or on which room is being made, is about to be able to take it."""
    spacious = {room.node.name for room in rooms if has_memory(need, _when_gone(ledger, room))}
    passing = (
        one for one in refusals if isinstance(one, EngineInstalling | AddressNotTried | NodeAway | NotEnoughMemory)
    )
    return any(one.node in spacious for one in passing if not (isinstance(one, NodeAway) and one.lost))


def _when_gone(ledger: Ledger, room: Room) -> Room:
    """The node without what leaves it, and without what other models are about to drain for their own change."""
    if room.node.state is NodeState.LOST:
        return room
    going = (one for one in ledger.replicas_on(room.node.name) if one.want is not Want.RUN or _is_replaced(ledger, one))
    return replace(room, promised=Bytes(room.promised - sum(one.profile.memory for one in going)))


def _is_replaced(ledger: Ledger, replica: Replica) -> bool:
    """Whether one more of its model was placed so that this one, or one like it, goes."""
    model = ledger.models.get(replica.model)
    if model is None or model.name not in ledger.rolls or stopped(ledger, model) is not None:
        return False
    return is_behind(ledger, model, replica) and len(_living(ledger, model)) > model.replicas


def tidy(ledger: Ledger, name: ModelName) -> None:
    """Forget the rolling change of a model when it is done, or leads to what is no longer wanted."""
    roll, model = ledger.rolls.get(name), ledger.models.get(name)
    if roll is not None and (model is None or _is_over(ledger, model, roll)):
        del ledger.rolls[name]


def _is_over(ledger: Ledger, model: Model, roll: Roll) -> bool:
    if model.replicas == 0:
        return True
    if remembered(ledger, model) is None:
        return bool(target(ledger, model))  # while nothing is known to be wanted nothing else is
    return not roll.problem and _is_done(ledger, model)


def _is_done(ledger: Ledger, model: Model) -> bool:
    moving = _any_pending(ledger, model) or _behind(ledger, model)
    return len(_living(ledger, model)) >= model.replicas and not moving


def order(ledger: Ledger, names: Iterable[ModelName]) -> list[ModelName]:
    """Sort models: one whose replica made room for its successor comes first, so that no other takes that room."""
    return sorted(names, key=lambda name: (not (name in ledger.rolls and ledger.rolls[name].emptied), name))


# --- replicas -----------------------------------------------------------------------------------------------------


def _living(ledger: Ledger, model: Model) -> list[Replica]:
    return [replica for replica in ledger.replicas_of(model.name) if _lives(ledger, replica)]


def _lives(ledger: Ledger, replica: Replica) -> bool:
    return replica.want is Want.RUN and not on_lost_node(replica, ledger.node_state)


def _behind(ledger: Ledger, model: Model) -> list[Replica]:
    """Those that live and are to be replaced. Asked of each model that a node touches: nearly always there are none."""
    version = target(ledger, model)
    found = [one for one in ledger.replicas_of(model.name) if _differs(ledger, model, one, version)]
    return [one for one in found if _lives(ledger, one)]


def _differs(ledger: Ledger, model: Model, replica: Replica, version: str) -> bool:
    """Whether it runs with another version of an installed engine than `version`, if that is any."""
    if not version or replica.adopted or replica.profile.version == version:
        return False
    return replica.profile.engine == model.profile.engine and _is_installed(ledger, replica)


def _any_pending(ledger: Ledger, model: Model) -> bool:
    """Whether one of those that live has the new version, and is not ready."""
    return any(not serves(one, ledger.node_state) for one in _new(ledger, model))


def _new(ledger: Ledger, model: Model) -> list[Replica]:
    """Those that live and have the new version of an installed engine."""
    version = target(ledger, model)
    new = (one for one in _living(ledger, model) if one.profile.version == version and not one.adopted)
    return [one for one in new if _is_installed(ledger, one)]


def _is_installed(ledger: Ledger, replica: Replica) -> bool:
    """Whether its engine is one that we installed, as far as its nodes said."""
    nodes = [ledger.nodes.get(name) for name in replica.nodes]
    return all(
        node is not None and node.engines is not None and not by_hand(replica.profile.engine, node.engines)
        for node in nodes
    )
