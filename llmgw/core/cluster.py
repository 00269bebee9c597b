"""The control plane's decisions: one input in, effects out.

    input → handler writes the ledger → models it touched are reconciled → effects, in the order to carry them out

One task of the shell calls `apply`. Nothing here waits, reads a clock or fails for a reason that an agent can cause.

While unsettled (after a start, until all known nodes are back or `settle` is over) nothing is placed or drained but
what an operator asks for or a node itself refuses to run, and routers keep the table they have.
"""

import copy
from collections.abc import Iterable
from dataclasses import replace
from functools import partial

from llmgw.core import descriptions, models, sessions, shards, show, trials
from llmgw.core.catalog import Model
from llmgw.core.effects import Effect, Fault, Publish, PublishRoutes, SendDesired
from llmgw.core.events import EventKind
from llmgw.core.facts import Desired, Want
from llmgw.core.inputs import (
    AgentBeat,
    AgentGone,
    AgentListens,
    AgentRegistered,
    AgentReported,
    AgentTurnedAway,
    CatalogLoaded,
    Input,
    Overslept,
    RouterCame,
    RouterGone,
    RouterTried,
    ScaleModel,
    Tick,
)
from llmgw.core.ledger import (
    AskDue,
    Ledger,
    NodeDue,
    ReachDue,
    ReasonsDue,
    RouterDue,
    SettleDue,
    TellDue,
    Turn,
    WarnDue,
)
from llmgw.core.names import ModelName, NodeName, ReplicaId, replica_id, shard_id
from llmgw.core.placement import Need, Room, fill, place
from llmgw.core.reconcile import gap
from llmgw.core.refusals import AddressNotTried, Refusal, counts
from llmgw.core.rooms import room
from llmgw.core.settings import Settings, Stored
from llmgw.core.state import NodeState, Replica, Shard
from llmgw.core.units import several
from llmgw.core.views import Gone, ModelView, NodeView, Noun, ReplicaView, Revision, Routes, Why


