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

from llmgw.core import descriptions, invariants, models, placing, rollout, sessions, shards, show, trials
from llmgw.core.due import (
    AskDue,
    NodeDue,
    ReachDue,
    ReasonsDue,
    ResolveDue,
    RouterDue,
    SettleDue,
    TellDue,
    TurnDue,
    WarnDue,
    WordsDue,
)
from llmgw.core.effects import Effect, Fault, Publish, PublishRoutes, SendDesired
from llmgw.core.engines.orders import Release, WantedEngines
from llmgw.core.events import EventKind
from llmgw.core.inputs import (
    Act,
    AgentBeat,
    AgentGone,
    AgentInstalls,
    AgentListens,
    AgentRegistered,
    AgentReported,
    AgentTurnedAway,
    CatalogLoaded,
    Input,
    LockEngine,
    Overslept,
    ReleaseFound,
    ReleaseNotFound,
    RetryEngine,
    RouterCame,
    RouterGone,
    RouterTried,
    ScaleModel,
    Tick,
)
from llmgw.core.ledger import Ledger, Turn
from llmgw.core.link import Desired
from llmgw.core.names import ModelName, NodeName, ReplicaId
from llmgw.core.placement import place
from llmgw.core.presence import NodeState
from llmgw.core.provision import following, resolving, wanted, wishing
from llmgw.core.provision import views as engine_views
from llmgw.core.routes import Routes
from llmgw.core.settings import Settings, Stored
from llmgw.core.views import EngineView, Gone, ModelView, NodeView, Noun, ReplicaView, Revision, Why


