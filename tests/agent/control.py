"""A control plane of a few lines: takes registrations as it is told, keeps what agents say, sends what a test wants."""

import asyncio
from collections.abc import Callable
from contextlib import asynccontextmanager
from typing import Any

from llmgw.config.tls import TlsFiles
from llmgw.core import facts, link
from llmgw.core.engines.orders import Release
from llmgw.core.engines.terms import Install, Installs
from llmgw.core.errors import UnknownRelease
from llmgw.core.facts import Exposure, Profile, ShardOrder, Want
from llmgw.core.identity import Role
from llmgw.core.link import Accepted, Desired, Refused, Registration
from llmgw.core.names import ModelName, ShardId
from llmgw.core.shard import ShardState
from llmgw.core.units import MIB, Bytes
from llmgw.wire.agent import v1
from llmgw.wire.convert import from_wire, to_wire
from llmgw.wire.engines import v1 as engines_v1
from llmgw.wire.server import BidiStream, RpcServer, bidi
from llmgw.wire.tls import server_context

LINK, GET_RELEASE = "/agent.v1.AgentLink/Link", "/agent.v1.AgentLink/GetRelease"
PATIENCE = 20.0


class Session:
    """One stream of an agent."""

    def __init__(self, stream: BidiStream[v1.AgentMessage, v1.ControlMessage], registration: Registration) -> None:
        self.stream, self.registration = stream, registration
        self.shards = {report.shard: report for report in registration.shards}
        self.states = {name: [report.state] for name, report in self.shards.items()}
        self.beats, self.reports = 0, list[link.Report]()
        self.listenings = list[link.Listening]()
        self.installs = list[tuple[float, tuple[Install, ...]]]()
        """Each with when it came, on the loop's clock."""
        self.left: str | None = None
        self.over = False

    def hear(self, message: link.AgentMessage) -> None:
        if isinstance(message, link.Heartbeat):
            self.beats += 1
        if isinstance(message, link.Listening):
            self.listenings.append(message)
        if isinstance(message, Installs):
            self.installs.append((asyncio.get_running_loop().time(), message.installs))
        if isinstance(message, link.Leaving):
            self.left = message.reason
        if isinstance(message, link.Report):
            self.reports.append(message)
            self.shards = {report.shard: report for report in message.shards}
            for report in message.shards:
                states = self.states.setdefault(report.shard, [])
                if not states or states[-1] is not report.state:
                    states.append(report.state)

    def engine(self, engine: str, version: str) -> facts.EngineReport | None:
        """As it was reported last."""
        told = [report.engines for report in self.reports if report.engines is not None]
        engines = told[-1] if told else self.registration.engines
        found = engines.engines if engines else ()
        return next((one for one in found if (one.engine, one.version) == (engine, version)), None)

    def install(self, engine: str, version: str) -> Install | None:
        """As it was told last."""
        found = self.installs[-1][1] if self.installs else self.registration.installs
        return next((one for one in found if (one.engine, one.version) == (engine, version)), None)

    async def send(self, message: link.ControlMessage) -> None:
        await self.stream.send(to_wire(message, v1.ControlMessage))


class _Releases(v1.AgentLinkBase):
    """Answers what a release consists of."""

    def __init__(self, control: "Control") -> None:
        self._control = control

    async def get_release(self, message: v1.ReleaseRequest) -> engines_v1.Release:
        self._control.asked.append(message.id)
        if message.id not in self._control.releases:
            raise UnknownRelease(message.id)
        return to_wire(self._control.releases[message.id], engines_v1.Release)

    def __mapping__(self) -> dict[str, Any]:
        return {GET_RELEASE: super().__mapping__()[GET_RELEASE]}


class Control:
    """Sessions in the order in which they came; `answer` decides about each registration."""

    def __init__(self, files: TlsFiles, cluster: str = "demo") -> None:
        self._files, self._cluster = files, cluster
        self.sessions = list[Session]()
        self.desired: Desired | None = None
        self.releases = dict[str, Release]()
        """By their ids; others are unknown."""
        self.asked = list[str]()
        self.answer: Callable[[Registration], link.ControlMessage | None] = lambda _: Accepted(
            cluster="demo", epoch=1, heartbeat=0.2
        )
        self.after: Callable[[Session], Any] | None = None
        self.port = 0
        self._changed = asyncio.Condition()

    @asynccontextmanager
    async def listening(self, host: str = "127.0.0.1", port: int = 0):
        service = bidi(LINK, v1.AgentMessage, v1.ControlMessage, self._serve)
        roles = dict.fromkeys((LINK, GET_RELEASE), frozenset({Role.AGENT}))
        server = RpcServer([service, _Releases(self)], roles=roles, cluster=self._cluster)
        self.port = await server.listen_tls(host, port, server_context(self._files))
        try:
            yield self
        finally:
            await server.close(0.5)

    async def _serve(self, stream: BidiStream[v1.AgentMessage, v1.ControlMessage]) -> None:
        session: Session | None = None
        try:
            async for message in stream:
                said = from_wire(message, link.AgentMessage)
                if session is None:
                    session = Session(stream, said)
                    self.sessions.append(session)
                    if not await self._answered(session):
                        return
                else:
                    session.hear(said)
                await self._tell()
        finally:
            if session is not None:
                session.over = True
            await self._tell()

    async def _answered(self, session: Session) -> bool:
        answer = self.answer(session.registration)
        await self._tell()
        if answer is None:
            return False
        await session.send(answer)
        if isinstance(answer, Refused):
            return False
        if self.desired is not None:
            await session.send(self.desired)
        return True if self.after is None else bool(await self.after(session))

    async def _tell(self) -> None:
        async with self._changed:
            self._changed.notify_all()

    @property
    def session(self) -> Session:
        return self.sessions[-1]

    async def want(self, desired: Desired) -> None:
        self.desired = desired
        await self.session.send(desired)

    async def until(self, holds: Callable[[], Any], patience: float = PATIENCE) -> Any:
        """Wait until it holds, and return what it was then."""
        async with asyncio.timeout(patience), self._changed:
            return await self._changed.wait_for(holds)

    async def registered(self, count: int = 1) -> Session:
        await self.until(lambda: len(self.sessions) >= count)
        return self.sessions[count - 1]

    async def shard(self, name: str, state: ShardState, patience: float = PATIENCE) -> facts.ShardReport:
        """Wait until the newest session tells this state of the shard."""
        shard = ShardId(name)
        await self.until(
            lambda: self.sessions and (report := self.session.shards.get(shard)) and report.state is state, patience
        )
        return self.session.shards[shard]


def order(weights: object, shard: str = "tiny/0.0", want: Want = Want.RUN, **profile: Any) -> ShardOrder:
    drain = profile.pop("drain", 30.0)
    about = {"engine": "llama.cpp", "context": 128, "slots": 2, "memory": Bytes(200 * MIB), "threads": 1, **profile}
    return ShardOrder(
        shard=ShardId(shard),
        model=ModelName("tiny"),
        aliases=("Tiny:1b",),
        want=want,
        drain=drain,
        profile=Profile(weights=str(weights), **about),
    )


def desired(*shards: ShardOrder, epoch: int = 1, revision: int = 1, settled: bool = True, **more: Any) -> Desired:
    about = {"cluster": "demo", "exposure": Exposure.LOOPBACK, **more}
    return Desired(epoch=epoch, revision=revision, settled=settled, shards=shards, **about)
