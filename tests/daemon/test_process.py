"""llmgwd as a process: up, down, killed, refused; with streams open and a disk that remembers."""

import asyncio
import os
import signal
import socket
import sys
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from llmgw.client import ControlClient
from llmgw.config.address import Address
from llmgw.config.client import ClientConfig
from llmgw.core.errors import ControlUnreachable
from llmgw.core.events import Event, EventKind
from llmgw.core.facts import ShardReport
from llmgw.core.inventory import Inventory
from llmgw.core.link import Desired, Report
from llmgw.core.shard import ShardState
from llmgw.core.views import Noun
from tests.core.stage import inventory
from tests.daemon.agent import Agent, agent
from tests.daemon.conftest import Certificates, write_config

COMMAND = (sys.executable, "-m", "llmgw.daemon.main")


class Daemon:
    """A running llmgwd and what it wrote."""

    def __init__(self, process: asyncio.subprocess.Process, certificates: Certificates, directory: Path) -> None:
        self.process, self.certificates, self.directory = process, certificates, directory
        self.lines: list[str] = []
        self.port = 0

    async def line(self, word: str) -> str:
        """The next line of the log with `word` in it."""
        assert self.process.stderr is not None
        async with asyncio.timeout(20):
            async for raw in self.process.stderr:
                self.lines.append(raw.decode().rstrip())
                if word in self.lines[-1]:
                    return self.lines[-1]
        raise AssertionError(f"never said {word!r}: {self.lines}")

    def client(self, name: str = "operator") -> ControlClient:
        return ControlClient.open(
            ClientConfig(server=(Address("127.0.0.1", self.port),), tls=self.certificates.of(name))
        )

    async def end(self, number: int) -> tuple[int, float]:
        """Send a signal; return the exit status and the seconds until it ended."""
        before = time.monotonic()
        self.process.send_signal(number)
        assert self.process.stderr is not None
        async with asyncio.timeout(20):
            self.lines += (await self.process.stderr.read()).decode().splitlines()
            await self.process.wait()
        assert self.process.returncode is not None
        return self.process.returncode, time.monotonic() - before


@asynccontextmanager
async def llmgwd(
    directory: Path, certificates: Certificates, *, environment: dict[str, str] | None = None, **changes: str
) -> AsyncIterator[Daemon]:
    config = write_config(directory, certificates, **changes)
    process = await asyncio.create_subprocess_exec(
        *COMMAND, "--config", str(config), stderr=asyncio.subprocess.PIPE, env={**os.environ, **(environment or {})}
    )
    daemon = Daemon(process, certificates, directory)
    try:
        where = await daemon.line("ready at 127.0.0.1:")
        daemon.port = int(where.split("127.0.0.1:")[1].split()[0])
        yield daemon
    finally:
        if process.returncode is None:
            process.kill()
            await process.communicate()


async def refused(directory: Path, certificates: Certificates, *more: str, **changes: str) -> tuple[int, str]:
    """Start it with a configuration that it must refuse; return exit status and output."""
    config = write_config(directory, certificates, **changes)
    process = await asyncio.create_subprocess_exec(
        *COMMAND, "--config", str(config), *more, stderr=asyncio.subprocess.STDOUT, stdout=asyncio.subprocess.PIPE
    )
    async with asyncio.timeout(20):
        said, _ = await process.communicate()
    assert process.returncode is not None
    return process.returncode, said.decode()


async def test_it_stops_in_two_seconds_with_every_kind_of_stream_open(
    tmp_path: Path, certificates: Certificates
) -> None:
    async with llmgwd(tmp_path, certificates) as daemon, AsyncExitStack() as open_streams:
        node = await open_streams.enter_async_context(agent(daemon.port, certificates.of("node01"), "node01"))
        await node.register()
        watcher = await open_streams.enter_async_context(daemon.client())
        local = await open_streams.enter_async_context(
            ControlClient.open(ClientConfig(socket=tmp_path / "run" / "llmgwd.sock"))
        )
        router = await open_streams.enter_async_context(daemon.client("router"))
        watches = [
            watcher.watch([Noun.NODES], follow=True),
            local.watch([Noun.NODES], follow=True),
            router.watch_routes(),
        ]
        for watch in watches:
            async with asyncio.timeout(5):
                await anext(watch)
        status, seconds = await daemon.end(signal.SIGTERM)
        assert status == 0, daemon.lines
        assert seconds < 2
        with pytest.raises(ControlUnreachable, match="stopping"):
            await node.ends()
        for watch in watches:
            with pytest.raises(ControlUnreachable, match="stopping"):
                while True:
                    await anext(watch)
        assert os.listdir(tmp_path / "run") == []
        assert "stopped" in daemon.lines[-1]
        assert not [line for line in daemon.lines if "Traceback" in line]


