"""A node by its agent.yaml: what is right in a faulty file is still looked at."""

import contextlib
import fcntl
import os
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from llmgw.cli import llamacpp
from llmgw.cli.examine.findings import Findings
from llmgw.cli.examine.node import node, stand_in
from llmgw.config.lenient import Lenient
from llmgw.config.tls import TlsFiles
from llmgw.core.checks import Result
from llmgw.core.identity import Role
from llmgw.pki import authority

Node = Callable[..., Path]


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A real llama.cpp server behind llama-server's flags."""
    return llamacpp.script(tmp_path_factory.mktemp("engine") / "llama-server")


@pytest.fixture(scope="module")
def pki(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("pki")
    authority.init(root / "pki", "demo")
    authority.issue(root / "pki", "node01", Role.AGENT, [], root)
    authority.issue(root / "pki", "control", Role.CONTROL, ["127.0.0.1"], root)
    return root


@pytest.fixture
def write(tmp_path: Path, pki: Path, engine: Path) -> Node:
    """Writes an agent.yaml of a node where all is well but for the changes."""

    def write(control: str = "127.0.0.1:1", **changes: object) -> Path:
        tls = {"certificate": "node01.crt", "key": "node01.key", "authority": "authority.crt"}
        content = {
            "control": [control],
            "tls": {key: str(pki / name) for key, name in tls.items()},
            "node": "node01",
            "state": "state",
            "engines": {"llama.cpp": str(engine)},
            "launcher": "session",
        }
        path = tmp_path / "agent.yaml"
        path.write_text(yaml.safe_dump(content | changes))
        return path

    return write


def wrong(found: Findings, *but: str) -> list[str]:
    told = [one for one in found.checks if one.result is not Result.OK and one.name not in but]
    return [f"{one.name}: {one.fact} → {one.fix}" for one in told]


def free() -> socket.socket:
    """A listener on a port that the kernel gives to nobody."""
    for port in range(20000, 30000):
        with contextlib.suppress(OSError):
            return socket.create_server(("127.0.0.1", port))
    raise AssertionError("all ports are taken")


async def test_a_node_whose_agent_runs_is_well(write: Node, serve, pki: Path, tmp_path: Path):
    at = await serve(TlsFiles(pki / "control.crt", pki / "control.key", pki / "authority.crt"))
    (tmp_path / "state").mkdir(mode=0o700)
    # Now and then an agent listens where an engine would, for routers to try.
    with free() as listener, (tmp_path / "state" / "lock").open("w") as lock:
        port = listener.getsockname()[1]
        file = write(str(at), engine_ports=f"{port}-{port}")
        fcntl.flock(lock, fcntl.LOCK_EX)
        found = await node(file, 2.0)
    assert wrong(found) == []
    facts = [f"{one.name}: {one.fact}" for one in found.checks]
    assert f"agent: runs (pid {os.getpid()})" in facts
    assert any(text.startswith("engine: llama.cpp b") and text.endswith(" runs") for text in facts)
    assert any(text.startswith("processor: ") and "vector extensions: " in text for text in facts)
    assert len(found.skews) == 1


async def test_an_agent_that_does_not_run_is_a_warning(write: Node, tmp_path: Path):
    file = write()
    found = wrong(await node(file, 1.0), "control plane")
    start = f"start it: llmgw-agent --config {file}"
    assert found == [f"agent: no agent runs with state {tmp_path / 'state'} → {start}"]


async def test_a_state_that_is_a_file_is_told_once(write: Node, tmp_path: Path):
    (tmp_path / "state").touch()
    found = await node(write(), 1.0)
    first, second = wrong(found, "control plane")
    assert first.startswith(f"directory: state {tmp_path}/state is no directory")
    assert second.startswith("agent: no agent runs with state")
    assert not [one for one in found.checks if one.name == "disk"]


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("absent", None, "is not there → install it there, or correct engines: in agent.yaml"),
        ("closed", "#!/bin/sh\n", "closed may not be executed → chmod 755 "),
        (
            "script",
            "#!/opt/no/python3 -s\n",
            "is run by /opt/no/python3 (its first line says so), which is not there → ",
        ),
        ("fails", "#!/bin/sh\nexit 3\n", "exit status 3 without a word → run it by hand to see"),
    ],
)
async def test_each_engine_that_does_not_run_has_its_own_way_out(
    name: str, text: str | None, words: str, write: Node, tmp_path: Path
):
    program = tmp_path / name
    if text is not None:
        program.write_text(text)
        program.chmod(0o644 if name == "closed" else 0o755)
    (told,) = [one for one in wrong(await node(write(engines={"llama.cpp": str(program)}), 1.0)) if "engine:" in one]
    assert words in told
    assert name != "script" or told.endswith(f"install /opt/no/python3, or correct the first line of {program}")


async def test_a_mistake_in_one_key_hides_nothing_else(write: Node):
    file = write(enginez={}, engines={"llama.cpp": "/nonexistent/llama-server"}, node="node02", memory="lots")
    found = wrong(await node(file, 1.0), "agent")
    assert [text.partition(":")[0] for text in found] == [
        "configuration", "configuration", "certificate", "engine", "control plane"
    ]  # fmt: skip
    assert "memory: must be a size" in found[0] + found[1] and "enginez: unknown key" in found[0] + found[1]
    assert "is for node01, the node is node02" in found[2]
    assert "/nonexistent/llama-server is not there" in found[3]
    assert "connection refused" in found[4]


async def test_of_a_file_that_is_no_yaml_the_machine_is_still_told(tmp_path: Path):
    file = tmp_path / "agent.yaml"
    file.write_text("control: [")
    found = await node(file, 1.0)
    (only,) = wrong(found)
    assert "is not YAML" in only
    assert any(one.name == "memory" for one in found.checks)


async def test_memory_and_engines_that_are_promised_and_not_there_are_told(write: Node):
    looked = await node(write(memory="900TiB", engines={}), 1.0)
    found, facts = wrong(looked), [one.fact for one in looked.checks if one.result is Result.OK]
    assert any("memory: 900 TiB is more than this machine's" in text for text in found)
    assert not any("for engines" in text for text in facts)
    assert any("none is installed yet, and agent.yaml names none" in text for text in found)


async def test_ports_of_engines_that_others_use_are_told_by_name(write: Node):
    code = "import socket; s = socket.create_server(('127.0.0.1', 0)); print(s.getsockname()[1], flush=True); input()"
    argv = [sys.executable, "-c", code]
    other = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)  # noqa: ASYNC220
    try:
        assert other.stdout is not None
        port = int(other.stdout.readline())
        found = wrong(await node(write(engine_ports=f"{port}-{port}"), 1.0))
    finally:
        other.communicate("\n")
    assert any(f"of engine_ports {port}-{port} 1 are in use by other programs: {port} by " in one for one in found)
    assert any(f"(pid {other.pid})" in one for one in found)


def test_what_stands_in_for_a_broken_file_is_a_whole_configuration():
    config = stand_in(Lenient())
    assert (config.control, config.node) == ((), socket.gethostname().lower())
    assert config.engines == {} and str(config.state) == "/var/lib/llmgw-agent"
