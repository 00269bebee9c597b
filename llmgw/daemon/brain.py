"""Who changes the cluster? One task: it applies what came in, stores what that asks for, then tells.

    inbox ─▶ apply, up to BATCH at once ─▶ one transaction ─▶ answers, Desired, watchers, routers

An act of an operator travels alone and is answered when it is on disk: it is applied to a fork, and the cluster becomes
that fork once it is stored. An act that cannot be stored is refused, and nobody saw it. What agents report is true
whether or not it is stored: while the store takes nothing, reports are applied and shown, what they ask to be stored
waits (newest per subject) and is tried again each second, and no node is sent new orders until it is.

Orders and route tables are made right after the save, and handed on as values: what is sent is what is on disk.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import Protocol, TypeVar

from llmgw.core.cluster import Cluster
from llmgw.core.effects import (
    Answer,
    AppendEvent,
    AskAddress,
    AskRouters,
    Effect,
    EndSession,
    Fault,
    Persist,
    Publish,
    PublishRoutes,
    Resolve,
    SendDesired,
)
from llmgw.core.engines.orders import EngineWish
from llmgw.core.errors import ControlFault, LlmgwError, Unreachable
from llmgw.core.events import Event
from llmgw.core.inputs import Act, Input
from llmgw.core.link import Accepted, Desired, Refused, TryAddress
from llmgw.core.names import NodeName
from llmgw.core.views import Done
from llmgw.daemon.attempts import AttemptFeed
from llmgw.daemon.inbox import Inbox, Waiting
from llmgw.daemon.routes import RouteFeed
from llmgw.daemon.rows import subject
from llmgw.daemon.store import NotStored
from llmgw.daemon.watch import Hub

log = logging.getLogger(__name__)

SLICE = 0.02
"""Seconds of deciding after which sockets get their turn, also within a batch."""

RETRY = 1.0
"""Seconds until a store without room is tried again."""

_MOST_WAITING_EVENTS = 1_000

T = TypeVar("T")


class Sessions(Protocol):
    """Where agents are reached: `daemon.agents.AgentLinks`."""

    def answer(self, session: int, answer: Accepted | Refused) -> None:
        """Give a session its answer."""

    def end(self, session: int, why: Refused) -> None:
        """Let a session end."""

    def send_desired(self, node: NodeName, desired: Desired) -> None:
        """These are the node's orders now."""

    def ask(self, node: NodeName, question: TryAddress) -> None:
        """Ask the node's agent whether it can be reached."""


class Resolves(Protocol):
    """Who finds out the files of engines: `daemon.releases.resolver.Resolver`."""

    def resolve(self, wish: EngineWish) -> None:
        """Begin to; the answer is noted."""


class Saves(Protocol):
    """Where things are kept: `daemon.store.Store`."""

    async def save(self, effects: Sequence[Persist]) -> None:
        """All or nothing; raises NotStored."""


