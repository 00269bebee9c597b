import asyncio
from pathlib import Path

import pytest

from llmgw.core.errors import ControlFault, ControlUnreachable, NotAllowed, UnknownModel
from llmgw.core.identity import Role
from llmgw.wire.agent import v1 as agent
from llmgw.wire.channel import Channel
from llmgw.wire.operator import v1 as operator

from .conftest import LINK, OPERATOR, within

pytestmark = pytest.mark.usefixtures("nothing_is_left")


def says(reason: str) -> agent.AgentMessage:
    return agent.AgentMessage(leaving=agent.Leaving(reason=reason))


@pytest.fixture
def dial(make_files):
    def dial(served, name="op", role=Role.OPERATOR):
        return Channel("127.0.0.1", served.port, make_files(name, role))

    return dial


async def test_a_call_is_answered_and_the_handler_knows_who_asks(serve, dial):
    async with within(), dial(await serve()) as channel:
        about = await channel.call(OPERATOR + "About", operator.AboutRequest(), operator.AboutView)
    assert about.version == "operator op"


async def test_an_error_arrives_as_the_class_that_was_raised(serve, dial):
    async with within(), dial(await serve()) as channel:
        with pytest.raises(UnknownModel) as raised:
            await channel.call(OPERATOR + "WhyModel", operator.WhyModelRequest(model="nope"), operator.Why)
    assert raised.value.known == ("gemma", "qwen")
    assert str(raised.value) == "model 'nope' is unknown; known: gemma, qwen"


async def test_a_fault_of_ours_tells_the_client_nothing_but_where_to_look(serve, dial, caplog):
    async with within(), dial(await serve()) as channel:
        with pytest.raises(ControlFault) as raised:
            await channel.call(OPERATOR + "WhyModel", operator.WhyModelRequest(model="fault"), operator.Why)
    assert "secret" not in str(raised.value)
    assert "a secret detail" in caplog.text


async def test_a_role_that_may_not_call_is_told_what_it_takes(serve, dial):
    async with within(), dial(await serve(roles=frozenset({Role.AGENT}))) as channel:
        with pytest.raises(NotAllowed, match="operator op may not call About; it takes the role agent"):
            await channel.call(OPERATOR + "About", operator.AboutRequest(), operator.AboutView)


async def test_a_stream_ends_when_the_server_has_no_more(serve, dial):
    served = await serve()
    async with within(), dial(served) as channel:
        pages = [p async for p in channel.stream(OPERATOR + "Watch", operator.WatchRequest(), operator.Page)]
    assert len(pages) == 3
    assert served.service.closed.is_set()


async def test_a_reader_that_leaves_closes_the_servers_generator(serve, dial):
    served = await serve()
    async with within(), dial(served) as channel:
        pages = channel.stream(OPERATOR + "Watch", operator.WatchRequest(follow=True), operator.Page)
        await anext(pages)
        await pages.aclose()
        await served.service.closed.wait()


async def test_a_link_carries_messages_both_ways_and_closes_in_order(serve, dial):
    link_of = (LINK, agent.AgentMessage, agent.ControlMessage)
    async with within(), dial(await serve()) as channel, channel.link(*link_of) as link:
        for word in ("one", "two"):
            await link.send(says(word))
            assert (await anext(link)).refused.text == word
        await link.close()


async def test_the_local_socket_needs_no_certificate(serve, tmp_path: Path):
    path = tmp_path / "llmgwd.sock"
    await serve(unix=path)
    assert path.stat().st_mode & 0o777 == 0o600
    async with within(), Channel.unix(path) as channel:
        about = await channel.call(OPERATOR + "About", operator.AboutRequest(), operator.AboutView)
    assert about.version in ("operator root", "operator uid-1000")


async def test_closing_tells_every_client_at_once(serve, dial):
    served = await serve()
    async with within(), dial(served) as channel:
        pages = channel.stream(OPERATOR + "Watch", operator.WatchRequest(follow=True), operator.Page)
        for _ in range(3):
            await anext(pages)
        begun = asyncio.get_running_loop().time()
        closing = asyncio.ensure_future(served.server.close())
        with pytest.raises(ControlUnreachable, match="is stopping"):
            await anext(pages)
        assert asyncio.get_running_loop().time() - begun < 0.5
        await closing
        assert asyncio.get_running_loop().time() - begun < 2
        with pytest.raises(ControlUnreachable, match="connection refused"):
            await channel.call(OPERATOR + "About", operator.AboutRequest(), operator.AboutView)
