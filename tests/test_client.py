"""The client against a real server, over TLS and over the local socket."""

import asyncio
import socket
from dataclasses import dataclass
from pathlib import Path

import pytest

from llmgw.client import ControlClient
from llmgw.config.address import Address
from llmgw.config.client import ClientConfig
from llmgw.config.tls import TlsFiles
from llmgw.core import events, refusals, routes, views
from llmgw.core.errors import BadConfig, ControlUnreachable, NotAllowed, UnknownModel
from llmgw.core.facts import Secret
from llmgw.core.identity import Role
from llmgw.pki import authority
from llmgw.wire.convert import enum_from_wire, to_wire
from llmgw.wire.operator import v1
from llmgw.wire.server import RpcServer, current_peer
from llmgw.wire.tls import server_context

REVISION = views.Revision(epoch=3, seq=7)
EVENT = events.Event(seq=7, at=1.0, kind=events.EventKind.MODEL_SCALED, subject="gemma", text="2 replicas wanted")
WHY = views.Why(
    model="gemma",
    state=views.ModelState.DEGRADED,
    wanted=2,
    placed=1,
    memory=600 << 20,
    engine="llama.cpp",
    refusals=(refusals.NotEnoughMemory(node="n1", need=600, free=100, total=1000),),
    fits=("n2",),
    revision=REVISION,
    now=2.0,
)
ROUTES = routes.Routes(
    revision=REVISION,
    routes=(
        routes.Route(
            model="gemma",
            state=views.ModelState.READY,
            replicas=(
                routes.RouteReplica(
                    id="gemma/0", launch=1, node="n1", machine="m", host="127.0.0.1", port=21000, key=Secret("k")
                ),
            ),
        ),
    ),
)


class Operators(v1.OperatorBase):
    async def about(self, message):
        about = views.AboutView(
            cluster="demo", version="1", revision=REVISION, now=2.0, started=1.0, settled=True, exposure="loopback"
        )
        return to_wire(about, v1.AboutView)

    async def why_model(self, message):
        if message.model != "gemma":
            raise UnknownModel(message.model, ["gemma"])
        return to_wire(WHY, v1.Why)

    async def scale_model(self, message):
        if current_peer().identity.role is Role.VIEWER:
            raise NotAllowed(str(current_peer().identity), "scale", "the role operator")
        return to_wire(views.Done(revision=REVISION, event=EVENT), v1.Done)

    async def watch(self, message):
        for noun in message.nouns:
            gone = views.Gone(noun=enum_from_wire(noun, views.Noun), name=f"{message.follow} {message.events}")
            yield to_wire(views.Page(revision=REVISION, now=2.0, items=(gone, EVENT)), v1.Page)

    async def watch_routes(self, message):
        yield to_wire(ROUTES, v1.Routes)


@dataclass
class World:
    server: RpcServer
    port: int
    socket: Path
    files: TlsFiles

    def where(self, *ports):
        return ClientConfig(server=[Address("127.0.0.1", port) for port in ports or [self.port]], tls=self.files)


@pytest.fixture(scope="module")
def pki(tmp_path_factory):
    home = tmp_path_factory.mktemp("pki")
    authority.init(home / "authority", "demo")

    def issue(name, role):
        issued = authority.issue(home / "authority", name, role, ["127.0.0.1"], home / name)
        return TlsFiles(issued.certificate, issued.key, issued.authority)

    return {"control": issue("control", Role.CONTROL), "op": issue("op", Role.OPERATOR)}


@pytest.fixture
async def world(pki, tmp_path):
    service = Operators()
    roles = dict.fromkeys(service.__mapping__(), frozenset(Role))
    server = RpcServer([service], roles=roles, cluster="demo")
    port = await server.listen_tls("127.0.0.1", 0, server_context(pki["control"]))
    await server.listen_unix(tmp_path / "s.sock")
    yield World(server, port, tmp_path / "s.sock", pki["op"])
    await server.close(0.2)


async def test_each_method_brings_the_values_of_core(world):
    async with asyncio.timeout(5), ControlClient.open(world.where()) as client:
        assert (await client.about()).revision == REVISION
        assert await client.why_model("gemma") == WHY
        assert (await client.scale_model("gemma", 2)).event == EVENT
        assert [routes async for routes in client.watch_routes()] == [ROUTES]
        pages = [page async for page in client.watch([views.Noun.NODES, views.Noun.EVENTS], follow=True, events=9)]
        assert [page.items[0].noun for page in pages] == [views.Noun.NODES, views.Noun.EVENTS]
        assert pages[0].items == (views.Gone(noun=views.Noun.NODES, name="True 9"), EVENT)


async def test_an_unknown_model_is_the_callers_fault(world):
    async with asyncio.timeout(5), ControlClient.open(world.where()) as client:
        with pytest.raises(UnknownModel, match="'nope' is unknown; known: gemma"):
            await client.why_model("nope")


@pytest.mark.parametrize("replicas", [-1, 1 << 32, 1 << 70])
async def test_a_number_that_the_wire_cannot_hold_is_refused_here(world, replicas):
    """The codec would send another number."""
    async with asyncio.timeout(5), ControlClient.open(world.where()) as client:
        with pytest.raises(Exception, match="must be a number from 0 to"):
            await client.scale_model("gemma", replicas)


async def test_a_name_that_the_wire_cannot_hold_is_refused_here(world):
    async with asyncio.timeout(5), ControlClient.open(world.where()) as client:
        with pytest.raises(Exception, match="must be text that UTF-8 can hold"):
            await client.why_model("half \ud800")


async def test_the_local_socket(world):
    async with asyncio.timeout(5), ControlClient.open(ClientConfig(socket=world.socket)) as client:
        assert client.address == str(world.socket)
        assert (await client.about()).cluster == "demo"


async def test_the_first_control_plane_that_answers_is_used_and_kept(world):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        dead = taken.getsockname()[1]
        async with asyncio.timeout(5), ControlClient.open(world.where(dead, world.port)) as client:
            assert [page async for page in client.watch([views.Noun.NODES], follow=False)]
            assert client.address == f"127.0.0.1:{world.port}"
            assert (await client.about()).cluster == "demo"


async def test_none_of_several_answers(world):
    await world.server.close(0.2)
    async with asyncio.timeout(5), ControlClient.open(world.where(world.port, world.port)) as client:
        with pytest.raises(ControlUnreachable, match="connection refused"):
            await client.about()


@pytest.mark.parametrize("where", [ClientConfig(), ClientConfig(server=[Address("a", 1)])])
def test_a_client_that_was_told_of_nobody(where):
    with pytest.raises(BadConfig, match="must name a `server` with `tls`, or a `socket`"):
        ControlClient.open(where)