class Brain:
    """The one writer. `run` it in one task; everybody else uses `tell` and `ask`.

    `beat`: seconds between heartbeats; when inputs were not taken for longer, every node is given that time.
    """

    def __init__(
        self,
        cluster: Cluster,
        store: Saves,
        hub: Hub,
        routes: RouteFeed,
        attempts: AttemptFeed,
        sessions: Sessions,
        releases: Resolves,
        now: Callable[[], float],
        *,
        beat: float,
    ) -> None:
        self.cluster = cluster
        self._store, self._hub, self._routes, self._attempts = store, hub, routes, attempts
        self._sessions, self._releases, self._now = sessions, releases, now
        self._inbox = Inbox(now, beat)
        self._reached = 0.0
        self._unsaved: dict[tuple[str, object], Persist] = {}
        self._withheld: set[NodeName] = set()
        self._retry_at: float | None = None
        self.problem = ""
        """Why the store takes nothing; empty while it does."""

    async def tell(self, happened: Input) -> None:
        """Return when this was applied and its effects were carried out; raises what `apply` refused it with.

        Waiting is what bounds the queue: a sender has one input in it.
        """
        await self._put(happened)

    async def ask(self, act: Act) -> Done:
        """Carry out an act; returns when it is on disk. Raises Rejected, or NotStored: then nothing was changed."""
        done = await self._put(act)
        if done is None:
            raise TypeError(f"{type(act).__name__} has no answer")
        return done

    def note(self, happened: Input) -> None:
        """Queue what nobody waits for; after `stop` it is news no more."""
        if not self._inbox.closed:
            self._inbox.put(happened)

    def stop(self) -> None:
        """Let `run` return once what is queued was done; later inputs are refused."""
        self._inbox.close()

    async def run(self) -> None:
        """Apply inputs and let time pass, until `stop`."""
        while waiting := await self._inbox.take(self._due()):
            await self._take([one for one in waiting if not isinstance(one.happened, Act)])
            for one in waiting:
                if isinstance(one.happened, Act):
                    await self._act(one.happened, one.answer)
        if self._unsaved:
            log.error("stopped with %d changes that the store did not take: %s", len(self._unsaved), self.problem)

    async def _put(self, happened: Input) -> Done | None:
        if self._inbox.closed:
            raise Unreachable("the control plane is stopping; ask again in a moment")
        return await self._inbox.put(happened)

    # --- time ---------------------------------------------------------------------------------------------------

    def _due(self) -> float | None:
        """When the cluster or the store has to be looked at; None while nothing is due."""
        return min((at for at in (self.cluster.deadline(), self._retry_at) if at is not None), default=None)

    def _reach(self, at: float) -> float:
        """Let the cluster's time be `at`, or what it was already: it never runs backwards."""
        self._reached = max(self._reached, at)
        return self._reached

    # --- what happened ------------------------------------------------------------------------------------------

    async def _take(self, waiting: Sequence[Waiting]) -> None:
        """Apply inputs that nothing takes back, with one transaction for all."""
        effects: list[Effect] = []
        clock = asyncio.get_running_loop().time
        turn_ends = clock() + SLICE
        for one in waiting:
            if clock() > turn_ends:
                await asyncio.sleep(0)
                turn_ends = clock() + SLICE
            try:
                came = self.cluster.apply(one.happened, self._reach(one.at))
            except LlmgwError as error:
                _fail(one.answer, error)
                continue
            effects += came
            if (fault := _fault_of(came, one.happened)) is not None:
                _fail(one.answer, fault)
        await self._save([effect for effect in effects if isinstance(effect, Persist)])
        self._carry_out(effects)
        for one in waiting:
            if not one.answer.done():
                one.answer.set_result(None)

    async def _act(self, act: Act, answer: asyncio.Future[Done | None]) -> None:
        """Answer an act; what is in its way is the answer, too."""
        try:
            done = await self._done(act)
        except LlmgwError as error:
            _fail(answer, error)
            return
        if not answer.done():  # the one who asked may have left
            answer.set_result(done)

    async def _done(self, act: Act) -> Done:
        """Carry out an act if it can be stored; otherwise it never happened."""
        if not await self._save([]):
            raise NotStored(self.problem)
        fork = self.cluster.fork()
        effects = fork.apply(act, self._reach(self._now()))
        if (fault := _fault_of(effects, act)) is not None:
            raise fault
        await self._store.save([effect for effect in effects if isinstance(effect, Persist)])
        self.cluster.become(fork)
        self._carry_out(effects)
        return Done(revision=self.cluster.revision, event=_event_of(effects))

    # --- storing ------------------------------------------------------------------------------------------------

    async def _save(self, persist: Sequence[Persist]) -> bool:
        """Store this, and what could not be stored earlier; return whether all of it is on disk."""
        for effect in persist:
            self._unsaved.pop(subject(effect), None)
            self._unsaved[subject(effect)] = effect
        if not self._unsaved:
            return True
        try:
            await self._save_all_writable()
        except NotStored as error:
            self._remember_problem(error)
            self._forget_old_events()
            return False
        if self.problem:
            log.warning("the store takes writes again: %d changes stored late", len(self._unsaved))
        self._unsaved.clear()
        self.problem, self._retry_at = "", None
        for node in self._withheld:
            self._order(node)
        self._withheld.clear()
        return True

    async def _save_all_writable(self) -> None:
        """Store all that waits; a row that no store can hold is a fault of ours, and must not stop all others."""
        while self._unsaved:
            try:
                await self._store.save(list(self._unsaved.values()))
            except NotStored as error:
                if error.unwritable is None:
                    raise
                log.exception("a fault of ours: this is left out")
                del self._unsaved[subject(error.unwritable)]
            else:
                return

    def _remember_problem(self, error: NotStored) -> None:
        if not self.problem:
            log.error("acts are refused and no orders are sent, reading goes on: %s", error)
        self.problem = str(error)
        self._retry_at = None if error.lasting else self._now() + RETRY

    def _forget_old_events(self) -> None:
        """Everything else that waits is one per subject; events would grow without end."""
        waiting = [key for key in self._unsaved if key[0] == "event"]
        for key in waiting[:-_MOST_WAITING_EVENTS]:
            del self._unsaved[key]

    # --- telling ------------------------------------------------------------------------------------------------

    def _carry_out(self, effects: Sequence[Effect]) -> None:
        """Tell everybody: what happened in its order, and of what changed how it is now, once."""
        changed = dict.fromkeys(
            effect for effect in effects if isinstance(effect, Publish | SendDesired | PublishRoutes)
        )
        for effect in effects:
            self._tell_once(effect)
        for change in changed:
            match change:
                case Publish(noun, name):
                    self._hub.publish(noun, name)
                case SendDesired(node):
                    self._order(node)
                case PublishRoutes():
                    self._route()

    def _tell_once(self, effect: Effect) -> None:
        match effect:
            case AppendEvent(event):
                _log_event(event)
                self._hub.append(event)
            case Answer(session, answer):
                self._sessions.answer(session, answer)
            case EndSession(session, why):
                self._sessions.end(session, why)
            case AskAddress(node, question):
                self._sessions.ask(node, question)
            case Resolve(wish):
                self._releases.resolve(wish)
            case AskRouters(attempt):
                self._attempts.publish(attempt)

    def _order(self, node: NodeName) -> None:
        if self._unsaved:
            self._withheld.add(node)
        elif (desired := _made(partial(self.cluster.desired, node), f"orders of {node}")) is not None:
            self._sessions.send_desired(node, desired)

    def _route(self) -> None:
        if (table := _made(self.cluster.routes, "routes")) is not None:
            self._routes.publish(table)


