"""The program itself: a real process with real certificates, fed by a real control plane's route stream."""

import asyncio
import contextlib
import signal
import socket
import sys
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from llmgw.config.tls import TlsFiles
from llmgw.core.identity import Role
from llmgw.core.routes import Routes
from llmgw.host.machine import machine_id
from llmgw.pki import authority
from llmgw.router import main as main_module
from llmgw.router import remember
from llmgw.wire.convert import to_wire
from llmgw.wire.operator import v1
from llmgw.wire.server import RpcServer
from llmgw.wire.tls import server_context
from tests.router.rig import STREAM, Call, Wire, chat, chunk, replica, table

_PREFIX = "/operator.v1.Operator/"


class _Control(v1.OperatorBase):
    """A control plane that only hands out routes."""

    def __init__(self) -> None:
        self.tables: asyncio.Queue[Routes] = asyncio.Queue()

    async def watch_routes(self, message: v1.WatchRoutesRequest) -> AsyncGenerator[v1.Routes, None]:
        while True:
            yield to_wire(await self.tables.get(), v1.Routes)


@contextlib.asynccontextmanager
async def _control(tls: TlsFiles) -> AsyncGenerator[tuple[_Control, int], None]:
    control = _Control()
    roles = {path: frozenset({Role.ROUTER}) for path in control.__mapping__()}
    server = RpcServer([control], roles=roles, cluster="demo")
    try:
        yield control, await server.listen_tls("127.0.0.1", 0, server_context(tls))
    finally:
        await server.close()


def _issue(path: Path, name: str, role: Role) -> TlsFiles:
    authority.issue(path / "authority", name, role, ["127.0.0.1"], path)
    return TlsFiles(path / f"{name}.crt", path / f"{name}.key", path / "authority.crt")


@pytest.fixture
def certificates(tmp_path: Path) -> Path:
    authority.init(tmp_path / "authority", "demo")
    return tmp_path


def _config(path: Path, tls: TlsFiles, control: int, listen: str, drain: str = "0s") -> Path:
    file = path / "router.yaml"
    file.write_text(
        f"control: [127.0.0.1:{control}]\n"
        f"tls: {{certificate: {tls.certificate}, key: {tls.key}, authority: {tls.authority}}}\n"
        f"listen: {listen}\nstate: state\ndrain: {drain}\n"
    )
    return file


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


async def _start(file: Path, *more: str) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        sys.executable,
        *("-m", "llmgw.router.main", "--config", str(file), *more),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )


async def _until(reader: asyncio.StreamReader, word: bytes) -> bytes:
    async with asyncio.timeout(10):
        while word not in (line := await reader.readline()):
            assert line, f"it ended before it said {word!r}"
    return line


async def test_a_router_takes_its_routes_from_the_control_plane_and_ends_within_two_seconds(certificates, engine):
    async def script(call: Call) -> None:
        await call.say(STREAM + chunk(b"data: one\n\n"))
        await call.left()

    engine.script = script
    async with _control(_issue(certificates, "control", Role.CONTROL)) as (control, port):
        listen = _free_port()
        file = _config(certificates, _issue(certificates, "r1", Role.ROUTER), port, f"127.0.0.1:{listen}")
        process = await _start(file)
        control.tables.put_nowait(table(replica(0, engine.port, machine=machine_id() or "x", host="127.0.0.1")))
        await _until(process.stderr, b"1 model, live")
        wire = Wire(*await asyncio.open_connection("127.0.0.1", listen))
        wire.send(chat(b'{"model":"m","stream":true}'))
        await wire.until(b"data: one\n\n")
        async with asyncio.timeout(2):
            process.send_signal(signal.SIGTERM)
            assert await process.wait() == 0
        assert b"router_stopping" in await wire.rest()
        wire.close()
        out = await process.stdout.read()
        assert b"model=m" in out
        assert b"engine-key" not in out + await process.stderr.read()
    assert (certificates / "state" / "routes.json").stat().st_mode & 0o777 == 0o600


