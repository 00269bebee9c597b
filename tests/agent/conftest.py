"""Certificates of a real authority, engines to run, and a rig that leaves nothing behind."""

import shlex
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from llmgw.cli import llamacpp
from llmgw.config.tls import TlsFiles
from llmgw.core.identity import Role
from llmgw.pki import authority
from tests.agent.control import Control
from tests.agent.rig import Agent
from tests.tiny import tiny_gguf


@pytest.fixture(scope="session")
def tls(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., TlsFiles]:
    """Files for a name and role of the cluster `demo`; made once."""
    root = tmp_path_factory.mktemp("agent-pki")
    authority.init(root / "authority", "demo")
    made = dict[tuple[str, Role], TlsFiles]()

    def make(name: str, role: Role = Role.AGENT) -> TlsFiles:
        if (name, role) not in made:
            issued = authority.issue(root / "authority", name, role, ["127.0.0.1"], root / f"{role.value}-{name}")
            made[name, role] = TlsFiles(issued.certificate, issued.key, issued.authority)
        return made[name, role]

    return make


@pytest.fixture(scope="session")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A real llama.cpp server behind llama-server's flags."""
    return llamacpp.script(tmp_path_factory.mktemp("engine") / "llama-server")


@pytest.fixture(scope="session")
def weights() -> Path:
    return tiny_gguf()


@pytest.fixture(scope="session")
def stand_in(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An engine that does as its arguments tell it: fails, hangs, leaves children. Run by the Python of the tests."""
    path = tmp_path_factory.mktemp("stand-in") / "llama-server"
    program = Path(__file__).with_name("stand_in.py")
    path.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -SI {shlex.quote(str(program))} "$@"\n')
    path.chmod(0o755)
    return path


@pytest.fixture
async def control(tls: Callable[..., TlsFiles]) -> AsyncIterator[Control]:
    async with Control(tls("control", Role.CONTROL)).listening() as control:
        yield control


@pytest.fixture
async def agent(
    tmp_path: Path, tls: Callable[..., TlsFiles], control: Control, engine: Path
) -> AsyncIterator[Callable[..., Any]]:
    """Start an agent; it and its engines are ended with the test."""
    async with AsyncExitStack() as stack:

        async def start(program: Path = engine, certificate: str = "node01", home: str = "agent", **more: Any) -> Agent:
            place = tmp_path / home
            place.mkdir(exist_ok=True)
            made = Agent(place, tls(certificate), [f"127.0.0.1:{control.port}"], program, **more)
            stack.push_async_callback(made.end)
            await made.start()
            return made

        yield start
