"""An agent's end of the link, spoken by a test word for word."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TypeVar

from llmgw.config.tls import TlsFiles
from llmgw.core.facts import ShardReport
from llmgw.core.inventory import Usage
from llmgw.core.link import Accepted, AgentMessage, ControlMessage, Desired, Heartbeat, Refused, Report, TryAddress
from llmgw.core.units import GIB
from llmgw.wire.agent import v1
from llmgw.wire.channel import Channel, ClientLink
from llmgw.wire.convert import from_wire, to_wire
from tests.daemon.world import registration

PATH = "/agent.v1.AgentLink/Link"
M = TypeVar("M", Accepted, Refused, Desired, TryAddress)

PATIENCE = 20.0
"""Seconds that anything may take on a busy machine."""


class Agent:
    """One open stream."""

    def __init__(self, link: ClientLink[v1.AgentMessage, v1.ControlMessage], name: str) -> None:
        self.link, self.name = link, name

    async def say(self, message: AgentMessage) -> None:
        await self.link.send(to_wire(message, v1.AgentMessage))

    async def hear(self, kind: type[M]) -> M:
        """The next message, which must be a `kind`."""
        async with asyncio.timeout(PATIENCE):
            message = from_wire(await anext(self.link), ControlMessage)
        assert isinstance(message, kind), message
        return message

    async def hear_after_others(self, kind: type[M]) -> M:
        """The next `kind`, whatever comes before it."""
        async with asyncio.timeout(PATIENCE):
            async for message in self.link:
                said = from_wire(message, ControlMessage)
                if isinstance(said, kind):
                    return said
        raise AssertionError(f"no {kind.__name__} came")

    async def register(self, **fields: object) -> Accepted:
        await self.say(registration(self.name, **fields))
        return await self.hear(Accepted)

    async def beat(self) -> None:
        await self.say(Heartbeat(at=1.0, usage=Usage(memory_available=GIB)))

    async def report(self, *shards: ShardReport) -> None:
        await self.say(Report(shards=shards))

    async def ends(self) -> None:
        """Wait for the end of the stream; raises what it ended with."""
        async with asyncio.timeout(PATIENCE):
            async for _ in self.link:
                pass


@asynccontextmanager
async def agent(port: int, files: TlsFiles, name: str) -> AsyncIterator[Agent]:
    """Dial, and leave without a word at the end."""
    channel = Channel("127.0.0.1", port, files)
    async with channel, channel.link(PATH, v1.AgentMessage, v1.ControlMessage) as link:
        yield Agent(link, name)