def _made(make: Callable[[], T], what: str) -> T | None:
    """What is to be sent; None after a fault of ours: whoever waits for it keeps what it has, and all others go on."""
    try:
        return make()
    except Exception:  # the supervisor of the one writer
        log.exception("a fault of ours: the %s could not be made", what)
        return None


def _fail(answer: asyncio.Future[Done | None], error: LlmgwError) -> None:
    """Give the asker its error; nobody may be waiting for it (a tick, or a client that left)."""
    if not answer.done():
        answer.set_exception(error)
        answer.exception()


def _fault_of(effects: Sequence[Effect], happened: Input) -> ControlFault | None:
    """What to tell whoever sent `happened` when that met a fault of ours; the log gets the trace.

    It harms nobody else: one agent's words must not end the control plane of all the others.
    """
    fault = next((effect.error for effect in effects if isinstance(effect, Fault)), None)
    if fault is None:
        return None
    log.error("a fault of ours: %s could not be applied", type(happened).__name__, exc_info=fault)
    return ControlFault(f"{type(fault).__name__}; the log of llmgwd says where")


def _event_of(effects: Sequence[Effect]) -> Event:
    """The event that an act became: the first, for all others follow from it."""
    return next(effect.event for effect in effects if isinstance(effect, AppendEvent))


def _log_event(event: Event) -> None:
    because = f" (because of {event.cause})" if event.cause else ""
    by = f" by {event.by}" if event.by else ""
    log.info("%d %s %s: %s%s%s", event.seq, event.kind.value, event.subject, event.text, by, because)