async def test_peers_that_read_nothing_do_not_delay_its_end(tmp_path: Path, certificates: Certificates) -> None:
    """More waits for each than buffers hold, and TLS ends that nobody answers are not waited for."""
    async with llmgwd(tmp_path, certificates) as daemon, AsyncExitStack() as held:
        nodes = [await held.enter_async_context(_node(daemon, certificates, name)) for name in ("node01", "node03")]
        deaf = await held.enter_async_context(_node(daemon, certificates, "node02"))
        unread = [await held.enter_async_context(daemon.client()) for _ in range(7)]
        for client in unread:
            watch = client.watch([Noun.NODES, Noun.EVENTS], follow=True)
            held.push_async_callback(watch.aclose)
            async with asyncio.timeout(5):
                await anext(watch)
        for channel in (*(client._channels[0].grpc for client in unread), deaf.link._stream._channel):
            protocol = channel._protocol
            assert protocol is not None
            protocol.connection._transport.pause_reading()
            held.callback(protocol.connection._transport.resume_reading)  # or the client could not close
        for _ in range(20):
            half_open = socket.create_connection(("127.0.0.1", daemon.port))
            held.callback(half_open.close)
        for round_ in range(44):
            await nodes[round_ % 2].say(Report(inventory=fat(round_)))
        async with daemon.client() as client:
            await client.scale_model("gemma", 3)  # applied after all that was said before
            status, seconds = await daemon.end(signal.SIGTERM)
    assert status == 0, daemon.lines
    assert seconds < 2
    assert not [line for line in daemon.lines if "Traceback" in line]


async def test_what_it_acknowledged_is_there_after_kill_9(tmp_path: Path, certificates: Certificates) -> None:
    acknowledged = 1
    epochs, replicas = [], set()
    for round_ in range(3):
        async with llmgwd(tmp_path, certificates) as daemon, daemon.client() as client:
            models = (await anext(client.watch([Noun.MODELS], follow=False))).items
            assert models[0].wanted == acknowledged  # type: ignore[union-attr]
            async with agent(daemon.port, certificates.of("node01"), "node01") as node:
                running = [ShardReport(shard=shard, state=ShardState.READY, since=1.0) for shard in sorted(replicas)]
                epochs.append((await node.register(shards=tuple(running))).epoch)
                desired = await node.hear(Desired)
                while not desired.shards:
                    desired = await node.hear(Desired)
                assert replicas <= {order.shard for order in desired.shards}, "what runs is known and goes on"
                acknowledged = round_ + 2
                await client.scale_model("gemma", acknowledged)
                while len(desired.shards) < acknowledged:
                    desired = await node.hear(Desired)
                replicas = {order.shard for order in desired.shards}
                status, _ = await daemon.end(signal.SIGKILL)
                assert status == -signal.SIGKILL
    assert epochs == sorted(set(epochs)), "each start has a higher epoch"
    assert len(replicas) == acknowledged


async def test_a_second_llmgwd_on_one_store_is_refused_and_the_first_goes_on(
    tmp_path: Path, certificates: Certificates
) -> None:
    async with llmgwd(tmp_path, certificates) as daemon:
        status, said = await refused(tmp_path, certificates)
        assert status == 4
        assert len(said.splitlines()) == 1
        assert f"llmgw.db: is in use by llmgwd (pid {daemon.process.pid})" in said
        async with daemon.client() as client:
            assert (await client.about()).cluster == "demo"
        assert os.listdir(tmp_path / "run") == ["llmgwd.sock"], "the refused one removed the socket of the first"


