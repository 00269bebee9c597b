"""How does the node stay in touch with its control plane? One stream, dialled by the agent, for ever again.

Each session registers the whole node, then beats, tells what changed, and hears what to run. The next session begins
when the last one's tasks have ended. Every end is logged with its cause; clean is only the end that we asked for.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from enum import Enum

from llmgw import __version__
from llmgw.agent.backoff import Backoff
from llmgw.agent.discovery.address import own_address
from llmgw.agent.listen import Listener
from llmgw.agent.news import News
from llmgw.agent.node import Node
from llmgw.agent.survey import Survey
from llmgw.agent.telling import Installing, Telling
from llmgw.config.address import Address
from llmgw.config.tls import TlsFiles
from llmgw.core.errors import LlmgwError
from llmgw.core.identity import Identity
from llmgw.core.link import (
    Accepted,
    AgentMessage,
    ControlMessage,
    Desired,
    Heartbeat,
    Leaving,
    Refused,
    Registration,
    TryAddress,
)
from llmgw.core.names import NodeName
from llmgw.host import clock
from llmgw.wire.agent import v1
from llmgw.wire.channel import Channel, ClientLink
from llmgw.wire.convert import from_wire, to_wire

_log = logging.getLogger(__name__)

PATH = "/agent.v1.AgentLink/Link"
_ANSWER_TIME = 15.0
"""Seconds that a control plane may take to answer a registration."""
_UNACKNOWLEDGED = 5.0
"""Seconds that what we sent may wait for a sign of the other machine, three heartbeats at least."""
_LEAVE_TIME = 0.7
_AFTER_REFUSAL = 5.0
"""Seconds before a refused agent asks again: what is wrong is mended by people."""

_TROUBLE = (LlmgwError, OSError)
"""What ends a session; an OSError is of the machine, as when it has no descriptor left."""

_Wire = ClientLink[v1.AgentMessage, v1.ControlMessage]


class How(Enum):
    """How a session ended."""

    ASKED = "asked"
    """We wanted to leave."""
    REFUSED = "refused"
    """The control plane did not take us, or takes us no more."""
    LOST = "lost"
    """Anything else."""


@dataclass(frozen=True, slots=True)
class SessionEnd:
    """A session that is over."""

    how: How
    cause: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Who:
    """Who the agent says that it is."""

    node: NodeName
    machine: str
    boot: str
    identity: Identity
    """Of the certificate."""
    address: str | None
    """As agent.yaml states it."""


class Link:
    """The agent's side of the link. `stop` is set when the agent should leave."""

    def __init__(
        self,
        own: Who,
        control: Sequence[Address],
        files: TlsFiles,
        node: Node,
        survey: Survey,
        installing: Installing,
        listener: Listener,
        news: News,
        stop: asyncio.Event,
        files_port: Callable[[], int | None] = lambda: None,
    ) -> None:
        """`files_port`: where this agent gives files to others now."""
        self._own, self._control, self._files = own, control, files
        self._node, self._survey, self._listener, self._news, self._stop = node, survey, listener, news, stop
        self._installing, self._files_port = installing, files_port
        self._backoff = Backoff()
        self._told = dict[Address, str]()

    async def run(self) -> None:
        """Stay in touch until `stop` is set; returns when the last session has ended."""
        turn = 0
        while not self._stop.is_set():
            address = self._control[turn % len(self._control)]
            ended = await self._session(address)
            self._log_end(address, ended)
            if ended.how is How.ASKED:
                return
            turn += 1
            least = _AFTER_REFUSAL if ended.how is How.REFUSED else 0.0
            await _either(self._stop.wait(), self._backoff.next(least))

    def _log_end(self, address: Address, ended: SessionEnd) -> None:
        """Each cause once for each address: an agent that finds nobody for a night writes one line, not a thousand."""
        subject = f"control plane {address}"
        cause = ended.cause.removeprefix(f"{subject}: ")
        if ended.how is How.ASKED:
            _log.info("%s: left, %s", subject, cause)
        elif self._told.get(address) != cause:
            _log.log(logging.ERROR if ended.how is How.REFUSED else logging.WARNING, "%s: %s", subject, cause)
        self._told[address] = cause

    # --- a session ----------------------------------------------------------------------------------------------

    async def _session(self, address: Address) -> SessionEnd:
        """Dial, and stay until something ends it; never raises for what the other end does."""
        async with asyncio.TaskGroup() as group:
            talk = group.create_task(self._talk(address), name=f"session with {address}")
            stop = group.create_task(self._stop.wait(), name="asked to stop")
            await asyncio.wait([talk, stop], return_when=asyncio.FIRST_COMPLETED)
            if not talk.done():
                # It leaves by itself; while it dials or waits for an answer there is nothing to say goodbye to.
                await asyncio.wait([talk], timeout=_LEAVE_TIME)
            talk.cancel()
            stop.cancel()
        return SessionEnd(How.ASKED, "while connecting") if talk.cancelled() else talk.result()

    async def _talk(self, address: Address) -> SessionEnd:
        try:
            async with (
                Channel(address.host, address.port, self._files) as channel,
                channel.link(PATH, v1.AgentMessage, v1.ControlMessage) as link,
            ):
                return await self._registered(channel, link, address)
        except _TROUBLE as error:
            return SessionEnd(How.LOST, str(error))

    async def _registered(self, channel: Channel, link: _Wire, address: Address) -> SessionEnd:
        seen = self._news.count
        registration = await self._registration()
        await _send(link, registration)
        try:
            async with asyncio.timeout(_ANSWER_TIME):
                answer = await _next(link)
        except TimeoutError:
            return SessionEnd(How.LOST, f"no answer to the registration within {_ANSWER_TIME:.0f}s")
        match answer:
            case Accepted():
                pass
            case Refused():
                return self._refused(answer)
            case None:
                return SessionEnd(How.LOST, "it ended the stream without an answer to the registration")
            case _:
                return SessionEnd(How.LOST, f"it answered the registration with {type(answer).__name__}")
        self._told.clear()
        _log.info("control plane %s: registered, epoch %d", address, answer.epoch)
        heartbeat = min(max(answer.heartbeat, 0.05), 60.0)
        channel.give_up_after(max(_UNACKNOWLEDGED, 3 * heartbeat))
        begun = clock.now()
        try:
            return await self._stay(link, self._speak(link, heartbeat, registration, seen))
        finally:
            self._backoff.was_registered(clock.now() - begun)

    async def _stay(self, link: _Wire, speaking: Awaitable[SessionEnd]) -> SessionEnd:
        async with asyncio.TaskGroup() as group:
            hear = group.create_task(_typed(self._hear(link)), name="hear")
            speak = group.create_task(_typed(speaking), name="speak")
            stop = group.create_task(self._stop.wait(), name="asked to stop")
            await asyncio.wait([hear, speak, stop], return_when=asyncio.FIRST_COMPLETED)
            for task in (hear, speak, stop):
                task.cancel()
        for task in (hear, speak):
            if not task.cancelled():
                return task.result()
        await self._leave(link)
        return SessionEnd(How.ASKED, "as asked")

    async def _leave(self, link: _Wire) -> None:
        try:
            await _send(link, Leaving(reason="the agent was asked to stop"), timeout=_LEAVE_TIME / 2)
            await link.close(_LEAVE_TIME / 2)
        except LlmgwError as error:
            _log.info("the goodbye did not arrive: %s", error)

    async def _registration(self) -> Registration:
        own, epoch = self._own, self._node.epoch
        inventory = self._survey.inventory
        assert inventory is not None  # the first look ends before the first session begins
        return Registration(
            node=own.node,
            machine=own.machine,
            boot=own.boot,
            agent_version=__version__,
            address=await own_address(own.address, self._control) or "",
            inventory=inventory,
            engines=self._survey.engines,
            installs=self._installing.installs(),
            files_port=self._files_port(),
            shards=self._node.reports(),
            cluster=own.identity.cluster if epoch else "",
            epoch=epoch,
        )

    def _refused(self, refusal: Refused) -> SessionEnd:
        claim = f"our certificate is for {self._own.identity}, we say that we are node {self._own.node}"
        return SessionEnd(How.REFUSED, f"refused ({refusal.code}): {refusal.text}; {claim}")

    async def _hear(self, link: _Wire) -> SessionEnd:
        while True:
            match await _next(link):
                case Desired() as desired:
                    self._node.receive(desired)
                case TryAddress() as question:
                    self._listener.ask(question)
                case Refused() as refusal:
                    return self._refused(refusal)
                case Accepted():
                    return SessionEnd(How.LOST, "it accepted the registration a second time")
                case None:
                    return SessionEnd(How.LOST, "it ended the stream without a reason")

    async def _speak(self, link: _Wire, heartbeat: float, told: Registration, seen: int) -> SessionEnd:
        """Beat at the interval that was asked for, and tell at once what is new since `told`, at which `seen` was."""
        loop = asyncio.get_running_loop()
        beat = loop.time() + heartbeat
        telling = Telling(told, self._node, self._survey, self._installing, self._listener.answer, loop.time())
        while True:
            due = min(beat, telling.due() or beat)
            await _either(self._news.after(seen), due - loop.time())
            seen = self._news.count
            for message in telling.new(loop.time()):
                await _send(link, message)
            if loop.time() >= beat:
                await _send(link, Heartbeat(at=clock.now(), usage=self._survey.usage()))
                beat = max(beat + heartbeat, loop.time())


async def _send(link: _Wire, message: AgentMessage, timeout: float = 10.0) -> None:
    await link.send(to_wire(message, v1.AgentMessage), timeout=timeout)


async def _next(link: _Wire) -> ControlMessage | None:
    """The next message, None when the control plane ended the stream in order."""
    async for message in link:
        said: ControlMessage = from_wire(message, ControlMessage)
        return said
    return None


async def _typed(talk: Awaitable[SessionEnd]) -> SessionEnd:
    try:
        return await talk
    except _TROUBLE as error:
        return SessionEnd(How.LOST, str(error))


async def _either(event: Awaitable[object], seconds: float) -> None:
    """Wait for an event, `seconds` at most."""
    try:
        async with asyncio.timeout(max(0.0, seconds)):
            await event
    except TimeoutError:
        return
