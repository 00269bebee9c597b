"""Closing takes less than two seconds whatever the clients do, and leaves nothing that answers."""

import asyncio
from contextlib import AsyncExitStack

import pytest
from h2.events import ResponseReceived
from h2.settings import SettingCodes

from llmgw.core.identity import Role
from llmgw.wire.agent import v1 as agent
from llmgw.wire.channel import Channel
from llmgw.wire.operator import v1 as operator
from llmgw.wire.server import Limits, RpcServer

from .conftest import LINK, OPERATOR, Service, within
from .raw import Raw, message

pytestmark = pytest.mark.usefixtures("nothing_is_left")


async def test_closing_takes_less_than_two_seconds_whatever_the_clients_do(serve, make_files):
    """One reads nothing, one is in the middle of a handshake, one has a handler that does not want to go."""
    held = asyncio.Event()

    async def clings(stream):
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0.2)
            held.set()

    served = await serve(link=clings)
    served.service.pages = 1 << 20
    gone = operator.Item(gone=operator.Gone(noun=operator.Noun.NODES, name="x" * 100))
    served.service.page = operator.Page(revision=operator.Revision(epoch=1, seq=1), items=[gone] * 500)
    channel = Channel("127.0.0.1", served.port, make_files("a1", Role.AGENT))
    loop = asyncio.get_running_loop()
    async with within(10), Raw(served.port, make_files("op", Role.OPERATOR)) as deaf, channel:
        deaf.writer.transport.pause_reading()
        await deaf.begin()
        await deaf.open("/operator.v1.Operator/Watch", message())
        _, shaking = await asyncio.open_connection("127.0.0.1", served.port)
        async with channel.link(LINK, agent.AgentMessage, agent.ControlMessage) as link:
            await link.send(agent.AgentMessage(leaving=agent.Leaving(reason="hello")))
            await channel.call(OPERATOR + "About", operator.AboutRequest(), operator.AboutView)
            begun = loop.time()
            await served.server.close()
            assert loop.time() - begun < 1.2
            assert held.is_set()
            assert not served.server._connections
        shaking.close()


async def test_a_crowd_that_does_not_read_holds_nothing_up(serve, make_files, others):
    """Watches whose windows or sockets are full, links that are not read, and handshakes that never end."""

    async def babbles(stream):
        while True:
            await stream.send(agent.ControlMessage(refused=agent.Refused(code="x", text="y" * 60_000)))

    served = await serve(Limits(local_connections=99, connections=99), link=babbles)
    served.service.pages = 1 << 20
    gone = operator.Item(gone=operator.Gone(noun=operator.Noun.NODES, name="x" * 100))
    served.service.page = bytes(operator.Page(revision=operator.Revision(epoch=1, seq=1), items=[gone] * 500))
    loop = asyncio.get_running_loop()
    async with within(20), AsyncExitStack() as stack:
        for number in range(6):
            deaf = await stack.enter_async_context(Raw(served.port, make_files("op", Role.OPERATOR)))
            if number % 2:
                deaf.h2.local_settings[SettingCodes.INITIAL_WINDOW_SIZE] = 2**31 - 1
                deaf.h2.local_settings.acknowledge()
            await deaf.begin()
            if number % 2:
                deaf.h2.increment_flow_control_window(2**31 - 1 - 65535)
            await deaf.open("/operator.v1.Operator/Watch" if number % 3 else LINK, message() if number % 3 else None)
            await deaf.until(ResponseReceived)
            deaf.writer.transport.pause_reading()
        halves = [(await asyncio.open_connection("127.0.0.1", served.port))[1] for _ in range(20)]
        assert await others(served), "whoever came later is served, so all of those have begun"
        begun = loop.time()
        await served.server.close()
        assert loop.time() - begun < 1.0
        for half in halves:
            half.close()


async def test_nothing_is_answered_on_an_old_connection_after_closing(serve, make_files):
    served = await serve()
    async with within(), Raw(served.port, make_files("op", Role.OPERATOR)) as client:
        await client.begin()
        await client.until(ResponseReceived, stream_id=await client.open(body=message()))
        closing = asyncio.ensure_future(served.server.close())
        await asyncio.sleep(0)
        count = len(client.events)
        await client.open(body=message())
        assert await client.farewell() == "the server is stopping"
        assert not any(isinstance(event, ResponseReceived) for event in client.events[count:])
        await closing


async def test_closing_twice_and_closing_what_never_listened(serve):
    served = await serve()
    await served.server.close()
    await served.server.close()
    await RpcServer([], roles={}, cluster="demo").close()


def test_a_call_that_says_nowhere_who_may_make_it_fails_at_construction():
    with pytest.raises(ValueError, match=r"/operator.v1.Operator/About says nowhere who may call it"):
        RpcServer([Service()], roles={}, cluster="demo")
