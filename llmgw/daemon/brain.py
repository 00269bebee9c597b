"""Who changes the cluster? One task, one queue: it applies what came in, stores what that asks for, then tells.

    inputs ─▶ apply, up to BATCH at once ─▶ one transaction ─▶ answers, Desired, watchers, routers

An act of an operator travels alone and is answered when it is on disk; when it cannot be stored it is taken back and
refused, and nobody saw it. What agents report is true whether or not it is stored: while the store takes nothing,
reports are applied and shown, what they ask to be stored waits (newest per subject) and is tried again each second, and
no node is sent new orders until it is.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Protocol

from llmgw.core.cluster import Cluster
from llmgw.core.effects import (
    Answer,
    AppendEvent,
    DropAssignment,
    DropOverlay,
    Effect,
    EndSession,
    Persist,
    Publish,
    PublishRoutes,
    SaveAssignment,
    SaveNode,
    SaveOrdinal,
    SaveOverlay,
    SendDesired,
)
from llmgw.core.errors import ControlFault, LlmgwError, Unreachable
from llmgw.core.events import Event
from llmgw.core.facts import Accepted, Refused
from llmgw.core.inputs import Input, ScaleModel, Tick
from llmgw.core.names import NodeName
from llmgw.core.views import Done
from llmgw.daemon.routes import RouteFeed
from llmgw.daemon.rows import subject
from llmgw.daemon.store import NotStored
from llmgw.daemon.undo import Undo
from llmgw.daemon.watch import Hub

log = logging.getLogger(__name__)

BATCH = 256
"""Inputs of one transaction."""

SLICE = 0.02
"""Seconds of deciding after which sockets get their turn, also within a batch."""

RETRY = 1.0
"""Seconds until a store without room is tried again."""

_PERSIST = (SaveAssignment, DropAssignment, SaveOrdinal, SaveOverlay, DropOverlay, SaveNode, AppendEvent)
_MOST_WAITING_EVENTS = 1_000

Act = ScaleModel


class Sessions(Protocol):
    """Where agents are reached: `daemon.agents.AgentLinks`."""

    def answer(self, session: int, answer: Accepted | Refused) -> None:
        """Give a session its answer."""

    def end(self, session: int, why: Refused) -> None:
        """Let a session end."""

    def send_desired(self, node: NodeName) -> None:
        """The node's orders changed."""


class Saves(Protocol):
    """Where things are kept: `daemon.store.Store`."""

    async def save(self, effects: Sequence[Persist]) -> None:
        """All or nothing; raises NotStored."""


