"""Each way that a link can fail to begin: none hangs, all are told apart."""

import asyncio
import socket
import ssl

import pytest

from llmgw.core.errors import (
    ControlUnreachable,
    NotAllowed,
)
from llmgw.core.identity import Role
from llmgw.wire.channel import Channel
from llmgw.wire.operator import v1 as operator
from llmgw.wire.tls import server_context

from .conftest import within
from .links import TYPES, fails, peer

pytestmark = pytest.mark.usefixtures("nothing_is_left")


async def test_nobody_listens(dial):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        await fails(dial(taken.getsockname()[1]), ControlUnreachable, "connection refused; is llmgwd running there")


async def test_the_host_is_not_known(make_files):
    channel = Channel("no-such-host.invalid", 7443, make_files("a1", Role.AGENT))
    await fails(channel, ControlUnreachable, "the host name is not known")


async def test_no_local_control_plane_runs(tmp_path):
    await fails(Channel.unix(tmp_path / "none.sock"), ControlUnreachable, "no such file .*; is llmgwd running")


async def test_the_peer_takes_the_connection_and_says_nothing(dial):
    async def silent(reader, writer):
        await asyncio.Event().wait()

    async with peer(silent) as port:
        await fails(dial(port, dial_time=0.2), ControlUnreachable, "no answer within 0.2 s")


async def test_the_peer_speaks_tls_and_then_says_nothing(dial, make_files):
    async def silent(reader, writer):
        await asyncio.Event().wait()

    async with peer(silent, server_context(make_files("control", Role.CONTROL))) as port:
        await fails(dial(port, dial_time=0.3), ControlUnreachable, "it took the connection and said nothing for 0.3 s")


async def test_the_peer_is_plaintext(dial):
    async def http(reader, writer):
        await reader.read(100)
        writer.write(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")
        await writer.drain()
        await reader.read()

    async with peer(http) as port:
        await fails(dial(port), ControlUnreachable, "it does not speak TLS; is it the port of llmgwd")


async def test_the_peer_closes_during_the_handshake(dial):
    async def close(reader, writer):
        await reader.read(100)

    async with peer(close) as port:
        await fails(dial(port), ControlUnreachable, "closed the connection during the TLS handshake")


async def test_the_peer_speaks_an_older_tls(dial, make_files):
    old = server_context(make_files("control", Role.CONTROL))
    old.minimum_version, old.maximum_version = ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_2
    async with peer(lambda reader, writer: reader.read(), old) as port:
        await fails(dial(port), ControlUnreachable, "it does not speak TLS 1.3")


async def test_the_peer_does_not_speak_http2(dial, make_files):
    web = server_context(make_files("control", Role.CONTROL))
    web.set_alpn_protocols(["http/1.1"])
    async with peer(lambda reader, writer: reader.read(), web) as port:
        with pytest.raises(Exception, match="does not speak HTTP/2"):
            async with within(), dial(port) as channel, channel.link(*TYPES):
                pass


async def test_the_peer_agrees_on_http2_and_speaks_something_else(dial, make_files):
    async def babble(reader, writer):
        writer.write(b"220 mail.example ready\r\n" * 3)
        await reader.read()

    async with peer(babble, server_context(make_files("control", Role.CONTROL))) as port:
        await fails(dial(port), ControlUnreachable, "it does not speak HTTP/2; is it the port of llmgwd")


async def test_a_role_that_may_not_is_refused(serve, dial):
    served = await serve(roles=frozenset({Role.OPERATOR}))
    await fails(dial(served.port), NotAllowed, "agent a1 may not call Link; it takes the role operator")


async def test_a_call_that_the_server_does_not_know(serve, dial):
    served = await serve()
    async with within(), dial(served.port) as channel:
        with pytest.raises(Exception, match="does not know this call; it is of another version"):
            await channel.call("/operator.v1.Operator/Future", operator.AboutRequest(), operator.AboutView)