class Cluster:
    """All nodes, models and replicas, and what is to be done about them."""

    def __init__(self, settings: Settings, stored: Stored, *, epoch: int, now: float) -> None:
        self._ledger = Ledger(settings, stored, epoch=epoch, now=now)
        resolving.recall(self._ledger, stored.releases)
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
        """Of all nodes, models, replicas or engines, sorted."""
        known: dict[Noun, Iterable[str]] = {
            Noun.NODES: self._ledger.nodes,
            Noun.MODELS: self._ledger.models,
            Noun.REPLICAS: self._ledger.replicas,
            Noun.ENGINES: (name for views in self._ledger.book.shown.values() for name in views),
        }
        return sorted(known.get(noun, ()))

    def view(self, noun: Noun, name: str) -> NodeView | ModelView | ReplicaView | EngineView | Gone:
        """Return the whole view of an entity, or that it is gone."""
        ledger = self._ledger
        if noun is Noun.NODES and name in ledger.nodes:
            return show.node(ledger, ledger.nodes[NodeName(name)])
        if noun is Noun.MODELS and name in ledger.models:
            return show.model(ledger, ledger.models[ModelName(name)])
        if noun is Noun.REPLICAS and name in ledger.replicas:
            return show.replica(ledger, ledger.replicas[ReplicaId(name)])
        if noun is Noun.ENGINES:
            shown = ledger.book.shown.get(NodeName(name.partition("/")[0]), {})
            return shown.get(name) or Gone(noun=noun, name=name)
        return Gone(noun=noun, name=name)

    def routes(self) -> Routes | None:
        """Return the route table, or None while unsettled: routers then keep what they have."""
        return show.routes(self._ledger) if self.settled else None

    def why(self, name: str, now: float) -> Why:
        """Return each node's answer to one more replica of a model (name or alias), or raise UnknownModel."""
        model = models.find(self._ledger, name)
        answer = place(rollout.need(self._ledger, model), placing.rooms(self._ledger, model), now)
        return show.why(self._ledger, model, answer, now)

    def wanted_engines(self) -> WantedEngines:
        """Return the engines that nodes should have, with what is known of their files."""
        return wanted.engines(self._ledger)

    def release(self, name: str) -> Release | None:
        """Return the release of this id; None when no order names it now."""
        return resolving.release(self._ledger, name)

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
            engines=wanted.orders(ledger, node),
        )

    def check(self) -> None:
        """Assert what must hold between inputs; for tests."""
        invariants.check(self._ledger, self.desired, self._sent)

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
        if isinstance(happened, Act):
            self._act(happened)  # a refused one must leave nothing behind, so it comes first
        handle, follow = partial(self._handle, happened), partial(following.follow, self._ledger)
        for step in (handle, self._settle_early, follow, self._reconcile_touched, self._publish):
            try:
                step()
            except Exception as fault:  # what is changed in memory must reach the store, whatever went wrong after it
                turn.faults.append(fault)
        return [*turn.effects, *(Fault(fault) for fault in turn.faults)]

    def _act(self, asked: Act) -> None:
        match asked:
            case ScaleModel():
                models.scale(self._ledger, asked)
            case LockEngine():
                resolving.lock(self._ledger, asked)
            case RetryEngine():
                wishing.retry(self._ledger, asked)
                rollout.retried(self._ledger, asked.engine)

    def _reconcile_touched(self) -> None:
        turn = self._ledger.turn
        for name in rollout.order(self._ledger, turn.models):
            if self._ledger.settled or name in turn.asked:
                placing.reconcile(self._ledger, name)

    def _handle(self, happened: Input) -> None:
        match happened:
            case AgentRegistered() | AgentTurnedAway() | AgentBeat() | AgentReported() | AgentInstalls() | AgentGone():
                self._handle_agent(happened)
            case AgentListens() | RouterCame() | RouterGone() | RouterTried():
                self._handle_trial(happened)
            case CatalogLoaded():
                first = not self._ledger.loaded
                models.load(self._ledger, happened)
                wishing.load(self._ledger, happened, first=first)
            case ReleaseFound():
                resolving.found(self._ledger, happened)
            case ReleaseNotFound():
                resolving.not_found(self._ledger, happened)
            case ScaleModel() | LockEngine() | RetryEngine():
                pass  # taken before, where it may be refused
            case Tick():
                self._tick()
            case Overslept():
                sessions.overslept(self._ledger, happened.seconds)

    def _handle_agent(
        self, happened: AgentRegistered | AgentTurnedAway | AgentBeat | AgentReported | AgentInstalls | AgentGone
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
            case AgentInstalls():
                sessions.installs(self._ledger, happened)
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
                case ReachDue() | RouterDue() | ReasonsDue():
                    self._trials_due(subject)
                case ResolveDue() | TurnDue() | WordsDue():
                    self._engines_due(subject)

    def _trials_due(self, subject: ReachDue | RouterDue | ReasonsDue) -> None:
        match subject:
            case ReachDue(name):
                trials.refresh(self._ledger, name)
            case RouterDue(router):
                trials.forget(self._ledger, router)
            case ReasonsDue():
                trials.renew_reasons(self._ledger)

    def _engines_due(self, subject: ResolveDue | TurnDue | WordsDue) -> None:
        match subject:
            case ResolveDue(engine):
                resolving.due(self._ledger, engine)
            case TurnDue(name):
                following.turn_due(self._ledger, name)
            case WordsDue():
                following.reword(self._ledger)

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

    # --- telling ------------------------------------------------------------------------------------------------

    def _publish(self) -> None:
        """Say what changed: views, routes, and Desired to the nodes whose orders are others now."""
        ledger, turn = self._ledger, self._ledger.turn
        engines = self._changed_engines()
        touched = turn.nodes or turn.models or turn.replicas or turn.orders or turn.reworded or engines
        if not (touched or turn.effects):
            return
        ledger.change += 1
        for noun, names in (
            (Noun.NODES, turn.nodes),
            (Noun.MODELS, turn.models | turn.reworded),
            (Noun.REPLICAS, turn.replicas),
            (Noun.ENGINES, engines),
        ):
            for name in sorted(names):
                ledger.do(Publish(noun, name))
        if (turn.models or turn.settled) and ledger.settled:
            ledger.do(PublishRoutes())
        for node in sorted(turn.nodes | turn.orders):
            self._send_desired(node)

    def _changed_engines(self) -> set[str]:
        turn = self._ledger.turn
        touched = turn.engines | turn.progress
        return {engine for name in touched for engine in engine_views.changed(self._ledger, name)}

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