class Brain:
    """The one writer. `run` it in one task; everybody else uses `tell` and `ask`."""

    def __init__(
        self, cluster: Cluster, store: Saves, hub: Hub, routes: RouteFeed, sessions: Sessions, now: Callable[[], float]
    ) -> None:
        self.cluster = cluster
        self._store, self._hub, self._routes, self._sessions, self._now = store, hub, routes, sessions, now
        self._queue: asyncio.Queue[tuple[Input, asyncio.Future[Done | None]] | None] = asyncio.Queue()
        self._stopping = False
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
        """Queue what nobody waits for; after `stop` it is news no more, for `run` has ended or ends before it."""
        self._queue.put_nowait((happened, asyncio.get_running_loop().create_future()))

    def stop(self) -> None:
        """Let `run` return once what is queued was done; later inputs are refused."""
        self._stopping = True
        self._queue.put_nowait(None)

    async def run(self) -> None:
        """Apply inputs and let time pass, until `stop`."""
        going = True
        while going:
            inputs, going = await self._next()
            await self._take([one for one in inputs if not isinstance(one[0], Act)])
            for happened, answer in inputs:
                if isinstance(happened, Act):
                    await self._act(happened, answer)
        if self._unsaved:
            log.error("stopped with %d changes that the store did not take: %s", len(self._unsaved), self.problem)

    # --- the queue ----------------------------------------------------------------------------------------------

    async def _put(self, happened: Input) -> Done | None:
        if self._stopping:
            raise Unreachable("the control plane is stopping; ask again in a moment")
        answer: asyncio.Future[Done | None] = asyncio.get_running_loop().create_future()
        self._queue.put_nowait((happened, answer))
        return await answer

    async def _next(self) -> tuple[list[tuple[Input, asyncio.Future[Done | None]]], bool]:
        """Return what is queued, waiting for the first or for the next deadline, and whether to go on after it."""
        inputs: list[tuple[Input, asyncio.Future[Done | None]]] = []
        delay = self._delay()
        if delay is not None and delay <= 0:
            inputs.append((Tick(), asyncio.get_running_loop().create_future()))
        elif self._queue.empty():
            try:
                async with asyncio.timeout(delay):
                    first = await self._queue.get()
            except TimeoutError:
                return [(Tick(), asyncio.get_running_loop().create_future())], True
            if first is None:
                return inputs, False
            inputs.append(first)
        while len(inputs) < BATCH and not self._queue.empty():
            one = self._queue.get_nowait()
            if one is None:
                return inputs, False
            inputs.append(one)
        return inputs, True

    def _delay(self) -> float | None:
        """Seconds until the cluster or the store has to be looked at; None while nothing is due."""
        due = [at for at in (self.cluster.deadline(), self._retry_at) if at is not None]
        return min(due) - self._now() if due else None

    # --- what happened ------------------------------------------------------------------------------------------

    async def _take(self, inputs: Sequence[tuple[Input, asyncio.Future[Done | None]]]) -> None:
        """Apply inputs that need no undo, with one transaction for all."""
        effects: list[Effect] = []
        clock = asyncio.get_running_loop().time
        turn_ends = clock() + SLICE
        for happened, answer in inputs:
            if clock() > turn_ends:
                await asyncio.sleep(0)
                turn_ends = clock() + SLICE
            try:
                effects += self.cluster.apply(happened, self._now())
            except LlmgwError as error:
                _fail(answer, error)
            except Exception as error:
                # The supervisor of the one writer: a fault that one agent's words trigger must not end the control
                # plane of all the others. Its session ends with these words; the trace is in the log.
                log.exception("a fault of ours: %s could not be applied", type(happened).__name__)
                _fail(answer, ControlFault(f"{type(error).__name__}; the log of llmgwd says where"))
        await self._save([effect for effect in effects if isinstance(effect, _PERSIST)])
        self._carry_out(effects)
        for _, answer in inputs:
            if not answer.done():
                answer.set_result(None)

    async def _act(self, act: Act, answer: asyncio.Future[Done | None]) -> None:
        """Apply an act if it can be stored; otherwise it never happened."""
        undo = Undo(self.cluster)
        self._hub.steady.clear()
        try:
            if not await self._save([]):
                raise NotStored(self.problem)
            effects = self.cluster.apply(act, self._now())
            try:
                await self._store.save([effect for effect in effects if isinstance(effect, _PERSIST)])
            except NotStored:
                undo.take_back()
                raise
        except LlmgwError as error:
            _fail(answer, error)
            return
        except Exception as error:  # as in _take, and it can be undone
            undo.take_back()
            log.exception("a fault of ours: %s could not be applied", type(act).__name__)
            _fail(answer, ControlFault(f"{type(error).__name__}; the log of llmgwd says where"))
            return
        finally:
            self._hub.steady.set()
        self._carry_out(effects)
        if not answer.done():  # the one who asked may have left
            answer.set_result(Done(revision=self.cluster.revision, event=_event_of(effects)))

    # --- storing ------------------------------------------------------------------------------------------------

    async def _save(self, persist: Sequence[Persist]) -> bool:
        """Store this, and what could not be stored earlier; return whether all of it is on disk."""
        for effect in persist:
            self._unsaved.pop(subject(effect), None)
            self._unsaved[subject(effect)] = effect
        if not self._unsaved:
            return True
        try:
            await self._store.save(list(self._unsaved.values()))
        except NotStored as error:
            self._remember_problem(error)
            self._forget_old_events()
            return False
        if self.problem:
            log.warning("the store takes writes again: %d changes stored late", len(self._unsaved))
        self._unsaved.clear()
        self.problem, self._retry_at = "", None
        for node in self._withheld:
            self._sessions.send_desired(node)
        self._withheld.clear()
        return True

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
        """Tell everybody; an entity that changed twice is published once."""
        changed: dict[Publish, None] = {}
        routes = False
        for effect in effects:
            match effect:
                case AppendEvent(event):
                    _log_event(event)
                    self._hub.append(event)
                case Answer(session, answer):
                    self._sessions.answer(session, answer)
                case EndSession(session, why):
                    self._sessions.end(session, why)
                case SendDesired(node):
                    self._order(node)
                case Publish():
                    changed[effect] = None
                case PublishRoutes():
                    routes = True
        for publish in changed:
            self._hub.publish(publish.noun, publish.name)
        if routes:
            self._routes.publish()

    def _order(self, node: NodeName) -> None:
        if self._unsaved:
            self._withheld.add(node)
        else:
            self._sessions.send_desired(node)


def _fail(answer: asyncio.Future[Done | None], error: LlmgwError) -> None:
    """Give the asker its error; nobody may be waiting for it (a tick, or a client that left)."""
    if not answer.done():
        answer.set_exception(error)
        answer.exception()


def _event_of(effects: Sequence[Effect]) -> Event:
    """The event that an act became: the first, for all others follow from it."""
    return next(effect.event for effect in effects if isinstance(effect, AppendEvent))


def _log_event(event: Event) -> None:
    because = f" (because of {event.cause})" if event.cause else ""
    by = f" by {event.by}" if event.by else ""
    log.info("%d %s %s: %s%s%s", event.seq, event.kind.value, event.subject, event.text, by, because)