class Cluster:
    """All nodes, models and replicas, and what is to be done about them."""

    def __init__(self, settings: Settings, stored: Stored, *, epoch: int, now: float) -> None:
        self._ledger = Ledger(settings, stored, epoch=epoch, now=now)
        self._sent: dict[NodeName, tuple[int, Desired]] = {}

    # --- looking ------------------------------------------------------------------------------------------------

    @property
    def settled(self) -> bool:
        """Whether it places and drains by itself."""
        return self._ledger.settled

    @property
    def revision(self) -> Revision:
        """Grows with every change that is published."""
        return self._ledger.revision

    def deadline(self) -> float | None:
        """When the next Tick is due; one that comes early does no harm."""
        return self._ledger.deadlines.next()

    def names(self, noun: Noun) -> list[str]:
        """Of all nodes, models or replicas, sorted."""
        known: dict[Noun, Iterable[str]] = {
            Noun.NODES: self._ledger.nodes,
            Noun.MODELS: self._ledger.models,
            Noun.REPLICAS: self._ledger.replicas,
        }
        return sorted(known.get(noun, ()))

    def view(self, noun: Noun, name: str) -> NodeView | ModelView | ReplicaView | Gone:
        """Return the whole view of an entity, or that it is gone."""
        ledger = self._ledger
        if noun is Noun.NODES and name in ledger.nodes:
            return show.node(ledger, ledger.nodes[NodeName(name)])
        if noun is Noun.MODELS and name in ledger.models:
            return show.model(ledger, ledger.models[ModelName(name)])
        if noun is Noun.REPLICAS and name in ledger.replicas:
            return show.replica(ledger, ledger.replicas[ReplicaId(name)])
        return Gone(noun=noun, name=name)

    def routes(self) -> Routes | None:
        """Return the route table, or None while unsettled: routers then keep what they have."""
        return show.routes(self._ledger) if self.settled else None

    def why(self, name: str, now: float) -> Why:
        """Return each node's answer to one more replica of a model (name or alias), or raise UnknownModel."""
        model = models.find(self._ledger, name)
        answer = place(Need(model=model.name, profile=model.profile), self._rooms(model.name), now)
        return show.why(self._ledger, model, answer, now)

    def desired(self, node: NodeName) -> Desired:
        """Return all that a node should run, as it is sent to it."""
        ledger = self._ledger
        return Desired(
            cluster=ledger.settings.cluster,
            epoch=ledger.epoch,
            revision=ledger.change,
            settled=ledger.settled,
            exposure=ledger.settings.exposure,
            shards=shards.orders(ledger, node),
        )

    def check(self) -> None:
        """Assert what must hold between inputs; for tests."""
        ledger = self._ledger
        for replica in ledger.replicas.values():
            assert all(replica in ledger.replicas_on(node) for node in replica.nodes), f"{replica.id} is not indexed"
            assert replica in ledger.replicas_of(replica.model), f"{replica.id} is not indexed by its model"
        for node in ledger.nodes.values():
            assert (node.state is not NodeState.READY) or node.session is not None, f"{node.name} is ready, not there"
        for model in ledger.refusals:
            given = [refusal.node for refusal in ledger.refusals[model]]
            assert len(given) == len(set(given)), f"{model} has two refusals of one node"
        for name in ledger.nodes:
            ordered = [order.shard for order in self.desired(name).shards]
            assert len(ordered) == len(set(ordered)), f"{name} is ordered a shard twice"
            strays = (report.order for report in ledger.strays.get(name, {}).values())
            profiles = [replica.profile for replica in ledger.replicas_on(name)]
            profiles += [order.profile for order in strays if order]
            held = sum(profile.memory for profile in profiles)
            assert ledger.promised(name) == held, f"{name} is promised what it does not hold"
        out = {one.trial.token: name for name, one in ledger.reach.standings.items() if one.trial}
        assert ledger.reach.trials == out, "a trial is lost"
        for name in ledger.reach.waiting:
            assert ledger.reach.standings[name].session is not None, f"{name} waits to be tried and is away"

    # --- changing -----------------------------------------------------------------------------------------------

    def fork(self) -> "Cluster":
        """An independent copy, to try an act on: about a millisecond for 1,000 nodes."""
        twin = copy.copy(self)
        twin._ledger, twin._sent = self._ledger.copy(), dict(self._sent)
        return twin

    def become(self, fork: "Cluster") -> None:
        """Take over all that a fork knows; the fork must not be used after."""
        self._ledger, self._sent = fork._ledger, fork._sent

    def apply(self, happened: Input, now: float) -> list[Effect]:
        """Take one input and return what the shell must do; a request may raise Rejected, then nothing changed.

        After a fault of ours (the last effect says which) what was done before it stands and is told as usual.
        """
        self._ledger.turn = turn = Turn(now)
        if isinstance(happened, ScaleModel):
            models.scale(self._ledger, happened)  # a refused request must leave nothing behind, so it comes first
        handle = partial(self._handle, happened)
        for step in (handle, self._settle_early, self._reconcile_touched, self._publish):
            try:
                step()
            except Exception as fault:  # what is changed in memory must reach the store, whatever went wrong after it
                turn.faults.append(fault)
        return [*turn.effects, *(Fault(fault) for fault in turn.faults)]

    def _reconcile_touched(self) -> None:
        turn = self._ledger.turn
        for name in sorted(turn.models):
            if self._ledger.settled or name in turn.asked:
                self._reconcile(name)

    def _handle(self, happened: Input) -> None:
        match happened:
            case AgentRegistered() | AgentTurnedAway() | AgentBeat() | AgentReported() | AgentGone():
                self._handle_agent(happened)
            case AgentListens() | RouterCame() | RouterGone() | RouterTried():
                self._handle_trial(happened)
            case CatalogLoaded():
                models.load(self._ledger, happened)
            case ScaleModel():
                pass  # taken before, where it may be refused
            case Tick():
                self._tick()
            case Overslept():
                sessions.overslept(self._ledger, happened.seconds)

    def _handle_agent(
        self, happened: AgentRegistered | AgentTurnedAway | AgentBeat | AgentReported | AgentGone
    ) -> None:
        match happened:
            case AgentRegistered():
                sessions.registered(self._ledger, happened)
                trials.registered(self._ledger, happened.registration.node, happened.session)
            case AgentTurnedAway():
                sessions.turned_away(self._ledger, happened)
            case AgentBeat():
                sessions.beat(self._ledger, happened)
            case AgentReported():
                sessions.reported(self._ledger, happened)
                trials.described(self._ledger, happened.node, happened.session)
            case AgentGone():
                sessions.gone(self._ledger, happened)
                trials.gone(self._ledger, happened.node, happened.session)

    def _handle_trial(self, happened: AgentListens | RouterCame | RouterGone | RouterTried) -> None:
        match happened:
            case AgentListens():
                trials.listens(self._ledger, happened)
            case RouterCame():
                trials.router_came(self._ledger, happened)
            case RouterGone():
                trials.router_gone(self._ledger, happened)
            case RouterTried():
                trials.tried(self._ledger, happened)

    # --- time ---------------------------------------------------------------------------------------------------

    def _tick(self) -> None:
        ledger = self._ledger
        for subject in ledger.deadlines.take(ledger.now):
            match subject:
                case SettleDue():
                    self._settle(f"{ledger.settings.settle:g} s after the start")
                case NodeDue(name):
                    sessions.refresh(ledger, ledger.nodes[name])
                case AskDue(model, _):
                    ledger.turn.models.add(model)
                case WarnDue(name):
                    ledger.turn.nodes.add(name)
                    ledger.watch_warnings(ledger.nodes[name])
                case TellDue(name):
                    descriptions.sum_up(ledger, name)
                case ReachDue(name):
                    trials.refresh(ledger, name)
                case RouterDue(router):
                    trials.forget(ledger, router)
                case ReasonsDue():
                    trials.renew_reasons(ledger)

    def _settle_early(self) -> None:
        """All nodes that the store knows are back, so there is nobody to wait for.

        A store without assignments may be a lost one: then only time tells.
        """
        ledger = self._ledger
        if ledger.settled or not ledger.replicas or not ledger.nodes:
            return
        if all(node.state is NodeState.READY for node in ledger.nodes.values()) and not self._only_adopted():
            ledger.deadlines.set(SettleDue(), None)
            self._settle("all known nodes are back")

    def _only_adopted(self) -> bool:
        return all(replica.adopted for replica in self._ledger.replicas.values())

    def _settle(self, why: str) -> None:
        ledger = self._ledger
        ledger.settled = ledger.turn.settled = True
        ledger.emit(EventKind.SETTLED, ledger.settings.cluster, why)
        ledger.turn.models |= ledger.models.keys() | {replica.model for replica in ledger.replicas.values()}
        ledger.turn.nodes |= ledger.nodes.keys()

    # --- placing ------------------------------------------------------------------------------------------------

    def _reconcile(self, name: ModelName) -> None:
        ledger, model = self._ledger, self._ledger.models.get(name)
        wanted = model.replicas if model else 0
        if ledger.strays:
            shards.adopt_strays(ledger, name)
        difference = gap(wanted, ledger.replicas_of(name), ledger.node_state)
        for replica in difference.surplus:
            why = f"{wanted} wanted" if model else "its model is no longer in server.yaml"
            shards.retire(ledger, ledger.replicas[replica], why=why)
        missing = self._fill(model, difference.missing) if model else None
        if missing is None:
            ledger.refusals.pop(name, None)
        else:
            self._say_refused(name, *missing)

    def _fill(self, model: Model, missing: int) -> tuple[int, tuple[Refusal, ...]] | None:
        """Place what is missing; return how many have no node and why, or None when all have one."""
        if not missing:
            return None
        need = Need(model=model.name, profile=model.profile)
        nodes, refusals = fill(need, self._rooms(model.name), missing, self._ledger.now)
        for node in nodes:
            self._assign(model, node)
        return (missing - len(nodes), refusals) if len(nodes) < missing else None

    def _assign(self, model: Model, node: NodeName) -> None:
        ledger = self._ledger
        replica = replica_id(model.name, ledger.next_ordinal(model.name))
        ledger.turn.because[replica] = ledger.turn.because.get(model.name, ledger.turn.first_event)
        event = ledger.emit(EventKind.REPLICA_PLACED, replica, f"on {node}")
        shard = Shard(id=shard_id(replica, 0), node=node, rank=0, since=ledger.now)
        ledger.caused(shard.id, event)
        ledger.put_replica(
            Replica(
                id=replica,
                model=model.name,
                profile=model.profile,
                want=Want.RUN,
                placed_at=ledger.now,
                shards=(shard,),
            ),
            save=True,
        )

    def _rooms(self, model: ModelName) -> list[Room]:
        ledger = self._ledger
        same: dict[NodeName, int] = {}
        for replica in ledger.replicas_of(model):
            for name in replica.nodes:
                same[name] = same.get(name, 0) + 1
        return [room(ledger, node, model, same=same.get(node.name, 0)) for node in ledger.nodes.values()]

    def _say_refused(self, name: ModelName, missing: int, refusals: tuple[Refusal, ...]) -> None:
        """An event when the reasons change; numbers that only grew older are no news."""
        ledger = self._ledger
        before = ledger.refusals.get(name)
        ledger.refusals[name] = refusals
        if any(isinstance(refusal, AddressNotTried) for refusal in refusals):
            return  # whether a node takes it is known within seconds, and said then
        if before is not None and _reasons(before) == _reasons(refusals):
            return
        verdicts = ", ".join(f"{count} {verdict.value}" for verdict, count in counts(refusals).items() if count)
        text = f"{several(len(refusals), 'node')}: {verdicts}" if refusals else "there are no nodes yet"
        ledger.emit(EventKind.PLACE_REFUSED, name, f"{missing} more wanted; {text}")

    # --- telling ------------------------------------------------------------------------------------------------

    def _publish(self) -> None:
        """Say what changed: views, routes, and Desired to the nodes whose orders are others now."""
        ledger, turn = self._ledger, self._ledger.turn
        if not (turn.nodes or turn.models or turn.replicas or turn.effects):
            return
        ledger.change += 1
        for noun, names in ((Noun.NODES, turn.nodes), (Noun.MODELS, turn.models), (Noun.REPLICAS, turn.replicas)):
            for name in sorted(names):
                ledger.do(Publish(noun, name))
        if (turn.models or turn.settled) and ledger.settled:
            ledger.do(PublishRoutes())
        for node in sorted(turn.nodes):
            self._send_desired(node)

    def _send_desired(self, name: NodeName) -> None:
        node = self._ledger.nodes.get(name)
        session = node.session if node else None
        if session is None:
            self._sent.pop(name, None)
            return
        sent = (session, replace(self.desired(name), revision=0))
        if self._sent.get(name) != sent:
            self._sent[name] = sent
            self._ledger.do(SendDesired(name))


def _reasons(refusals: tuple[Refusal, ...]) -> set[tuple[str, str]]:
    """That a node is being tried is over in a moment, and so no reason that was told."""
    return {(refusal.node, refusal.code) for refusal in refusals if not isinstance(refusal, AddressNotTried)}
