"""What a node finds out about itself."""

import asyncio
import os
import shutil
from pathlib import Path

import pytest

from llmgw.agent.discovery import gpu, memory
from llmgw.agent.discovery.address import address_towards
from llmgw.agent.discovery.cpu import cpu
from llmgw.agent.discovery.inventory import inventory, usage
from llmgw.agent.engines.probe import probe
from llmgw.agent.launch import pids
from llmgw.agent.run import run
from llmgw.config.load import load_agent
from llmgw.core.units import GIB, MIB

# --- GPUs -------------------------------------------------------------------------------------------------------


def tool(directory: Path, script: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Put an `nvidia-smi` of our own first on PATH."""
    path = directory / "nvidia-smi"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    monkeypatch.setenv("PATH", f"{directory}:{os.environ['PATH']}")


async def test_a_gpu_as_its_tool_lists_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    tool(tmp_path, "echo '0, GPU-aa, NVIDIA GeForce RTX 4090, 24564, 550.54.14'", monkeypatch)
    (found,), problem = await gpu.gpus()
    assert (found.index, found.uuid, found.name, found.driver) == (0, "GPU-aa", "NVIDIA GeForce RTX 4090", "550.54.14")
    assert (found.memory, problem) == (24564 * MIB, "")


async def test_a_tool_that_fails_is_a_problem_in_its_own_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Which stream carries the words differs; an empty list would read as "no GPUs"."""
    tool(tmp_path, "echo 'NVIDIA-SMI has failed because it could not talk to the driver.'; exit 9", monkeypatch)
    found, problem = await gpu.gpus()
    assert found == ()
    assert problem == "nvidia-smi: exit status 9: NVIDIA-SMI has failed because it could not talk to the driver."


async def test_a_tool_that_hangs_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(gpu, "TIMEOUT", 0.2)
    tool(tmp_path, "exec sleep 60", monkeypatch)
    _, problem = await gpu.gpus()
    assert problem == "nvidia-smi: did not end within 0s"


def test_unified_memory_is_not_said():
    (found,), problem = gpu.parse("0, GPU-e69d, NVIDIA GB10, [N/A], 580.178.04\n")
    assert (found.memory, problem) == (None, "")


def test_a_name_with_commas_and_a_missing_uuid():
    (found,), _ = gpu.parse("3, [N/A], A, B, C, 8, [Unknown Error]\n")
    assert (found.index, found.uuid, found.name, found.memory, found.driver) == (3, "", "A, B, C", 8 * MIB, "")


def test_no_devices_is_no_problem():
    assert gpu.parse("No devices were found\n") == ((), "")


@pytest.mark.parametrize("text", ["0, GPU\n", "x, GPU-a, n, 1, d\n", "99999, GPU-a, n, 1, d\n"])
def test_an_answer_that_is_no_list_is_a_problem(text: str):
    assert "which is no GPU" in gpu.parse(text)[1]


# --- processor and memory ---------------------------------------------------------------------------------------


def test_a_processor_of_either_kind():
    x86 = cpu("processor\t: 0\nmodel name\t: AMD EPYC\nflags\t\t: fpu avx2 avx sse4_2 ht f16c\n\nmodel name: other\n")
    assert (x86.model, x86.features) == ("AMD EPYC", ("avx", "avx2", "f16c", "sse4_2"))
    arm = cpu("processor : 0\nFeatures : fp asimd sve i8mm bf16 crc32\n")
    assert (arm.model, arm.features) == ("", ("asimd", "bf16", "i8mm", "sve"))
    assert cpu("").cores == len(os.sched_getaffinity(0))


def test_the_tightest_limit_around_us_counts(tmp_path: Path):
    inner = tmp_path / "a.slice" / "b.service"
    inner.mkdir(parents=True)
    (inner / "memory.max").write_text("max\n")
    (tmp_path / "a.slice" / "memory.max").write_text(f"{GIB}\n")
    assert memory.cgroup_limit("0::/a.slice/b.service\n", tmp_path) == GIB
    assert memory.cgroup_limit("0::/\n", tmp_path) is None


def test_a_limit_of_the_first_hierarchy(tmp_path: Path):
    (tmp_path / "memory" / "x").mkdir(parents=True)
    (tmp_path / "memory" / "x" / "memory.limit_in_bytes").write_text(f"{2 * GIB}\n")
    (tmp_path / "memory" / "memory.limit_in_bytes").write_text("9223372036854771712\n")
    assert memory.cgroup_limit("4:memory:/x\n0::/\n", tmp_path) == 2 * GIB


# --- the machine ------------------------------------------------------------------------------------------------


async def test_the_address_is_the_one_on_the_route():
    assert await address_towards("127.0.0.1", 7443) == "127.0.0.1"
    assert await address_towards("no-such-host.invalid", 7443) is None


async def test_what_the_file_says_wins_and_is_listed(tmp_path: Path, tls):
    files = tls("node01")
    (tmp_path / "agent.yaml").write_text(
        f"control: [127.0.0.1:7443]\ntls: {{certificate: {files.certificate}, key: {files.key}, "
        f"authority: {files.authority}}}\nnode: node01\nmemory: 3GiB\n"
    )
    found = await inventory(load_agent(tmp_path / "agent.yaml"))
    assert (found.memory, found.by_hand) == (3 * GIB, ("memory",))
    assert found.arch == os.uname().machine
    assert found.cpu.cores > 0
    assert usage().memory_available > 0


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


async def test_a_tool_with_endless_output_is_bounded():
    ran = await run(["/bin/sh", "-c", "head -c 5000000 /dev/zero"], timeout=10)
    assert ran.ok
    assert len(ran.out) == 1 << 20


async def test_what_a_tool_leaves_behind_is_ended_with_it(tmp_path: Path):
    ran = await run(["/bin/sh", "-c", f"sleep 987 & echo $! >{tmp_path}/pid; wait"], timeout=0.5)
    assert ran.status is None
    pid = int((tmp_path / "pid").read_text())
    if (started := pids.started_at(pid)) is not None:
        async with asyncio.timeout(5):
            await pids.gone(pid, started)
