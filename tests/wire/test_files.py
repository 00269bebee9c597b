"""Files by their digest over real connections: who may read them, what is given, and what never is."""

import asyncio
import hashlib
import os
import random
from contextlib import aclosing

import pytest

from llmgw.config.address import Address
from llmgw.core.errors import ClusterCannot, ControlUnreachable, NotAllowed, PeerNotTrusted, Rejected
from llmgw.core.identity import Role
from llmgw.wire import onlooker
from llmgw.wire.channel import Channel
from llmgw.wire.files import CHUNK, ROLES, FilesService, NotHeld, read_file
from llmgw.wire.operator import v1 as operator
from llmgw.wire.server import RpcServer
from llmgw.wire.tls import server_context

from .certificates import CLIENT, LOCAL, SERVER, files, issuing, leaf, root, uri
from .conftest import OPERATOR, within

CONTENT = random.Random(6).randbytes(2 * CHUNK + 12_345)
DIGEST = "sha256:" + hashlib.sha256(CONTENT).hexdigest()


@pytest.fixture
def place(tmp_path):
    (tmp_path / "held").write_bytes(CONTENT)
    return tmp_path


@pytest.fixture
async def serving(make_files, place):
    """Serve what lies in `place`, with the certificate of node n1."""
    running = []

    async def start(given=None, name="held", **limits):
        server = RpcServer([FilesService(lambda _: place / name, **limits)], roles=ROLES, cluster="demo")
        running.append(server)
        return await server.listen_tls("127.0.0.1", 0, server_context(given or make_files("n1", Role.AGENT)))

    yield start
    for server in running:
        await server.close()


@pytest.fixture
def dialled(make_files):
    def dial(port, role=Role.AGENT, whom="n1", **more):
        return Channel("127.0.0.1", port, make_files("a1", role), role=Role.AGENT, name=whom, **more)

    return dial


@pytest.fixture
def large(place):
    """More than is under way unread."""
    os.truncate(place / "held", 32 << 20)


async def read(channel, offset=0, digest=DIGEST):
    async with within(), channel, aclosing(read_file(channel, digest, offset)) as chunks:
        return [chunk async for chunk in chunks]


@pytest.mark.parametrize("offset", [0, 1, CHUNK, len(CONTENT) - 1, len(CONTENT)])
async def test_a_file_comes_from_any_offset_on_and_the_first_chunk_says_its_size(serving, dialled, offset):
    chunks = await read(dialled(await serving()), offset)
    assert b"".join(chunk.data for chunk in chunks) == CONTENT[offset:]
    assert [chunk.size for chunk in chunks] == [len(CONTENT)] + [0] * (len(chunks) - 1)
    assert all(len(chunk.data) <= CHUNK for chunk in chunks)


@pytest.mark.parametrize(
    ("digest", "offset", "words"),
    [
        (DIGEST, len(CONTENT) + 1, f"has {len(CONTENT)} bytes; there is nothing from {len(CONTENT) + 1} on"),
        ("sha256:../../../../../etc/passwd", 0, "is not a digest"),
        (DIGEST + "\n", 0, "is not a digest"),
        (DIGEST.upper(), 0, "is not a digest"),
        ("", 0, "is not a digest"),
    ],
)
async def test_what_cannot_be_asked_for_is_refused(serving, dialled, digest, offset, words):
    with pytest.raises(Rejected, match=words):
        await read(dialled(await serving()), offset, digest)


def make_link(path):
    (path.parent / "secret").write_bytes(b"secret")
    path.symlink_to(path.parent / "secret")


@pytest.mark.parametrize("make", [lambda _: None, os.mkfifo, os.mkdir, make_link], ids=["no", "pipe", "dir", "link"])
async def test_what_is_no_file_is_not_held(serving, dialled, place, make):
    make(place / "it")
    with pytest.raises(NotHeld, match=f"file {DIGEST} is not held here"):
        await read(dialled(await serving(name="it")))


@pytest.mark.parametrize("role", [Role.ROUTER, Role.OPERATOR, Role.VIEWER])
async def test_only_agents_may_read(serving, dialled, role):
    with pytest.raises(NotAllowed, match="may not call ReadFile; it takes the role agent"):
        await read(dialled(await serving(), role))


async def test_an_agent_of_another_cluster_reads_nothing(serving, make_files):
    port, stranger = await serving(), make_files("a1", Role.AGENT, cluster="other")
    with pytest.raises(PeerNotTrusted):
        await read(Channel("127.0.0.1", port, stranger, role=Role.AGENT, name="n1"))