async def test_a_router_comes_back_without_a_control_plane(certificates, engine):
    """Nothing listens at its control address any more; the engine's replica is the one it was told of before."""
    (certificates / "state").mkdir()
    remember.save(certificates / "state", table(replica(0, engine.port, machine=machine_id())))
    listen = _free_port()
    file = _config(certificates, _issue(certificates, "r1", Role.ROUTER), _free_port(), f"127.0.0.1:{listen}", "1h")
    process = await _start(file)
    await _until(process.stderr, b"no routes from control")
    wire = Wire(*await asyncio.open_connection("127.0.0.1", listen))
    wire.send(chat())
    assert (await wire.reply())[0] == 200
    await engine.seen.get()
    engine.script = Call.left
    wire.send(chat())
    await engine.seen.get()
    process.send_signal(signal.SIGTERM)
    await _until(process.stderr, b"stopping")
    async with asyncio.timeout(2):
        process.send_signal(signal.SIGTERM)
        assert await process.wait() == 0
    wire.close()


async def _fails(file: Path, *more: str) -> tuple[int, str]:
    process = await _start(file, *more)
    async with asyncio.timeout(10):
        out, said = await process.communicate()
    assert out == b""
    lines = said.decode().splitlines()
    assert lines[-1].startswith("llmgw-router: ")
    assert "Traceback" not in said.decode()
    return process.returncode or 0, lines[-1]


async def test_a_port_in_use_is_one_line(certificates, engine):
    tls = _issue(certificates, "r1", Role.ROUTER)
    status, line = await _fails(_config(certificates, tls, 1, f"127.0.0.1:{engine.port}"))
    assert status == 2
    assert line == (
        f"llmgw-router: {certificates}/router.yaml: listen: 127.0.0.1:{engine.port} is in use by another program; "
        "stop it, or name another port"
    )


async def test_a_certificate_of_another_role_is_refused_before_anything_starts(certificates):
    tls = _issue(certificates, "op", Role.OPERATOR)
    status, line = await _fails(_config(certificates, tls, 1, "127.0.0.1:0"), "--check")
    assert status == 2
    assert "must be a router's, not one for operator op" in line
    assert not (certificates / "state").exists()


async def test_a_state_directory_that_cannot_be_made_is_one_line(certificates):
    tls = _issue(certificates, "r1", Role.ROUTER)
    (certificates / "state").write_text("a file")
    status, line = await _fails(_config(certificates, tls, 1, "127.0.0.1:0"))
    assert (status, "state" in line) == (2, True)


async def test_check_says_that_a_good_configuration_is_good(certificates):
    file = _config(certificates, _issue(certificates, "r1", Role.ROUTER), 1, "127.0.0.1:0")
    process = await _start(file, "--check")
    assert (await process.communicate())[0] == f"{file}: good: router at 127.0.0.1:0\n".encode()
    assert process.returncode == 0


@pytest.mark.parametrize("name", ["key", "authority"])
async def test_a_file_of_tls_that_cannot_be_used_is_said_at_the_start(certificates, name):
    """Else it listens, says that it is ready, and repeats one line for ever."""
    tls = _issue(certificates, "r1", Role.ROUTER)
    getattr(tls, name).chmod(0o600)
    getattr(tls, name).write_text("not PEM")
    status, line = await _fails(_config(certificates, tls, 1, "127.0.0.1:0"))
    assert (status, getattr(tls, name).name in line) == (2, True), line


def test_a_fault_of_ours_ends_it_with_70_and_its_trace(monkeypatch: pytest.MonkeyPatch, capsys):
    """1 is what Python gives a program that says nothing of how it ends."""

    def boom(_: Path) -> None:
        raise RuntimeError("boom")

    monkeypatch.setattr(main_module, "load_router", boom)
    assert main_module.main(["--config", "x"]) == 70
    assert "RuntimeError: boom" in capsys.readouterr().err
