"""The agent's listener, with real sockets: what who connects hears, how long, and which port it takes."""

import asyncio
import errno
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import uvloop

from llmgw.agent import listen
from llmgw.agent.launch.ports import NoPort
from llmgw.agent.leases import Leases, NoAddress
from llmgw.agent.listen import MOST, Listener, unusable
from llmgw.agent.news import News
from llmgw.config.address import Address
from llmgw.config.agent import AgentConfig, Ports
from llmgw.config.tls import TlsFiles
from llmgw.core.facts import Exposure
from llmgw.core.link import Listening, TryAddress


def config(ports: Ports, address: str | None = None) -> AgentConfig:
    files = TlsFiles(certificate=Path("/c"), key=Path("/k"), authority=Path("/a"))
    return AgentConfig.model_construct(
        control=[Address("127.0.0.1", 9)], tls=files, node="node01", engine_ports=ports, address=address
    )


@pytest.fixture
def ports() -> Ports:
    """A few that are free now."""
    for first in range(29000, 30900, 8):
        if all(_free(port) for port in range(first, first + 4)):
            return Ports(first, first + 3)
    raise AssertionError("no four ports in a row are free")


def _free(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == errno.ECONNREFUSED


class Rig:
    """A listener at work."""

    def __init__(self, ports: Ports, address: str | None) -> None:
        self.leases, self.news, self.in_use = Leases(config(ports, address)), News(), set[int]()
        self.listener = Listener(self.leases, ports, lambda: self.in_use, self.news)

    async def ask(
        self, token: str = "t", *, exposure: Exposure = Exposure.LOOPBACK, seconds: float = 30.0
    ) -> Listening:
        seen = self.news.count
        self.listener.ask(TryAddress(token=token, exposure=exposure, seconds=seconds))
        async with asyncio.timeout(10):
            await self.news.after(seen)
        answer = self.listener.answer()
        assert answer is not None
        assert answer.token == token
        return answer


@asynccontextmanager
async def running(ports: Ports, address: str | None = None) -> AsyncIterator[Rig]:
    rig = Rig(ports, address)
    task = asyncio.create_task(rig.listener.run())
    try:
        yield rig
    finally:
        task.cancel()
        await asyncio.wait([task])
        assert task.cancelled(), "it runs until it is told to stop"


async def heard(answer: Listening) -> bytes:
    """All that somebody hears who connects."""
    reader, writer = await asyncio.open_connection(answer.host, answer.port)
    try:
        async with asyncio.timeout(10):
            return await reader.read()
    finally:
        writer.close()


async def refused(answer: Listening) -> None:
    """Wait until nobody takes connections there any more."""
    async with asyncio.timeout(10):
        while True:
            try:
                _, writer = await asyncio.open_connection(answer.host, answer.port)
            except ConnectionRefusedError:
                return
            except ConnectionResetError:
                continue  # it was in the queue when the listener closed
            writer.close()
            await asyncio.sleep(0.01)


async def test_who_connects_hears_the_token_and_is_left(ports: Ports) -> None:
    async with running(ports) as rig:
        answer = await rig.ask("7-42")
        assert (answer.host, answer.problem) == ("127.0.0.1", "")
        assert answer.port in ports
        assert await heard(answer) == b"llmgw-reach 7-42\n"
        assert await heard(answer) == b"llmgw-reach 7-42\n"
        assert rig.listener.answer() is None, "it is told once"


def test_uvloops_sockets_say_the_same(ports: Ports) -> None:
    """Its transports are other code than asyncio's, and the agent's own."""

    async def one() -> bytes:
        async with running(ports) as rig:
            return await heard(await rig.ask())

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        assert runner.run(one()) == b"llmgw-reach t\n"


@pytest.mark.parametrize("address", ["127.0.0.1", "127.0.0.2", "::1"])
async def test_exposed_it_listens_on_the_nodes_address(ports: Ports, address: str) -> None:
    async with running(ports, address) as rig:
        answer = await rig.ask(exposure=Exposure.DIRECT)
        assert answer.host == address
        assert await heard(answer) == b"llmgw-reach t\n"


async def test_it_stops_when_its_time_is_over_and_gives_the_port_back(ports: Ports) -> None:
    async with running(Ports(ports.first, ports.first)) as rig:
        first = await rig.ask(seconds=0.05)
        await refused(first)
        second = await rig.ask("again", seconds=30)
        assert second.port == first.port
        assert await heard(second) == b"llmgw-reach again\n"


async def test_a_newer_question_takes_the_place_of_the_one_before(ports: Ports) -> None:
    async with running(ports) as rig:
        first = await rig.ask("one")
        second = await rig.ask("two")
        assert await heard(second) == b"llmgw-reach two\n"
        if first.port != second.port:
            await refused(first)


async def test_of_questions_that_come_at_once_only_the_newest_is_answered(ports: Ports) -> None:
    async with running(ports) as rig:
        rig.listener.ask(TryAddress(token="old", exposure=Exposure.LOOPBACK, seconds=30))
        answer = await rig.ask("new")
        assert await heard(answer) == b"llmgw-reach new\n"


async def test_a_launch_meanwhile_gets_another_port_and_so_does_it(ports: Ports) -> None:
    two = Ports(ports.first, ports.first + 1)
    async with running(two) as rig:
        answer = await rig.ask()
        with rig.leases.port("127.0.0.1", ()) as port:
            assert {port, answer.port} == set(two)
            with pytest.raises(NoPort), rig.leases.port("127.0.0.1", ()):
                pass
    async with running(two) as rig:
        rig.in_use = {two.first}
        assert (await rig.ask()).port == two.last, "an engine that runs has the other, listening or not"


async def test_without_a_free_port_it_says_so(ports: Ports) -> None:
    one = Ports(ports.first, ports.first)
    with socket.create_server(("127.0.0.1", ports.first)):
        async with running(one) as rig:
            answer = await rig.ask()
            assert answer.port is None
            assert answer.problem == f"no port of engine_ports {one} is free on 127.0.0.1"


async def test_an_address_that_is_not_its_own_is_named_with_the_kernels_words(ports: Ports) -> None:
    async with running(ports, "192.0.2.1") as rig:
        answer = await rig.ask(exposure=Exposure.DIRECT)
        assert (answer.host, answer.port) == ("192.0.2.1", ports.first)
        assert answer.problem == "nothing can listen on 192.0.2.1: cannot assign requested address"


def test_a_name_that_nobody_knows_is_named_too() -> None:
    assert unusable("no.such.host.invalid").startswith("nothing can listen on no.such.host.invalid: ")
    assert unusable("127.0.0.1") == ""


async def test_without_a_route_there_is_no_address(ports: Ports, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine without a route cannot be had here."""

    async def nowhere(host: str, port: int) -> None:
        return None

    monkeypatch.setattr("llmgw.agent.discovery.address.address_towards", nowhere)
    async with running(ports) as rig:
        answer = await rig.ask(exposure=Exposure.DIRECT)
        assert (answer.host, answer.port) == ("", None)
        assert "no route to its control plane" in answer.problem
        with pytest.raises(NoAddress):
            await rig.leases.host(Exposure.DIRECT)


async def test_those_who_hold_their_connections_keep_nobody_out_for_long(
    ports: Ports, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listen, "_LINGER", 0.2)
    async with running(ports) as rig:
        answer = await rig.ask()
        held = [await asyncio.open_connection(answer.host, answer.port) for _ in range(MOST)]
        assert {await reader.readline() for reader, _ in held} == {b"llmgw-reach t\n"}
        try:
            async with asyncio.timeout(10):
                while await heard_or_cut(answer) != b"llmgw-reach t\n":  # noqa: ASYNC110 # nobody tells when
                    await asyncio.sleep(0.01)
        finally:
            for _, writer in held:
                writer.transport.abort()


async def test_many_at_once_are_bounded(ports: Ports) -> None:
    async with running(ports) as rig:
        answer = await rig.ask()
        held = [await asyncio.open_connection(answer.host, answer.port) for _ in range(MOST)]
        assert {await reader.readline() for reader, _ in held} == {b"llmgw-reach t\n"}
        assert await heard_or_cut(answer) == b""
        for _, writer in held:
            writer.transport.abort()


async def heard_or_cut(answer: Listening) -> bytes:
    try:
        return await heard(answer)
    except ConnectionResetError:
        return b""