async def test_more_at_once_are_refused_and_a_place_is_free_again_when_one_leaves(serving, dialled, large, place):
    port = await serving(most=1)
    async with within(), dialled(port) as channel:
        async with aclosing(read_file(channel, DIGEST)) as first:
            await anext(first)
            with pytest.raises(ClusterCannot, match="1 files are read here at once, and no more are"):
                await read(dialled(port))
        os.truncate(place / "held", 10)
        while True:  # nobody tells when the server has heard that the first one left
            try:
                return await read(dialled(port))
            except ClusterCannot:
                await asyncio.sleep(0)


async def test_more_at_once_of_one_certificate_are_refused(serving, dialled, large):
    port = await serving(most=5, most_of_one=1)
    async with within(), dialled(port) as channel, aclosing(read_file(channel, DIGEST)) as first:
        await anext(first)
        with pytest.raises(ClusterCannot, match="1 files are read here at once by llmgw://demo/agent/a1"):
            await read(dialled(port))


async def test_a_file_that_becomes_shorter_is_not_padded(serving, dialled, place, large):
    async with within(), dialled(await serving()) as channel, aclosing(read_file(channel, DIGEST)) as chunks:
        await anext(chunks)
        os.truncate(place / "held", 10)
        with pytest.raises(ClusterCannot, match=f"ends at .* of {32 << 20} bytes"):
            async for _ in chunks:
                pass


# --- who serves --------------------------------------------------------------------------------------------------


async def test_a_node_is_believed_by_its_name_not_by_its_address(serving, dialled):
    with pytest.raises(PeerNotTrusted, match="its certificate is for other addresses: n1"):
        await read(dialled(await serving(), whom="n2"))


async def test_a_name_that_is_only_an_address_of_the_certificate_is_not_enough(serving, dialled):
    with pytest.raises(
        PeerNotTrusted, match=r"agent 127\.0\.0\.1:.*: its certificate is of agent n1, not of localhost"
    ):
        await read(dialled(await serving(), whom="localhost"))


async def test_a_control_plane_is_not_taken_for_a_node(serving, dialled, make_files):
    port = await serving(make_files("n1", Role.CONTROL))
    with pytest.raises(PeerNotTrusted, match="its certificate is of control n1, not of the role agent"):
        await read(dialled(port))


async def test_a_certificate_that_only_dials_serves_nobody(serving, dialled, tmp_path, make_files):
    """Those of agents were so once."""
    authority = root()
    below = issuing(authority)
    names = [uri("llmgw://demo/agent/n1"), *LOCAL]
    port = await serving(files(tmp_path / "old", leaf(below, names, [CLIENT]), authority, below))
    dials = files(tmp_path / "a1", leaf(below, [uri("llmgw://demo/agent/a1")], [CLIENT, SERVER]), authority, below)
    with pytest.raises(PeerNotTrusted, match=r"not trusted: unsuitable|purpose"):
        await read(Channel("127.0.0.1", port, dials, role=Role.AGENT, name="localhost"))


@pytest.mark.parametrize("role", [Role.AGENT, Role.ROUTER, Role.OPERATOR, Role.VIEWER])
async def test_an_agent_is_not_taken_for_a_control_plane(serve, make_files, role):
    """Its certificate may serve, and is for the address that is dialled."""
    served = await serve(files=make_files("n1", Role.AGENT))
    async with within(), Channel("127.0.0.1", served.port, make_files("x", role)) as channel:
        with pytest.raises(PeerNotTrusted, match="its certificate is of agent n1, not of the role control"):
            await channel.call(OPERATOR + "About", operator.AboutRequest(), operator.AboutView)
    shown = make_files("x", role).authority
    with pytest.raises(PeerNotTrusted, match="its certificate is of agent n1, not of the role control"):
        await onlooker.look(Address("127.0.0.1", served.port), shown, seconds=5)


async def test_a_server_that_stops_is_said(serving, dialled, make_files, place, large):
    server = RpcServer([FilesService(lambda _: place / "held")], roles=ROLES, cluster="demo")
    port = await server.listen_tls("127.0.0.1", 0, server_context(make_files("n1", Role.AGENT)))
    async with within(), dialled(port) as channel, aclosing(read_file(channel, DIGEST)) as chunks:
        await anext(chunks)
        await server.close()
        with pytest.raises(ControlUnreachable):
            async for _ in chunks:
                pass
