"""The control plane's decisions: one input in, effects out.

    input → handler writes the ledger → models it touched are reconciled → effects, in the order to carry them out

One task of the shell calls `apply`. Nothing here waits, reads a clock or fails for a reason that an agent can cause.

While unsettled (after a start, until all known nodes are back or `settle` is over) nothing is placed or drained but
what an operator asks for, and routers keep the table they have.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace

from llmgw.core import sessions, shards, show
from llmgw.core.catalog import Model, Scaled, merge
from llmgw.core.effects import DropOverlay, Effect, Publish, PublishRoutes, SaveOverlay, SendDesired
from llmgw.core.errors import TooMany, UnknownModel
from llmgw.core.events import EventKind
from llmgw.core.facts import Desired, Want
from llmgw.core.inputs import (
    AgentBeat,
    AgentGone,
    AgentRegistered,
    AgentReported,
    AgentTurnedAway,
    CatalogLoaded,
    Input,
    ScaleModel,
    Tick,
)
from llmgw.core.ledger import AskDue, Ledger, NodeDue, Settings, SettleDue, Stored, Turn
from llmgw.core.names import ModelName, NodeName, ReplicaId, replica_id, shard_id
from llmgw.core.placement import Need, Room, Unplaced, place
from llmgw.core.reconcile import gap
from llmgw.core.refusals import Refusal, counts
from llmgw.core.state import Replica, Shard
from llmgw.core.units import several
from llmgw.core.views import Gone, ModelView, NodeState, NodeView, Noun, ReplicaView, Revision, Routes, Why

MOST_REPLICAS = 10_000
"""Of one model: a slip of the keyboard must not become a million orders."""


class Cluster:
    """All nodes, models and replicas, and what is to be done about them."""

    def __init__(self, settings: Settings, stored: Stored, *, epoch: int, now: float) -> None:
        self._ledger = Ledger(settings, stored, epoch=epoch, now=now)
        self._started = False
        self._names: dict[str, ModelName] = {}
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
            return show.replica(ledger.replicas[ReplicaId(name)])
        return Gone(noun=noun, name=name)

    def routes(self) -> Routes | None:
        """Return the route table, or None while unsettled: routers then keep what they have."""
        return show.routes(self._ledger) if self.settled else None

    def why(self, name: str, now: float) -> Why:
        """Return each node's answer to one more replica of a model (name or alias), or raise UnknownModel."""
        model = self._model(name)
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

    def replicas_on(self, node: NodeName) -> list[Replica]:
        """All replicas with a shard on a node, those that leave too."""
        return self._ledger.replicas_on(node)

    def check(self) -> None:
        """Assert what must hold between inputs; for tests."""
        ledger = self._ledger
        for replica in ledger.replicas.values():
            assert all(replica in ledger.replicas_on(node) for node in replica.nodes), f"{replica.id} is not indexed"
            assert replica in ledger.replicas_of(replica.model), f"{replica.id} is not indexed by its model"
        for node in ledger.nodes.values():
            assert (node.state is not NodeState.READY) or node.session is not None, f"{node.name} is ready, not there"
        for name in ledger.refusals:
            given = [refusal.node for refusal in ledger.refusals[name]]
            assert len(given) == len(set(given)), f"{name} has two refusals of one node"

    # --- changing -----------------------------------------------------------------------------------------------

    def apply(self, happened: Input, now: float) -> list[Effect]:
        """Take one input and return what the shell must do; a request may raise Rejected, then nothing changed."""
        ledger = self._ledger
        ledger.turn = turn = Turn(now)
        self._handle(happened)
        self._settle_early()
        for name in sorted(turn.models):
            if ledger.settled or name in turn.asked:
                self._reconcile(name)
        self._publish()
        return turn.effects

    def _handle(self, happened: Input) -> None:
        match happened:
            case AgentRegistered():
                sessions.registered(self._ledger, happened)
            case AgentTurnedAway():
                self._ledger.emit(EventKind.NODE_REFUSED, happened.node, happened.text)
            case AgentBeat():
                sessions.beat(self._ledger, happened)
            case AgentReported():
                sessions.reported(self._ledger, happened)
            case AgentGone():
                sessions.gone(self._ledger, happened)
            case CatalogLoaded():
                self._load_catalog(happened)
            case ScaleModel():
                self._scale(happened)
            case Tick():
                self._tick()

    # --- models -------------------------------------------------------------------------------------------------

    def _model(self, name: str) -> Model:
        if name not in self._names:
            raise UnknownModel(name, self._ledger.models)
        return self._ledger.models[self._names[name]]

    def _load_catalog(self, loaded: CatalogLoaded) -> None:
        ledger = self._ledger
        before, ledger.declared = ledger.declared, dict(loaded.models)
        ledger.models, living, overruled = merge(ledger.declared, ledger.overlays)
        for end in overruled:
            text = (
                f"server.yaml now says {end.replicas} replicas and overrules the {end.overlay.replicas} set at run time"
            )
            ledger.emit(EventKind.OVERLAY_OVERRULED, end.overlay.model, text)
        for name in ledger.overlays.keys() - living.keys():
            ledger.do(DropOverlay(name))
        ledger.overlays = living
        self._names = {name: model.name for model in ledger.models.values() for name in (*model.aliases, model.name)}
        if self._started:
            self._say_catalog(before)
        else:
            self._started = True
            remembered = several(len(ledger.replicas), "replica")
            text = f"epoch {ledger.epoch}; {several(len(ledger.models), 'model')} declared, {remembered} remembered"
            ledger.emit(EventKind.CONTROL_STARTED, ledger.settings.cluster, text)
        ledger.turn.models |= ledger.models.keys() | before.keys()
        ledger.turn.models |= {replica.model for replica in ledger.replicas.values()}

    def _say_catalog(self, before: Mapping[ModelName, Model]) -> None:
        ledger = self._ledger
        for name in sorted(before.keys() - ledger.declared.keys()):
            ledger.refusals.pop(name, None)
            ledger.caused(name, ledger.emit(EventKind.MODEL_REMOVED, name, "no longer in server.yaml"))
        for name in sorted(ledger.declared):
            if name not in before:
                ledger.emit(EventKind.MODEL_ADDED, name, f"{several(ledger.models[name].replicas, 'replica')} wanted")
            elif before[name] != ledger.declared[name]:
                ledger.emit(EventKind.MODEL_CHANGED, name, "its entry in server.yaml changed")

    def _scale(self, asked: ScaleModel) -> None:
        ledger, model = self._ledger, self._model(asked.model)
        if not 0 <= asked.replicas <= MOST_REPLICAS:
            raise TooMany(f"model {model.name}", asked.replicas, MOST_REPLICAS)
        declared = ledger.declared[model.name].replicas
        text = f"{model.replicas} → {asked.replicas} replicas"
        event = ledger.emit(EventKind.MODEL_SCALED, model.name, text, by=asked.by)
        overlay = Scaled(model=model.name, replicas=asked.replicas, declared=declared, by=asked.by)
        if asked.replicas == declared:
            ledger.overlays.pop(model.name, None)
            ledger.do(DropOverlay(model.name))
        else:
            ledger.overlays[model.name] = overlay
            ledger.do(SaveOverlay(overlay))
        ledger.models[model.name] = replace(model, replicas=asked.replicas)
        ledger.caused(model.name, event)
        for replica in ledger.replicas_of(model.name):
            if replica.adopted:  # the operator has decided: an ordinary replica from now on
                ledger.put_replica(replace(replica, adopted=False), save=True)
        ledger.turn.models.add(model.name)
        ledger.turn.asked.add(model.name)

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
        ledger.settled = True
        ledger.emit(EventKind.SETTLED, ledger.settings.cluster, why)
        ledger.turn.models |= ledger.models.keys() | {replica.model for replica in ledger.replicas.values()}
        ledger.turn.nodes |= ledger.nodes.keys()

    # --- placing ------------------------------------------------------------------------------------------------

    def _reconcile(self, name: ModelName) -> None:
        ledger, model = self._ledger, self._ledger.models.get(name)
        wanted = model.replicas if model else 0
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
        need = Need(model=model.name, profile=model.profile)
        for left in range(missing, 0, -1):
            answer = place(need, self._rooms(model.name), self._ledger.now)
            if isinstance(answer, Unplaced):
                return left, answer.refusals
            self._assign(model, answer.node)
        return None

    def _assign(self, model: Model, node: NodeName) -> None:
        ledger = self._ledger
        replica = replica_id(model.name, ledger.next_ordinal(model.name))
        event = ledger.emit(EventKind.REPLICA_PLACED, replica, f"on {node}", because_of=model.name)
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
        rooms = []
        for node in ledger.nodes.values():
            words = ledger.words.get((model, node.name))
            refused = (words.text, words.until) if words else None
            promised = ledger.promised(node.name)
            rooms.append(Room(node=node, promised=promised, same=same.get(node.name, 0), refused=refused))
        return rooms

    def _say_refused(self, name: ModelName, missing: int, refusals: tuple[Refusal, ...]) -> None:
        """An event when the reasons change; numbers that only grew older are no news."""
        ledger = self._ledger
        before = ledger.refusals.get(name)
        ledger.refusals[name] = refusals
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
        if turn.models and ledger.settled:
            ledger.do(PublishRoutes())
        for node in sorted(turn.nodes):
            self._send_desired(node)

    def _send_desired(self, name: NodeName) -> None:
        session = self._ledger.nodes[name].session
        if session is None:
            return
        sent = (session, replace(self.desired(name), revision=0))
        if self._sent.get(name) != sent:
            self._sent[name] = sent
            self._ledger.do(SendDesired(name))


def _reasons(refusals: tuple[Refusal, ...]) -> set[tuple[str, str]]:
    return {(refusal.node, refusal.code) for refusal in refusals}
