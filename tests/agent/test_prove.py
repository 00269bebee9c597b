"""An engine runs before it counts as installed: a real llama.cpp, and programs that fail in one way each."""

import asyncio
import filecmp
import os
import shutil
import signal
import sys
from pathlib import Path

import psutil
import pytest

from llmgw.agent.engines import prove as proving
from llmgw.agent.engines.layout import NoProgram
from llmgw.agent.engines.prove import NotProven, prove, recheck
from llmgw.core.inventory import Cpu, Gpu, GpuHolder, Inventory
from llmgw.core.units import GIB
from tests.agent.programs import Build, build, library

__all__ = ["build"]

GPUS = tuple(Gpu(index=number, uuid=f"GPU-{number}", name="NVIDIA L4", driver="580.65.06") for number in range(2))


def node(*gpus: Gpu, **more: object) -> Inventory:
    cpu = Cpu(cores=2, model="AMD EPYC", features=("avx", "avx2"))
    return Inventory(os="Debian", kernel="6.1", arch="x86_64", cpu=cpu, memory=GIB, gpus=gpus, **more)  # type: ignore[arg-type]


async def proven(tree: Path, variant: str = "cpu", inventory: Inventory | None = None, **more: object):
    told = list[str]()
    options = {"gpus_free": False, "load_limit": 30.0, **more}
    found = await prove(
        "llama.cpp",
        tree,
        variant=variant,
        inventory=inventory or node(),
        tell=told.append,
        **options,  # type: ignore[arg-type]
    )
    return found, told


async def refusal(tree: Path, variant: str = "cpu", inventory: Inventory | None = None, **more: object) -> str:
    with pytest.raises(NotProven) as bad:
        await proven(tree, variant, inventory, **more)
    assert "\n" not in str(bad.value) and not str(bad.value).endswith(".")
    return str(bad.value)


def tree_of(tmp_path: Path, engine: Path) -> Path:
    place = tmp_path / "made" / "tree" / "llama-b11057"
    place.mkdir(parents=True)
    shutil.copy(engine, place / "llama-server")
    return place.parent


def left(tree: Path) -> list[str]:
    """What runs of the tree, and what stands beside it."""
    running = [one.info["cmdline"] for one in psutil.process_iter(["cmdline"])]
    beside = [path.name for path in tree.parent.iterdir() if path != tree]
    return [" ".join(line) for line in running if line and str(tree) in " ".join(line)] + beside


async def test_a_real_llama_cpp_is_proven_and_nothing_of_it_stays(tmp_path: Path, engine: Path):
    tree = tree_of(tmp_path, engine)
    found, told = await proven(tree)
    assert found.program == tree / "llama-b11057" / "llama-server"
    assert found.version.startswith("b") and {"-m", "--port", "-ngl"} <= found.flags and found.note == ""
    assert told == ["its version", "its devices", "a small model"]
    assert left(tree) == []
    await recheck("llama.cpp", tree, "cpu")


async def test_a_gpu_build_is_run_on_one_gpu_that_nobody_uses(tmp_path: Path, engine: Path):
    tree = tree_of(tmp_path, engine)
    program, log = tree / "llama-b11057" / "llama-server", tmp_path / "log"
    # The list is a fake, since this machine has no GPU; whatever else is asked goes to the real engine.
    program.write_text(
        f'#!/bin/sh\necho "$CUDA_VISIBLE_DEVICES $*" >>{log}\n[ "$1" = --list-devices ] || exec {engine} "$@"\n'
        "echo 'Available devices:'\n"
        + "".join(f"echo '  CUDA{number}: NVIDIA L4 (23034 MiB, 22514 MiB free)'\n" for number in range(2))
    )
    held = node(*GPUS, gpu_holders=(GpuHolder(gpu="GPU-0", pid=1),))
    found, told = await proven(tree, "cuda 13.3", held, gpus_free=True)
    assert found.note == "" and told[-1] == "a small model on a GPU"
    loads = [line for line in log.read_text().splitlines() if " -m " in line]
    assert ["-ngl 0" in loads[0], "-ngl 99" in loads[1]] == [True, True]
    assert not loads[0].startswith("GPU") and loads[1].startswith("GPU-1 ")


async def test_on_gpus_that_are_in_use_it_runs_on_the_cpu_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    trial = proving._Trial(tmp_path / "llama-server", {}, tmp_path, node(*GPUS))
    note = await proving._on_gpu(trial, frozenset(), "cuda 13.3", gpus_free=False, tell=print)
    assert note == "not run on a GPU: none is free"


async def test_an_illegal_instruction_is_named_with_the_cpu(tmp_path: Path, build: Build):
    tree = tree_of(tmp_path, build(tmp_path / "engine", "sigill"))
    assert await refusal(tree) == (
        "llama-server did not serve a small model on the CPU: it died by an illegal instruction (SIGILL): the CPU (AMD "
        "EPYC: avx avx2) lacks what this build needs, or a VM hides it; give the VM the host's CPU type, or take "
        "another build; it said last: AMX is not ready to be used!"
    )
    await recheck("llama.cpp", tree, "cpu")  # which does not compute