async def test_a_port_in_use_is_one_line_with_the_holder_and_leaves_nothing(
    tmp_path: Path, certificates: Certificates
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        status, said = await refused(tmp_path, certificates, listen=f"127.0.0.1:{port}")
    assert status == 3
    errors = [line for line in said.splitlines() if line.startswith("llmgwd: ")]
    assert len(errors) == 1
    assert f"127.0.0.1:{port}" in errors[0]
    assert f"(pid {os.getpid()}) listens there" in errors[0]
    assert "Traceback" not in said
    assert os.listdir(tmp_path) == ["server.yaml"], "it wrote before it knew whether it can listen"
    async with llmgwd(tmp_path, certificates) as daemon:
        assert (await daemon.end(signal.SIGTERM))[0] == 0


@pytest.mark.parametrize("trouble", ["port", "socket", "socket directory"])
async def test_tries_that_cannot_listen_do_not_change_the_store(
    tmp_path: Path, certificates: Certificates, trouble: str
) -> None:
    """Under a service manager there is one each second: no epoch and no event may tell of them."""
    async with llmgwd(tmp_path, certificates) as daemon:
        assert (await daemon.end(signal.SIGTERM))[0] == 0
    (tmp_path / "taken").write_text("a file")
    before = (sorted(os.listdir(tmp_path)), (tmp_path / "llmgw.db").read_bytes())
    with socket.create_server(("127.0.0.1", 0)) as taken:
        changes = {
            "port": {"listen": f"127.0.0.1:{taken.getsockname()[1]}"},
            "socket": {"socket": "taken"},
            "socket directory": {"socket": "taken/deeper/llmgwd.sock"},
        }[trouble]
        status, said = await refused(tmp_path, certificates, **changes)
    assert (status, said.count("\n")) == (3, 1), said
    assert (sorted(os.listdir(tmp_path)), (tmp_path / "llmgw.db").read_bytes()) == before


async def test_an_address_that_is_not_ours_has_no_holder(tmp_path: Path, certificates: Certificates) -> None:
    """Somebody listens at the same port of another address: that is not what is in the way."""
    with socket.create_server(("127.0.0.1", 0)) as other:
        status, said = await refused(tmp_path, certificates, listen=f"192.0.2.1:{other.getsockname()[1]}")
    (error,) = [line for line in said.splitlines() if line.startswith("llmgwd: ")]
    assert status == 3
    assert "cannot assign requested address" in error
    assert "listens there" not in error


async def test_a_socket_that_cannot_be_had_is_one_line_about_the_socket(
    tmp_path: Path, certificates: Certificates
) -> None:
    """Not about the port, at which by then it listens itself."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    (tmp_path / "taken").write_text("a file")
    status, said = await refused(tmp_path, certificates, listen=f"127.0.0.1:{port}", socket="taken")
    (error,) = [line for line in said.splitlines() if line.startswith("llmgwd: ")]
    assert status == 3
    assert error == f"llmgwd: cannot listen at {tmp_path}/taken: something that is no socket is there; move it away"
    assert (tmp_path / "taken").read_text() == "a file"


async def test_a_stopped_llmgwd_calls_nobody_away_when_it_goes_on(tmp_path: Path, certificates: Certificates) -> None:
    """It was deaf three times as long as a node may be silent before it is lost; its nodes spoke all the time."""
    async with (
        llmgwd(tmp_path, certificates, heartbeat="300ms", lost_after="900ms") as daemon,
        daemon.client() as client,
        agent(daemon.port, certificates.of("node01"), "node01") as node,
    ):
        await node.register()
        beating = asyncio.ensure_future(beats(node))
        await ordered(node)
        daemon.process.send_signal(signal.SIGSTOP)
        await asyncio.sleep(2.7)  # the time itself is what is tested
        daemon.process.send_signal(signal.SIGCONT)
        await client.scale_model("gemma", 2)  # applied after all that was due before
        kinds = [event.kind for event in await events(client)]
        assert EventKind.NODE_JOINED in kinds
        assert not {EventKind.NODE_UNREACHABLE, EventKind.NODE_LOST} & set(kinds), kinds
        beating.cancel()
        async with asyncio.timeout(10):  # and one that is silent indeed is called so
            async for page in client.watch([Noun.EVENTS], follow=True, events=100):
                if any(isinstance(item, Event) and item.kind is EventKind.NODE_LOST for item in page.items):
                    break


async def beats(node: Agent) -> None:
    while True:
        await node.beat()
        await asyncio.sleep(0.1)


async def ordered(node: Agent) -> Desired:
    """The first orders with something to run."""
    desired = await node.hear(Desired)
    while not desired.shards:
        desired = await node.hear(Desired)
    return desired


async def events(client: ControlClient) -> list[Event]:
    pages = [page async for page in client.watch([Noun.EVENTS], follow=False, events=1_000)]
    return [item for page in pages for item in page.items if isinstance(item, Event)]


async def test_systemd_hears_ready_alive_and_stopping(tmp_path: Path, certificates: Certificates) -> None:
    heard = asyncio.Queue[str]()

    class Manager(asyncio.DatagramProtocol):
        def datagram_received(self, data: bytes, addr: object) -> None:
            heard.put_nowait(data.decode())

    path = str(tmp_path / "notify")
    transport, _ = await asyncio.get_running_loop().create_datagram_endpoint(
        Manager, local_addr=path, family=socket.AF_UNIX
    )
    environment = {"NOTIFY_SOCKET": path, "WATCHDOG_USEC": "200000", "JOURNAL_STREAM": "8:1"}
    try:
        async with llmgwd(tmp_path, certificates, environment=environment) as daemon, asyncio.timeout(10):
            said = [await heard.get() for _ in range(4)]
            assert any(text.startswith("READY=1\nSTATUS=ready at 127.0.0.1:") for text in said)
            assert said.count("WATCHDOG=1") >= 2
            assert (await daemon.end(signal.SIGTERM))[0] == 0
            while await heard.get() != "STOPPING=1":
                pass
        assert all(line.startswith("<6>") for line in daemon.lines), daemon.lines
    finally:
        transport.close()


async def test_a_watcher_that_stops_reading_costs_little_and_gets_a_new_snapshot(
    tmp_path: Path, certificates: Certificates
) -> None:
    """Some 40 MB of changes are published while it does not read."""
    async with (
        llmgwd(tmp_path, certificates, heartbeat="10s", lost_after="1m") as daemon,
        AsyncExitStack() as held,
        daemon.client() as stalled,
        daemon.client() as reading,
    ):
        # Three, since one that says so much is read slowly.
        nodes = [await held.enter_async_context(_node(daemon, certificates, f"node0{number}")) for number in (1, 2, 3)]
        stuck = stalled.watch([Noun.NODES], follow=True)
        assert (await anext(stuck)).first
        process = psutil.Process(daemon.process.pid)
        before = process.memory_info().rss
        pages = reading.watch([Noun.NODES], follow=True)
        for round_ in range(90):
            await nodes[round_ % 3].say(Report(inventory=fat(round_)))
            if round_ % 3 == 2:
                async with asyncio.timeout(10):
                    while not any(kernel(item) == f"round {round_}" for item in (await anext(pages)).items):
                        pass
        grown = process.memory_info().rss - before
        assert grown < 24 << 20, f"{grown >> 20} MiB"
        last: list[str] = []
        async with asyncio.timeout(10):
            while "round 89" not in last:
                last += [kernel(item) for item in (await anext(stuck)).items]
        assert len(last) < 60, "it was sent what it had missed, one by one"


@asynccontextmanager
async def _node(daemon: Daemon, certificates: Certificates, name: str) -> AsyncIterator[Agent]:
    """A node that is registered."""
    async with agent(daemon.port, certificates.of(name), name) as node:
        await node.register()
        yield node


def fat(round_: int) -> Inventory:
    """About 440 kB, different each time."""
    return replace(
        inventory(),
        kernel=f"round {round_}",
        cpu=replace(inventory().cpu, features=tuple(f"{round_}-{index}-{'x' * 1_990}" for index in range(220))),
    )


def kernel(item: object) -> str:
    known = getattr(item, "inventory", None)
    return known.kernel if known else ""
