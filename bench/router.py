"""What a request costs in the router beside nginx as a proxy: CPU of each, children included, in one run.

Both ask the same small upstream, whose answers are 1 kB; our key check, routing and access log are on.
"""

import asyncio
import contextlib
import os
import socket
import statistics
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import psutil

from bench.figure import Figure
from llmgw.config.tls import TlsFiles
from llmgw.core.errors import ClusterCannot
from llmgw.core.facts import Secret
from llmgw.core.identity import Role
from llmgw.core.names import ModelName, NodeName, ReplicaId
from llmgw.core.routes import Route, RouteReplica, Routes
from llmgw.core.views import ModelState, Revision
from llmgw.host.machine import machine_id
from llmgw.pki import authority
from llmgw.router import remember

NGINX = Path("/usr/sbin/nginx")
PEER = "nginx proxy_pass"
GOAL = 1.67
ROUNDS, REQUESTS, CONNECTIONS = 5, 16_000, 32
PATIENCE = 60.0

_BODY = b'{"model":"m","messages":[{"role":"user","content":"' + b"hello " * 20 + b'"}]}'
_ASK = (
    b"POST /v1/chat/completions HTTP/1.1\r\nHost: gateway\r\nContent-Type: application/json\r\n"
    b"Authorization: Bearer client\r\nUser-Agent: bench\r\nAccept: */*\r\nContent-Length: %d\r\n\r\n%b"
) % (len(_BODY), _BODY)
_ANSWER = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 1024\r\n\r\n" + b"x" * 1024
_NGINX = """
daemon off; worker_processes 1; pid {d}/pid; error_log stderr;
events {{ worker_connections 1024; }}
http {{
  access_log {d}/access.log; client_body_temp_path {d}/body; proxy_temp_path {d}/proxy;
  fastcgi_temp_path {d}/f; uwsgi_temp_path {d}/u; scgi_temp_path {d}/s;
  keepalive_requests 1000000; client_body_buffer_size 1m;
  upstream engine {{ server 127.0.0.1:{engine}; keepalive 64; keepalive_requests 1000000; }}
  server {{
    listen 127.0.0.1:{port};
    location / {{ proxy_pass http://engine; proxy_http_version 1.1; proxy_set_header Connection ""; }}
  }}
}}
"""


async def figures() -> AsyncIterator[Figure]:
    if not os.access(NGINX, os.X_OK):
        words = f"skipped: there is no {NGINX} to measure beside; apt-get install nginx"
        yield Figure(name="router.cpu", value=0.0, unit="µs CPU/request", goal=GOAL, peer=PEER, failed=words)
        return
    with tempfile.TemporaryDirectory(prefix="llmgw-bench-") as scratch:
        ours, peers, failed = await _measured(Path(scratch))
    yield Figure(
        name="router.cpu",
        value=statistics.median(ours),
        unit="µs CPU/request",
        goal=GOAL,
        peer=PEER,
        peer_value=statistics.median(peers),
        failed=failed,
    )


