"""A node that gives what it holds to another, over real connections."""

import asyncio
import errno
import hashlib
import random
import socket
from contextlib import asynccontextmanager, suppress

import pytest

from llmgw.agent.leases import Leases
from llmgw.agent.serve_files import FileServer
from llmgw.agent.transfer.download import CannotDownload, Patience, download
from llmgw.agent.transfer.http import UrlSource
from llmgw.agent.transfer.rpc import ControlSource, HolderSource
from llmgw.agent.transfer.sources import sources
from llmgw.config.address import Address
from llmgw.config.agent import AgentConfig, Ports
from llmgw.config.tls import TlsFiles
from llmgw.core.engines.orders import EngineOrder, Holder, Release, ReleaseFile
from llmgw.core.engines.terms import EngineKind
from llmgw.core.identity import Role
from llmgw.core.names import NodeName
from llmgw.core.units import Bytes
from llmgw.wire.channel import Channel
from llmgw.wire.files import ROLES, FilesService
from llmgw.wire.server import RpcServer
from llmgw.wire.tls import server_context
from tests.wire.certificates import CLIENT, LOCAL, files, issuing, leaf, root, uri

from .upstream import Upstream, whole

CONTENT = random.Random(7).randbytes(3_000_000)
HEX = hashlib.sha256(CONTENT).hexdigest()
FILE = ReleaseFile(name="it.tar.gz", size=Bytes(len(CONTENT)), digest=f"sha256:{HEX}")
QUICK = Patience(connect=2.0, idle=5.0, pause=0.001)


def free(port):
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == errno.ECONNREFUSED


@pytest.fixture
def ports():
    first = next(port for port in range(26000, 28000, 4) if all(map(free, range(port, port + 4))))
    return Ports(first, first + 3)


@pytest.fixture
def directory(tmp_path):
    made = tmp_path / "holder"
    made.mkdir()
    (made / HEX).write_bytes(CONTENT)
    return made


@pytest.fixture
def node(tls, ports, directory):
    """Node n1, which serves its directory while the context lasts."""

    @asynccontextmanager
    async def serve(given=None, ports=ports):
        given = given or tls("n1")
        config = AgentConfig.model_construct(
            control=[Address("127.0.0.1", 9)], tls=given, node="n1", engine_ports=ports, address="127.0.0.1"
        )
        server = FileServer(Leases(config), given, "demo", directory, lambda: ())
        task = asyncio.create_task(server.run())
        async with asyncio.timeout(5):
            await server.settled.wait()
        try:
            yield server
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task

    return serve


@pytest.fixture
def get(tmp_path, tls):
    async def get(*sources):
        async with asyncio.timeout(10):
            target = tmp_path / "asker" / HEX
            nothing = {"tell": lambda _: None, "verifying": lambda: None}
            await download(FILE, sources, target, patience=QUICK, **nothing)
            assert target.read_bytes() == CONTENT

    return get


def holder(port, tls, name="n1"):
    return HolderSource(Holder(node=NodeName(name), host="127.0.0.1", port=port), tls("asker"))


async def test_a_node_gets_a_file_from_another(node, get, tls, ports):
    async with node() as server:
        assert server.port in ports
        await get(holder(server.port, tls))
    assert server.port is None


async def test_it_goes_on_where_another_source_ended(node, get, tls, tmp_path):
    part = tmp_path / "asker" / f"{HEX}.part"
    part.parent.mkdir()
    part.write_bytes(CONTENT[:2_000_000])
    async with node() as server:
        await get(holder(server.port, tls))


async def test_what_is_not_whole_is_not_served(node, get, tls, directory):
    (directory / HEX).rename(directory / f"{HEX}.part")
    async with node() as server:
        with pytest.raises(CannotDownload, match=f"it.tar.gz: node n1: file sha256:{HEX} is not held here$"):
            await get(holder(server.port, tls))


async def test_what_is_not_right_is_found_out_and_comes_from_elsewhere(node, get, tls, directory):
    (directory / HEX).write_bytes(bytes(len(CONTENT)))
    async with node() as server, Upstream(CONTENT, whole) as up:
        await get(holder(server.port, tls), UrlSource(up.url()))


