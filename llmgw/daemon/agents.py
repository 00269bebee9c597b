"""Who is on the other end of an agent's stream, and what travels on it?

    up    Registration (once, within FIRST) · Heartbeat · Report · Installs · Listening · Leaving
    down  Accepted or Refused (once) · Desired and TryAddress, of each the newest only

A stream is one session. Every end of it has one cause, which is logged and given to the cluster; the only clean one is
an agent that says it leaves. An agent that does not read is dropped after the server's send deadline; it never has a
queue, for of Desired and TryAddress only the newest counts.
"""

import asyncio
import itertools
import logging
import sys
from collections.abc import AsyncIterator, Callable, Coroutine
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from grpclib.const import Cardinality, Handler
from grpclib.exceptions import GRPCError

from llmgw.core.engines.orders import Release
from llmgw.core.engines.terms import Installs
from llmgw.core.errors import BadMessage, LlmgwError, UnknownRelease
from llmgw.core.inputs import (
    AgentBeat,
    AgentGone,
    AgentInstalls,
    AgentListens,
    AgentRegistered,
    AgentReported,
    AgentTurnedAway,
)
from llmgw.core.link import (
    Accepted,
    AgentMessage,
    ControlMessage,
    Desired,
    Heartbeat,
    Leaving,
    Listening,
    Refused,
    Registration,
    Report,
    TryAddress,
)
from llmgw.core.liveness import MISSED
from llmgw.core.names import NodeName
from llmgw.core.presence import NodeState
from llmgw.core.views import NodeView, Noun
from llmgw.daemon.brain import Brain
from llmgw.daemon.intake import bounded, weight
from llmgw.wire.agent import v1
from llmgw.wire.convert import from_wire, to_wire
from llmgw.wire.door import BidiStream, BoundedStream, bidi
from llmgw.wire.engines import v1 as engines_v1

log = logging.getLogger(__name__)

FIRST = 10.0
"""Seconds that an agent has for its registration."""

_PACE, _BURST = 0.02, 100
"""Seconds a heartbeat may cost on average, and how many may come at once; whoever sends more is read more slowly.

Other messages count as several (`intake.weight`), and all streams of a node count together.
"""


class Mailbox:
    """What one session has still to be sent: an answer, the newest question, and the newest orders."""

    def __init__(self, node: NodeName) -> None:
        self.node = node
        self._answer: Accepted | Refused | None = None
        self._question: TryAddress | None = None
        self._desired: Desired | None = None
        self._changed = asyncio.Event()

    def answer(self, answer: Accepted | Refused) -> None:
        """Goes out first."""
        self._answer = answer
        self._changed.set()

    def ask(self, question: TryAddress) -> None:
        """Goes out in the place of one that waits still."""
        self._question = question
        self._changed.set()

    def order(self, desired: Desired) -> None:
        """Goes out in the place of one that waits still."""
        self._desired = desired
        self._changed.set()

    async def next(self) -> ControlMessage:
        """Wait for the next message to send, and take it."""
        while True:
            await self._changed.wait()
            answer, self._answer = self._answer, None
            if answer is not None:
                return answer
            question, self._question = self._question, None
            if question is not None:
                return question
            self._changed.clear()
            desired, self._desired = self._desired, None
            if desired is not None:
                return desired


class Mailboxes:
    """The sessions of all agents, as the brain reaches them."""

    def __init__(self) -> None:
        self._by_session: dict[int, Mailbox] = {}
        self._by_node: dict[NodeName, int] = {}

    def open(self, session: int, node: NodeName) -> Mailbox:
        """A session begins."""
        box = self._by_session[session] = Mailbox(node)
        return box

    def close(self, session: int) -> None:
        """A session ended."""
        box = self._by_session.pop(session)
        if self._by_node.get(box.node) == session:
            del self._by_node[box.node]

    def answer(self, session: int, answer: Accepted | Refused) -> None:
        """Give a session its answer; an accepted one gets its node's orders from now on."""
        box = self._by_session.get(session)
        if box is None:
            return  # its stream ended meanwhile
        if isinstance(answer, Accepted):
            self._by_node[box.node] = session
        box.answer(answer)

    def end(self, session: int, why: Refused) -> None:
        """Let a session end."""
        self.answer(session, why)

    def send_desired(self, node: NodeName, desired: Desired) -> None:
        """Send this to the node's session, if it has one."""
        session = self._by_node.get(node)
        if session is not None:
            self._by_session[session].order(desired)

    def ask(self, node: NodeName, question: TryAddress) -> None:
        """Send this to the node's session, if it has one."""
        session = self._by_node.get(node)
        if session is not None:
            self._by_session[session].ask(question)


