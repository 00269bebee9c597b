import asyncio
from pathlib import Path

import pytest
import uvloop

from llmgw.core.errors import ControlUnreachable, PeerNotTrusted, UnknownModel
from llmgw.core.identity import Role
from llmgw.wire.agent import v1 as agent
from llmgw.wire.channel import Channel
from llmgw.wire.operator import v1 as operator
from llmgw.wire.server import Limits, RpcServer, bidi
from llmgw.wire.tls import server_context

from .certificates import files, leaf, root, uri
from .conftest import ALL, LINK, OPERATOR, Log, Service, echo, within
from .raw import Raw

LINKED = (LINK, agent.AgentMessage, agent.ControlMessage)


def test_the_wire_is_the_same_on_uvloop(make_files, tmp_path: Path, log: Log):
    """Its transports and its TLS are other code than asyncio's."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_journey(make_files, tmp_path, log))


async def _journey(make_files, tmp_path: Path, log: Log) -> None:
    services = [Service(), bidi(LINK, agent.AgentMessage, agent.ControlMessage, echo)]
    paths = [path for one in services for path in one.__mapping__()]
    server = RpcServer(services, roles=dict.fromkeys(paths, ALL), cluster="demo", limits=Limits(preface_time=0.2))
    port = await server.listen_tls("127.0.0.1", 0, server_context(make_files("control", Role.CONTROL)))
    await server.listen_unix(tmp_path / "s.sock")
    async with within(20):
        await _plaintext(port)
        assert "it does not speak TLS" in await log.next()
        await _ask(Channel("127.0.0.1", port, make_files("op", Role.OPERATOR)), "operator op")
        await _ask(Channel.unix(tmp_path / "s.sock"), "operator ")
        stranger = files(tmp_path / "x", leaf(root(), [uri("llmgw://demo/operator/x")]), root())
        stranger = type(stranger)(stranger.certificate, stranger.key, make_files("op", Role.OPERATOR).authority)
        with pytest.raises(PeerNotTrusted, match="refused our certificate: of an authority that it does not know"):
            await _ask(Channel("127.0.0.1", port, stranger), "")
        assert "of another authority ('root')" in log.lines[-1]
        log.lines.clear()
        await _untrusting(port, tmp_path, log)
        async with Raw(port, make_files("op", Role.OPERATOR)) as silent:
            assert "no HTTP/2 preface" in await silent.farewell()
        async with Channel("127.0.0.1", port, make_files("a1", Role.AGENT)) as channel, channel.link(*LINKED) as link:
            await link.send(agent.AgentMessage(leaving=agent.Leaving(reason="one")))
            assert (await anext(link)).refused.text == "one"
            begun = asyncio.get_running_loop().time()
            async with asyncio.TaskGroup() as group:
                group.create_task(server.close())
                with pytest.raises(ControlUnreachable, match="is stopping"):
                    await anext(link)
            assert asyncio.get_running_loop().time() - begun < 1.8


async def _plaintext(port: int) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"GET / HTTP/1.1\r\n\r\n")
    async with within(1):
        assert await reader.read() == b""
    writer.close()


async def _untrusting(port: int, tmp_path: Path, log: Log) -> None:
    other = root("other")
    given = files(tmp_path / "y", leaf(other, [uri("llmgw://demo/operator/y")]), other)
    with pytest.raises(PeerNotTrusted, match="of another authority than ours"):
        await _ask(Channel("127.0.0.1", port, given), "")
    assert (
        await log.next() == "connection closed: it refused our certificate: it is of an authority that it does not know"
    )


async def _ask(channel: Channel, who: str) -> None:
    async with channel:
        about = await channel.call(OPERATOR + "About", operator.AboutRequest(), operator.AboutView)
        assert about.version.startswith(who)
        with pytest.raises(UnknownModel):
            await channel.call(OPERATOR + "WhyModel", operator.WhyModelRequest(model="x"), operator.Why)