async def test_another_size_is_found_out_at_once(node, get, tls, directory):
    (directory / HEX).write_bytes(CONTENT + b"x")
    async with node() as server:
        with pytest.raises(CannotDownload, match=r"node n1: the file has 3000001 bytes there, not 3000000$"):
            await get(holder(server.port, tls))


async def test_a_node_that_is_not_there_is_said_as_a_node(get, tls):
    with pytest.raises(CannotDownload, match=r"^it\.tar\.gz: node n1: connection refused$"):
        await get(holder(9, tls))


async def test_another_node_at_its_address_is_not_believed(node, get, tls):
    async with node(tls("n2")) as server:
        with pytest.raises(CannotDownload, match="node n1: its certificate is for other addresses: n2"):
            await get(holder(server.port, tls))


async def test_a_name_that_no_certificate_can_be_checked_for_is_said(node, get, tls):
    async with node() as server:
        with pytest.raises(CannotDownload, match=r"node n\.\.1: no certificate can be checked for the name 'n\.\.1'$"):
            await get(holder(server.port, tls, "n..1"))


async def test_a_node_whose_certificate_only_dials_serves_nothing_and_says_so(node, tmp_path, caplog):
    top = root()
    below = issuing(top)
    old = files(tmp_path / "old", leaf(below, [uri("llmgw://demo/agent/n1"), *LOCAL], [CLIENT]), top, below)
    async with node(old) as server:
        assert server.port is None
    assert "this node gives no files to others: certificate" in caplog.text
    assert "issue a new one with `llmgw pki issue`" in caplog.text


async def test_a_node_without_a_free_port_serves_nothing_and_says_so(node, ports, caplog):
    with socket.create_server(("127.0.0.1", ports.first)):
        async with node(ports=Ports(ports.first, ports.first)) as server:
            assert server.port is None
    assert f"no port of engine_ports {ports.first}-{ports.first} is free" in caplog.text


async def test_the_control_plane_serves_too(get, tls, directory):
    server = RpcServer([FilesService(lambda _: directory / HEX)], roles=ROLES, cluster="demo")
    port = await server.listen_tls("127.0.0.1", 0, server_context(tls("control", Role.CONTROL)))
    try:
        await get(ControlSource(lambda: Channel("127.0.0.1", port, tls("asker"))))
    finally:
        await server.close()


async def test_a_certificate_of_ours_that_cannot_be_used_is_said(get, tmp_path):
    broken = TlsFiles(tmp_path / "no.crt", tmp_path / "no.key", tmp_path / "no.authority")
    with pytest.raises(CannotDownload, match=r"node n1: .*/no\.key: cannot be read: no such file"):
        await get(HolderSource(Holder(node=NodeName("n1"), host="127.0.0.1", port=9), broken))


def test_the_order_of_sources_is_near_before_far(tls):
    holders = tuple(Holder(node=NodeName(f"n{at}"), host="127.0.0.1", port=9) for at in range(9))
    order = EngineOrder(
        engine="llama.cpp", version="b1", kind=EngineKind.ARCHIVE, mirror="http://m/x", served=True, holders=holders
    )
    release = Release(engine="llama.cpp", version="b1", kind=EngineKind.ARCHIVE)
    given = ReleaseFile(name="it.tar.gz", size=Bytes(1), url="https://up/it?token=secret")
    found = [one.name for one in sources(order, release, given, dial=lambda: None, tls=tls("asker"))]
    assert found[:2] == ["mirror http://m/x/llama.cpp/b1/it.tar.gz", "control plane"]
    assert len(set(found[2:5])) == 3 and set(found[2:5]) <= {f"node n{at}" for at in range(9)}
    assert found[5:] == ["https://up/it"]
    bare = EngineOrder(engine="llama.cpp", version="b1", kind=EngineKind.ARCHIVE)
    assert sources(bare, release, FILE, dial=lambda: None, tls=tls("asker")) == ()