async def _measured(scratch: Path) -> tuple[list[float], list[float], str]:
    """Microseconds of each round, by turns, so that a machine that gets slower meanwhile changes both alike."""
    spent: list[list[float]] = [[], []]
    wrong = 0
    server = await asyncio.get_running_loop().create_server(_Engine, "127.0.0.1", 0)
    engine, ports = server.sockets[0].getsockname()[1], (_free_port(), _free_port())
    async with server, _router(scratch, engine, ports[0]) as router, _nginx(scratch, engine, ports[1]) as nginx:
        for one in range(ROUNDS + 1):
            for pid, port, values in zip((router, nginx), ports, spent, strict=True):
                before = _cpu(pid)
                wrong += await _load(port, REQUESTS if one else REQUESTS // 8)
                if one:  # the first is to warm up
                    values.append(1e6 * (_cpu(pid) - before) / REQUESTS)
    return spent[0], spent[1], f"{wrong} answers were not 200" if wrong else ""


def _cpu(pid: int) -> float:
    """Seconds of CPU that a process and all below it have used."""
    process = psutil.Process(pid)
    used = [one.cpu_times() for one in (process, *process.children(recursive=True))]
    mine = process.cpu_times()
    return sum(t.user + t.system for t in used) + mine.children_user + mine.children_system


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


# --- the two ----------------------------------------------------------------------------------------------------


@asynccontextmanager
async def _router(scratch: Path, engine: int, port: int) -> AsyncIterator[int]:
    """Our router, with a table that it remembers; no control plane is there to add to what it does."""
    authority.init(scratch / "authority", "bench")
    authority.issue(scratch / "authority", "router", Role.ROUTER, ["127.0.0.1"], scratch)
    tls = TlsFiles(scratch / "router.crt", scratch / "router.key", scratch / "authority.crt")
    (scratch / "state").mkdir(mode=0o700)
    remember.save(scratch / "state", _routes(engine))
    file = scratch / "router.yaml"
    file.write_text(
        f"control: [127.0.0.1:1]\nlisten: 127.0.0.1:{port}\nstate: state\ndrain: 0s\n"
        f"tls: {{certificate: {tls.certificate}, key: {tls.key}, authority: {tls.authority}}}\n"
    )
    async with _process(
        port, scratch / "router.log", sys.executable, "-m", "llmgw.router.main", "--config", file
    ) as pid:
        yield pid


def _routes(engine: int) -> Routes:
    replica = RouteReplica(
        id=ReplicaId("m/0"),
        launch=1,
        node=NodeName("node01"),
        machine=machine_id(),
        host="127.0.0.1",
        port=engine,
        key=Secret("engine-key"),
    )
    route = Route(model=ModelName("m"), replicas=(replica,), state=ModelState.READY)
    return Routes(revision=Revision(epoch=1, seq=1), routes=(route,))


@asynccontextmanager
async def _nginx(scratch: Path, engine: int, port: int) -> AsyncIterator[int]:
    file = scratch / "nginx.conf"
    file.write_text(_NGINX.format(d=scratch, engine=engine, port=port))
    async with _process(port, scratch / "nginx.log", NGINX, "-p", scratch, "-c", file) as pid:
        yield pid


@asynccontextmanager
async def _process(port: int, log: Path, *command: str | Path) -> AsyncIterator[int]:
    """Run a program until the end of the block, which begins when it listens."""
    with log.open("wb") as out:
        process = await asyncio.create_subprocess_exec(*map(str, command), stdout=out, stderr=out)
    try:
        async with asyncio.timeout(PATIENCE):
            while not await _listens(port):
                if process.returncode is not None:
                    raise ClusterCannot(f"{command[0]} ended: {_last_words(log)}")
                await asyncio.sleep(0.02)
        yield process.pid
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.terminate()
        await process.wait()


def _last_words(log: Path) -> str:
    lines = log.read_text(errors="replace").strip().splitlines() or ["no words"]
    return lines[-1]


async def _listens(port: int) -> bool:
    try:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
    except OSError:
        return False
    writer.close()
    return True


# --- the load ---------------------------------------------------------------------------------------------------


class _Engine(asyncio.Protocol):
    """Answers each request with 1 kB."""

    def __init__(self) -> None:
        self._held = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._held += data
        while (end := self._held.find(_BODY)) >= 0:
            self._held = self._held[end + len(_BODY) :]
            self._transport.write(_ANSWER)


class _Client(asyncio.Protocol):
    """Asks one request after the other, as long as there are some left."""

    def __init__(self, load: "_Load") -> None:
        self._load, self._size = load, 0
        self._held = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._next()

    def _next(self) -> None:
        if self._load.left:
            self._load.left -= 1
            self._transport.write(_ASK)
        else:
            self._transport.close()

    def data_received(self, data: bytes) -> None:
        self._held += data
        head, separator, body = self._held.partition(b"\r\n\r\n")
        if separator and len(body) >= 1024:
            self._load.good += head.startswith(b"HTTP/1.1 200 ")
            self._held = b""
            self._next()

    def connection_lost(self, exc: Exception | None) -> None:
        self._load.gone()


class _Load:
    def __init__(self, requests: int) -> None:
        self.left, self.good, self._running = requests, 0, CONNECTIONS
        self.over = asyncio.Event()

    def gone(self) -> None:
        self._running -= 1
        if not self._running:
            self.over.set()


async def _load(port: int, requests: int) -> int:
    """Make the requests; return how many were not answered well."""
    load = _Load(requests)
    for _ in range(CONNECTIONS):
        await asyncio.get_running_loop().create_connection(lambda: _Client(load), "127.0.0.1", port)
    async with asyncio.timeout(PATIENCE):
        await load.over.wait()
    return requests - load.good
