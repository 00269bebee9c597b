"""What a node finds out about itself."""

import os
import shutil
from pathlib import Path

import pytest

from llmgw.agent.discovery import certificate, memory
from llmgw.agent.discovery.address import address_towards
from llmgw.agent.discovery.inventory import inventory
from llmgw.agent.discovery.root import MOST, Root, root_of
from llmgw.agent.discovery.usage import load, usage
from llmgw.agent.engines.probe import probe
from llmgw.agent.patience import words
from llmgw.config.load import load_agent
from llmgw.core.units import GIB, size
from llmgw.host import clock
from llmgw.wire import der
from llmgw.wire.tls import certificates
from tests.agent.test_main import config

# --- the machine ------------------------------------------------------------------------------------------------


async def test_the_address_is_the_one_on_the_route():
    assert await address_towards("127.0.0.1", 7443) == "127.0.0.1"
    assert await address_towards("no-such-host.invalid", 7443) is None


async def test_this_machine_is_described_and_what_the_file_says_wins(tmp_path: Path, tls):
    path = config(tmp_path, tls("node01"), memory="3GiB", fabrics="{ib-a: [mlx5_0]}", weights=f"[{tmp_path}/none]")
    read = load_agent(path)
    found = await inventory(read, root_of(read))
    assert (found.memory, [one.field for one in found.by_hand]) == (3 * GIB, ["memory"])
    assert found.by_hand[0].measured == size(memory.total(Root()))
    assert (found.kernel, found.arch) == (os.uname().release, os.uname().machine)
    assert found.os and found.cpu.cores == len(os.sched_getaffinity(0)) and found.cpu.features
    assert [(one.name, one.adapters) for one in found.fabrics] == [("ib-a", ("mlx5_0",))]
    assert [disk.problem for disk in found.disks if "weights" in disk.uses] == ["is not there"]
    assert found.certificate_ends is not None and found.certificate_ends > clock.now()
    assert found.recorded == ""
    ram, said = usage(Root(), ())
    assert 0 < said.memory_available <= ram.total


async def test_a_machine_that_does_not_say_its_memory_is_not_described(tmp_path: Path, tls):
    (tmp_path / "root").mkdir()
    read = load_agent(config(tmp_path, tls("node01"), discovery_root="root"))
    with pytest.raises(OSError, match="does not say how much memory there is") as raised:
        await inventory(read, root_of(read))
    assert words(raised.value) == f"{tmp_path}/root/proc/meminfo: does not say how much memory there is"


def test_a_certificate_that_cannot_be_read_has_no_end(tmp_path: Path, tls):
    files = tls("node01")
    assert (
        certificate.ends(files.certificate) == der.certificate(certificates(files.certificate)[0]).not_after.timestamp()
    )
    assert certificate.ends(tmp_path / "none") is None
    assert certificate.ends(files.key) is None


@pytest.mark.parametrize(
    ("text", "load_"), [("0.25 0.10 0.01 1/92 4", 0.25), ("", 0.0), ("nan 1", 0.0), ("inf", 0.0), ("-1.0", 0.0)]
)
def test_a_load_average_is_a_number(text: str, load_: float):
    assert load(text) == load_


# --- engines and tools ------------------------------------------------------------------------------------------


async def test_each_engine_that_is_named_has_an_answer(tmp_path: Path, stand_in: Path):
    broken = tmp_path / "broken"
    broken.write_text("#!/bin/sh\necho 'libgomp.so.1: cannot open shared object file' >&2; exit 127\n")
    broken.chmod(0o755)
    (tmp_path / "data").touch()
    environment = {"PATH": os.environ["PATH"]}
    for path, problem in (
        (stand_in, ""),
        (broken, f"{broken} --version: exit status 127: libgomp.so.1: cannot open shared object file"),
        (tmp_path / "data", f"{tmp_path}/data may not be executed"),
        (tmp_path, f"{tmp_path} is no file"),
        (tmp_path / "none", f"{tmp_path}/none is not there"),
        (Path(shutil.which("true") or "/bin/true"), "--version: exit status 0"),
    ):
        found = (await probe({"llama.cpp": path}, environment))["llama.cpp"]
        assert problem in found.report.problem
        assert bool(found.report.problem) == bool(problem)
        assert found.report.by_hand
    assert (await probe({"llama.cpp": stand_in}, environment))["llama.cpp"].report.version == "b4711"


async def test_an_engine_that_nobody_here_can_run(tmp_path: Path):
    found = await probe({"vllm": tmp_path}, {})
    assert found["vllm"].report.problem == "this agent does not know how to run vllm; it knows llama.cpp"


def test_a_file_is_read_whatever_the_kernel_makes_of_large_reads_and_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    assert Root().text("proc/sys/kernel/osrelease") == os.uname().release
    os.mkfifo(tmp_path / "pipe")
    assert Root.recorded(tmp_path).text("pipe") == ""
    before = len(os.listdir("/proc/self/fd"))
    assert Root().text("etc") == ""
    assert len(os.listdir("/proc/self/fd")) == before
    (tmp_path / "long").write_bytes(b"x" * (MOST + 1))
    assert len(Root.recorded(tmp_path).text("long")) == MOST