async def test_a_program_that_hangs_is_ended_with_its_children(tmp_path: Path, build: Build):
    tree = tree_of(tmp_path, build(tmp_path / "engine", "hang"))
    words = await refusal(tree, load_limit=0.3)
    assert "it had not loaded it after 0.3s; it said last: AMX is not ready to be used!" in words
    assert left(tree) == []


async def test_a_proof_that_is_given_up_leaves_nothing(tmp_path: Path):
    tree = tree_of(tmp_path, Path("/bin/echo"))
    begun = tmp_path / "begun"
    os.mkfifo(begun)
    (tree / "llama-b11057" / "llama-server").write_text(f"#!/bin/sh\necho begun >{begun}\nsleep 600 & sleep 600\n")
    proof = asyncio.create_task(proven(tree))
    assert await asyncio.to_thread(begun.read_text) == "begun\n"
    proof.cancel()
    with pytest.raises(asyncio.CancelledError):
        await proof
    assert left(tree) == []


async def test_a_port_that_another_takes_meanwhile_is_not_the_engine_s_fault(
    tmp_path: Path, build: Build, monkeypatch: pytest.MonkeyPatch
):
    ports = iter([1, 2, 3])
    monkeypatch.setattr(proving, "_free_port", lambda: next(ports))
    tree = tree_of(tmp_path, build(tmp_path / "engine", "bind"))
    assert "it said last: AMX is not ready to be used! / couldn't bind HTTP server socket" in await refusal(tree)
    assert list(ports) == []


async def test_a_program_that_ends_is_told_with_its_status(tmp_path: Path, build: Build):
    tree = tree_of(tmp_path, build(tmp_path / "engine", "exit"))
    assert "it ended with exit status 3; it said last: AMX is not ready" in await refusal(tree)


async def test_too_few_devices_are_told_by_name(tmp_path: Path, build: Build):
    tree = tree_of(tmp_path, build(tmp_path / "engine", "exit"))
    assert await refusal(tree, "cuda 13.3", node(*GPUS)) == (
        "llama-server --list-devices names 1 of 2 devices for cuda; it misses 1 × NVIDIA L4; does the driver match its "
        "libraries, and may the agent use /dev/nvidia*?"
    )


async def test_recorded_gpus_are_not_looked_for(tmp_path: Path, build: Build):
    tree = tree_of(tmp_path, build(tmp_path / "engine", "exit"))
    assert "exit status 3" in await refusal(tree, "cuda 13.3", node(*GPUS, recorded="/machines/big"))


async def test_a_program_that_does_not_start_is_told_by_its_loader(tmp_path: Path, build: Build):
    gone = library(tmp_path / "libgone.so.1")
    tree = tree_of(tmp_path, build(tmp_path / "engine", "exit", gone))
    gone.unlink()
    with pytest.raises(NotProven) as bad:
        await recheck("llama.cpp", tree, "cpu")
    assert str(bad.value) == "libgone.so.1 is missing, which llama-b11057/llama-server needs"
    words = await refusal(tree)
    assert "--version failed: it ended with exit status 127" in words and "libgone.so.1: cannot open" in words


async def test_a_program_that_prints_something_else_is_no_llama_cpp(tmp_path: Path):
    tree = tree_of(tmp_path, Path("/bin/echo"))
    assert "names no version: exit status 0: echo (GNU" in await refusal(tree)


async def test_links_that_lead_nowhere_and_a_missing_program_are_told(tmp_path: Path):
    tree = tree_of(tmp_path, Path("/bin/echo"))
    (tree / "llama-b11057" / "libggml.so").symlink_to("llama-b9165ibggml.so.0")
    words = "1 of its links lead nowhere: llama-b11057/libggml.so -> llama-b9165ibggml.so.0"
    assert await refusal(tree) == words
    with pytest.raises(NotProven, match="1 of its links lead nowhere"):
        await recheck("llama.cpp", tree, "cpu")
    shutil.rmtree(tree / "llama-b11057")
    with pytest.raises(NoProgram):
        await proven(tree)


def test_every_word_for_a_signal_is_one():
    assert proving._signal(signal.SIGKILL) == "SIGKILL" and proving._signal(63) == "signal 63"


def test_the_model_that_ships_is_what_its_script_makes(tmp_path: Path):
    tools = str(Path(__file__).parents[2] / "tools")
    sys.path.insert(0, tools)
    try:
        import proof_model
    finally:
        sys.path.remove(tools)
    proof_model.main(tmp_path / "proof.gguf")
    assert filecmp.cmp(tmp_path / "proof.gguf", proving.MODEL, shallow=False)
    assert os.stat(proving.MODEL).st_size < 300_000