Link = BidiStream[v1.AgentMessage, v1.ControlMessage]


@dataclass(frozen=True, slots=True)
class End:
    """Why a stream is over."""

    text: str
    clean: bool = False
    error: Exception | None = None
    """What the agent is told, when it is an error of its own or of ours."""


class AgentLinks:
    """The agents' service: their streams, and the releases that their orders name."""

    def __init__(self, brain: Brain, boxes: Mailboxes, now: Callable[[], float]) -> None:
        self._brain, self._boxes, self._now = brain, boxes, now
        self._sessions = itertools.count(1)
        self._paces = dict[NodeName, _Pace]()
        """Of the nodes that have a certificate."""

    async def link(self, stream: Link) -> None:
        """Serve one stream until it ends."""
        session, who = next(self._sessions), f"{stream.peer.identity} at {stream.peer.address}"
        end = None
        try:
            end = await _ending(self._session(session, stream))
        finally:
            end = end or End(_cause(stream))
            log.log(logging.INFO if end.clean else logging.WARNING, "session %d of %s: %s", session, who, end.text)
        if end.error is not None:
            raise end.error

    async def _release(self, stream: BoundedStream[v1.ReleaseRequest, engines_v1.Release]) -> None:
        """Give out the files of a release, encoded once for all nodes that ask."""
        request = await stream.recv_message()
        name = request.id if request is not None else ""
        found = self._brain.cluster.release(name)
        if found is None:
            raise UnknownRelease(name)
        await stream.send_message(_encoded(found))

    def __mapping__(self) -> dict[str, Handler]:
        """The rpcs by path."""
        service = "/agent.v1.AgentLink/"
        handler = Handler(self._release, Cardinality.UNARY_UNARY, v1.ReleaseRequest, engines_v1.Release)
        link = bidi(service + "Link", v1.AgentMessage, v1.ControlMessage, self.link)
        return link.__mapping__() | {service + "GetRelease": handler}

    # --- one session --------------------------------------------------------------------------------------------

    async def _session(self, session: int, stream: Link) -> End:
        messages = _read(stream)
        try:
            async with asyncio.timeout(FIRST):
                first = await anext(messages, None)
        except TimeoutError:
            return await self._refuse(stream, "no_registration", f"no registration within {FIRST:g} s")
        if first is None:
            return End("it closed the stream before it registered")
        if not isinstance(first, Registration):
            return await self._refuse(stream, "no_registration", f"began with a {type(first).__name__}")
        if stream.peer.identity.name != first.node:
            return await self._turn_away(stream, first)
        return await self._registered(session, first, messages, stream)

    async def _registered(
        self, session: int, registration: Registration, messages: AsyncIterator[AgentMessage], stream: Link
    ) -> End:
        node, end = registration.node, None
        box = self._boxes.open(session, node)
        try:
            end = await _ending(self._converse(session, registration, messages, stream, box))
            return end
        finally:
            self._boxes.close(session)
            end = end or End(_cause(stream))
            self._brain.note(AgentGone(session=session, node=node, reason=end.text, clean=end.clean))

    async def _converse(
        self,
        session: int,
        registration: Registration,
        messages: AsyncIterator[AgentMessage],
        stream: Link,
        box: Mailbox,
    ) -> End:
        pace = self._paces.setdefault(registration.node, _Pace())
        await pace.keep(weight(registration))
        await self._brain.tell(AgentRegistered(session=session, registration=registration))
        answer = await box.next()
        await stream.send(to_wire(answer, v1.ControlMessage))
        if not isinstance(answer, Accepted):
            return End(f"refused: {answer.text if isinstance(answer, Refused) else 'it was not answered'}")
        pace.heard()
        return await _first(
            _ending(self._receive(session, registration.node, messages, pace)),
            _ending(self._send(box, stream)),
            _ending(self._silence(registration.node, answer.heartbeat, pace)),
        )

    async def _receive(self, session: int, node: NodeName, messages: AsyncIterator[AgentMessage], pace: "_Pace") -> End:
        while True:
            message = await anext(messages, None)
            pace.heard()
            match message:
                case Heartbeat():
                    await self._brain.tell(AgentBeat(session=session, node=node, heartbeat=message))
                case Report():
                    await self._brain.tell(AgentReported(session=session, node=node, report=message))
                case Installs():
                    await self._brain.tell(AgentInstalls(session=session, node=node, installs=message))
                case Listening():
                    await self._brain.tell(AgentListens(session=session, node=node, listening=message))
                case Leaving(reason=reason):
                    return End(reason, clean=True)
                case Registration():
                    raise BadMessage("Registration", "it", "is the first message of a stream, and the only one")
                case None:
                    return End("it closed the stream without saying that it leaves")
            await pace.keep(weight(message))

    async def _silence(self, node: NodeName, beat: float, pace: "_Pace") -> End:
        """Return when the node says nothing and the cluster has called it away for a beat.

        The cluster alone says when: it knows what time we ourselves lost.
        """
        while True:
            await asyncio.sleep(max(MISSED * beat - pace.silent, beat))
            view = self._brain.cluster.view(Noun.NODES, node)
            away = isinstance(view, NodeView) and view.state is not NodeState.READY and self._now() - view.since >= beat
            if away and pace.silent >= MISSED * beat:
                return End(f"silent for {pace.silent:.3g} s")

    async def _send(self, box: Mailbox, stream: Link) -> End:
        while True:
            message = await box.next()
            await stream.send(to_wire(message, v1.ControlMessage))
            if isinstance(message, Refused):
                return End(f"ended by us: {message.text}")

    # --- refusals -----------------------------------------------------------------------------------------------

    async def _turn_away(self, stream: Link, registration: Registration) -> End:
        """The certificate speaks for another node."""
        holder, claim = stream.peer.identity.name, registration.node
        text = f"certificate is for {holder}, the agent says it is {claim}"
        said = f"{text} (from {stream.peer.address})"
        await self._brain.tell(AgentTurnedAway(node=claim, holder=holder, text=said))
        way_out = f"set `node: {holder}` in its agent.yaml, or issue a certificate for {claim}"
        return await self._refuse(stream, "wrong_name", f"{text}; {way_out}")

    async def _refuse(self, stream: Link, code: str, text: str) -> End:
        await stream.send(to_wire(Refused(code=code, text=text), v1.ControlMessage))
        return End(f"refused: {text}")


