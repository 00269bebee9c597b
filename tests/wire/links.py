"""A link to a server, real or of our own making."""

import asyncio
import ssl
from contextlib import asynccontextmanager, suppress

import pytest

from llmgw.wire.agent import v1 as agent

from .conftest import LINK, within

TYPES = (LINK, agent.AgentMessage, agent.ControlMessage)


def says(reason):
    return agent.AgentMessage(leaving=agent.Leaving(reason=reason))


@asynccontextmanager
async def peer(handle, tls=None):
    """A server of our own making; `handle` gets reader and writer."""

    running = set()

    async def run(reader, writer):
        running.add(asyncio.current_task())
        with suppress(ConnectionError, ssl.SSLError, asyncio.IncompleteReadError, asyncio.CancelledError):
            await handle(reader, writer)
        writer.transport.abort()

    server = await asyncio.start_server(run, "127.0.0.1", 0, ssl=tls)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        for task in running:
            task.cancel()
        await asyncio.gather(*running)


async def fails(channel, kind, words):
    async with within(), channel:
        with pytest.raises(kind, match=words) as raised:
            async with channel.link(*TYPES) as link:
                async for _ in link:
                    pass
        assert "\n" not in str(raised.value)
    return raised.value
