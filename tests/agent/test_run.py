"""Tools that end, hang, and leave others behind."""

import asyncio
import os
import shutil
import signal
import threading
from pathlib import Path

import psutil
import pytest

from llmgw.agent import run as run_module
from llmgw.agent.engines.probe import probe
from llmgw.agent.launch import pids
from llmgw.agent.run import run

LEAVES = "echo answer; /bin/sleep {seconds} & echo $! >>{pids}"
"""Its child holds its pipes, as one does that is started in the background without a redirection."""


def numbers(file: Path) -> list[int]:
    return [int(word) for word in file.read_text().split()]


async def all_gone(file: Path) -> int:
    """Wait until every process that is named in `file` is gone; returns how many there are."""
    named = numbers(file)
    async with asyncio.timeout(5):
        for pid in named:
            if (started := pids.started_at(pid)) is not None:
                await pids.gone(pid, started)
    return len(named)


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def children() -> set[int]:
    """By their parent, not by the list that each thread keeps: a thread may end while they are read."""
    return {child.pid for child in psutil.Process().children()}


async def test_a_tool_that_leaves_a_child_with_its_pipes_is_heard_and_nothing_of_it_stays(tmp_path: Path):
    await run(["/bin/true"], timeout=5)
    before, own = descriptors(), children()
    script = LEAVES.format(seconds=777, pids=tmp_path / "pids")
    for _ in range(5):
        ran = await run(["/bin/sh", "-c", script], timeout=5)
        assert (ran.status, ran.out, ran.problem) == (0, "answer\n", "")
    assert await all_gone(tmp_path / "pids") == 5
    assert descriptors() == before
    assert children() == own


async def test_a_child_that_holds_no_pipe_is_ended_too(tmp_path: Path):
    script = f"/bin/sleep 778 >/dev/null 2>&1 & echo $! >>{tmp_path}/pids; exit 3"
    assert (await run(["/bin/sh", "-c", script], timeout=5)).status == 3
    assert await all_gone(tmp_path / "pids") == 1


@pytest.mark.parametrize("rest", ["wait", "exec /bin/sleep 780"])
async def test_a_tool_that_does_not_end_is_killed_with_its_children_and_leaves_no_descriptor(tmp_path: Path, rest: str):
    await run(["/bin/true"], timeout=5)
    before, own = descriptors(), children()
    script = LEAVES.format(seconds=779, pids=tmp_path / "pids") + f"; {rest}"
    for _ in range(3):
        ran = await run(["/bin/sh", "-c", script], timeout=0.3)
        assert (ran.status, ran.problem) == (None, "did not end within 0s")
    assert await all_gone(tmp_path / "pids") == 3
    assert descriptors() == before
    assert children() == own


async def test_a_run_that_is_given_up_leaves_nothing(tmp_path: Path):
    before, own = descriptors(), children()
    os.mkfifo(tmp_path / "started")
    ready = os.open(tmp_path / "started", os.O_RDONLY | os.O_NONBLOCK)
    heard = asyncio.Event()
    asyncio.get_running_loop().add_reader(ready, heard.set)
    script = LEAVES.format(seconds=781, pids=tmp_path / "pids") + f"; echo >{tmp_path}/started; wait"
    task = asyncio.create_task(run(["/bin/sh", "-c", script], timeout=60))
    async with asyncio.timeout(10):
        await heard.wait()
    asyncio.get_running_loop().remove_reader(ready)
    os.close(ready)
    task.cancel()
    await asyncio.wait([task])
    assert task.cancelled()
    assert await all_gone(tmp_path / "pids") == 1
    assert descriptors() == before
    assert children() == own


async def test_a_program_that_the_kernel_holds_is_not_started_again_before_it_is_gone(monkeypatch: pytest.MonkeyPatch):
    """Nothing here hangs in the kernel, so one that is not killed stands for it."""
    argv, kept = ["/bin/sleep", "782"], list[int]()
    monkeypatch.setattr(os, "killpg", lambda group, _: kept.append(group))
    monkeypatch.setattr(run_module, "_DYING", 0.05)
    for _ in range(3):
        assert (await run(argv, timeout=0.05)).problem == "did not end within 0s"
    assert len(kept) == 1
    os.kill(kept[0], signal.SIGKILL)
    await asyncio.to_thread(run_module._left[tuple(argv)].wait)
    assert (await run(argv, timeout=0.05)).problem == "did not end within 0s"
    assert len(kept) == 2
    os.kill(kept[1], signal.SIGKILL)
    await asyncio.to_thread(run_module._left[tuple(argv)].wait)
    for thread in threading.enumerate():
        if thread.name.startswith("aside _await_end"):
            thread.join(10)


async def test_a_tool_with_endless_output_is_bounded():
    ran = await run(["/bin/sh", "-c", "head -c 5000000 /dev/zero"], timeout=10)
    assert ran.ok
    assert len(ran.out) == 1 << 20


async def test_what_both_outputs_say_is_kept_apart_and_whole():
    ran = await run(["/bin/sh", "-c", "head -c 200000 /dev/zero | tr '\\0' a; echo no >&2; kill -9 $$"], timeout=10)
    assert (len(ran.out), ran.err, ran.status) == (200000, "no\n", -9)
    assert (await run([str(shutil.which("false"))], timeout=10)).words() == "exit status 1 without a word"
    assert (await run(["/no/such/tool"], timeout=10)).problem == "cannot be started: no such file or directory"


async def test_an_engine_that_leaves_a_process_at_each_question_is_known_and_leaves_none(tmp_path: Path):
    engine = tmp_path / "engine"
    engine.write_text(f"#!/bin/sh\n/bin/sleep 889 & echo $! >>{tmp_path}/pids\necho 'version: 4711 (abc)'\n")
    engine.chmod(0o755)
    before, own = descriptors(), children()
    found = (await probe({"llama.cpp": engine}, {"PATH": os.environ["PATH"]}))["llama.cpp"]
    assert found.report.version == "b4711"
    assert await all_gone(tmp_path / "pids") == 2
    assert descriptors() == before
    assert children() == own