class _Pace:
    """When a sender was heard, and how fast it may talk; its stream's flow control passes that on to it."""

    def __init__(self) -> None:
        self._clock = asyncio.get_running_loop().time
        self._free_at = self._heard_at = self._clock()

    @property
    def silent(self) -> float:
        """Seconds since it was heard."""
        return self._clock() - self._heard_at

    def heard(self) -> None:
        """It said something."""
        self._heard_at = self._clock()

    async def keep(self, weight: float = 1.0) -> None:
        """Wait if the last messages came too fast, for what they weigh."""
        now = self._clock()
        self._free_at = max(self._free_at, now) + weight * _PACE
        ahead = self._free_at - now - _BURST * _PACE
        if ahead > 0:
            await asyncio.sleep(ahead)


@lru_cache(maxsize=8)
def _encoded(release: Release) -> bytes:
    return bytes(to_wire(release, engines_v1.Release))


async def _read(stream: Link) -> AsyncIterator[AgentMessage]:
    """What the agent says, checked and bounded; raises BadMessage."""
    async for message in stream:
        yield bounded(from_wire(message, AgentMessage))


async def _ending(half: Coroutine[Any, Any, End]) -> End:
    """How `half` ended: what it returned, or the error that it met."""
    try:
        return await half
    except LlmgwError as error:
        return End(str(error), error=error)
    except GRPCError as error:
        return End(error.message or error.status.name, error=error)


async def _first(*halves: Coroutine[Any, Any, End]) -> End:
    """Run both directions until one ends, and return how."""
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(half) for half in halves]
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in tasks:
            task.cancel()
    return next(task.result() for task in tasks if task in done)


def _cause(stream: Link) -> str:
    """Why the call ends without an End: it was cancelled, or a fault of ours is on its way up."""
    error = sys.exc_info()[1]
    if error is not None and not isinstance(error, asyncio.CancelledError):
        return f"a fault of ours: {type(error).__name__}"
    return f"cut: {stream.cut}" if stream.cut else "llmgwd stops"
