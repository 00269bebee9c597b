"""When a node was last looked at, and when that is told."""

import asyncio
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from llmgw.agent import survey as survey_module
from llmgw.agent.discovery import certificate
from llmgw.agent.discovery.inventory import Look
from llmgw.agent.discovery.root import Root
from llmgw.agent.engines import probe as probe_module
from llmgw.agent.news import News
from llmgw.agent.survey import TELL_EVERY, Survey
from llmgw.config.load import load_agent
from llmgw.config.tls import TlsFiles
from llmgw.core.units import GIB, Bytes
from tests.agent.test_main import config


class Clock:
    now_ = 1_000_000.0

    def now(self) -> float:
        return self.now_


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(survey_module, "clock", clock)
    return clock


@pytest.fixture
def news() -> News:
    return News()


@pytest.fixture
def survey(tmp_path: Path, tls: Callable[..., TlsFiles], stand_in: Path, news: News) -> Survey:
    engines = f"{{llama.cpp: {tmp_path}/engine}}"
    (tmp_path / "engine").symlink_to(stand_in)
    return Survey(load_agent(config(tmp_path, tls("node01"), engines=engines)), news)


@pytest.fixture
def recorded(tmp_path: Path, tls: Callable[..., TlsFiles], news: News) -> Survey:
    """Of a machine whose memory can be changed by `give`."""
    give(tmp_path, 8 * GIB)
    return Survey(load_agent(config(tmp_path, tls("node01"), discovery_root="machine")), news)


def give(home: Path, total: int, available: int | None = None) -> None:
    """Let the machine have so much memory; all at once, as the kernel would."""
    (home / "machine/proc").mkdir(parents=True, exist_ok=True)
    (home / "machine/sys/class/net").mkdir(parents=True, exist_ok=True)
    fresh = home / "machine/proc/fresh"
    fresh.write_text(f"MemTotal: {total >> 10} kB\nMemAvailable: {(available or total) >> 10} kB\n")
    fresh.replace(home / "machine/proc/meminfo")


async def look(survey: Survey) -> None:
    """At the machine and its engines, as both are looked at each minute."""
    await survey.look()
    await survey.probe()


async def test_every_probe_has_its_time_and_is_told_with_what_else_is_new(survey: Survey, clock: Clock, news: News):
    """A minute's look that found nothing new is no news for a thousand nodes' control plane."""
    await look(survey)
    told = news.count
    assert told > 0
    clock.now_ += 60
    await look(survey)
    assert news.count == told
    assert survey.engines is not None and survey.engines.probed_at == clock.now_


async def test_a_node_on_which_nothing_changes_is_told_every_ten_minutes(survey: Survey, clock: Clock, news: News):
    await look(survey)
    told = news.count
    clock.now_ += TELL_EVERY - 1
    await look(survey)
    assert news.count == told
    clock.now_ += 1
    await look(survey)
    assert news.count == told + 1
    clock.now_ += TELL_EVERY - 1
    await look(survey)
    assert news.count == told + 1


async def test_an_engine_that_breaks_is_told_at_once(survey: Survey, clock: Clock, news: News, tmp_path: Path):
    await look(survey)
    told = news.count
    (tmp_path / "engine").unlink()
    await look(survey)
    assert news.count == told + 1
    assert survey.engines is not None and survey.engines.engines[0].problem


async def test_a_machine_that_cannot_be_looked_at_is_looked_at_again(survey: Survey, monkeypatch: pytest.MonkeyPatch):
    seen = survey_module.look

    async def fails(*_: object, **__: object) -> Look:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(survey_module, "look", fails)
    await survey.look()
    assert not survey.described.is_set()
    monkeypatch.setattr(survey_module, "look", seen)
    await survey.look()
    assert survey.described.is_set()


# --- memory, at each heartbeat ----------------------------------------------------------------------------------


async def test_another_amount_of_memory_at_a_heartbeat_is_told_without_waiting_for_the_minute(
    recorded: Survey, news: News, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(survey_module, "MEMORY_EVERY", 0.1)
    task = asyncio.create_task(recorded.run())
    try:
        async with asyncio.timeout(20):
            await recorded.described.wait()
            await recorded.probed.wait()
        assert recorded.inventory is not None and recorded.inventory.memory == 8 * GIB
        for total in (16 * GIB, 4 * GIB):
            seen = news.count
            give(tmp_path, total)
            assert recorded.usage().memory_available == total
            async with asyncio.timeout(20):
                await news.after(seen)
            assert recorded.inventory.memory == total
    finally:
        task.cancel()


async def test_memory_that_flaps_with_each_heartbeat_is_looked_at_now_and_then_and_its_last_amount_is_told(
    recorded: Survey, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """How fast heartbeats follow each other does not matter: how far apart the looks are is compared."""
    every, at, seen = 1.0, list[float](), survey_module.look
    loop = asyncio.get_running_loop()

    async def counted(*args: Any, **more: Any) -> Look:
        at.append(loop.time())
        return await seen(*args, **more)

    monkeypatch.setattr(survey_module, "MEMORY_EVERY", every)
    monkeypatch.setattr(survey_module, "look", counted)
    task = asyncio.create_task(recorded.run())
    try:
        async with asyncio.timeout(30):
            await recorded.described.wait()
            until = loop.time() + 2.5 * every
            while loop.time() < until:  # as heartbeats do, each with another amount
                give(tmp_path, (4 if recorded._ram and recorded._ram.total == 8 * GIB else 8) * GIB)
                recorded.usage()
                await asyncio.sleep(0.01)
            give(tmp_path, 2 * GIB)
            while recorded.inventory is None or recorded.inventory.memory != 2 * GIB:
                recorded.usage()
                await asyncio.sleep(0.01)
    finally:
        task.cancel()
    first, once, *more = at
    assert once - first < every, "the first change is looked at at once"
    assert all(later - sooner >= every for sooner, later in pairwise([once, *more]))


async def test_memory_that_wobbles_is_no_reason_for_a_look_and_told_with_the_next(
    recorded: Survey, news: News, tmp_path: Path
):
    await recorded.look()
    told = news.count
    give(tmp_path, 8 * GIB - (8 << 20))
    recorded.usage()
    assert not recorded._other_ram.is_set()
    await recorded.look()
    assert news.count == told + 1
    assert recorded.inventory is not None and recorded.inventory.memory == 8 * GIB - (8 << 20)


async def test_a_heartbeat_repeats_what_the_kernel_does_not_say_in_this_moment(
    recorded: Survey, tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    await recorded.look()
    give(tmp_path, 8 * GIB, 3 * GIB)
    before = recorded.usage()
    assert before.memory_available == 3 * GIB
    (tmp_path / "machine/proc/meminfo").rename(tmp_path / "kept")
    with caplog.at_level("INFO", "llmgw.agent.survey"):
        assert recorded.usage() == before
        assert recorded.usage() == before
        (tmp_path / "kept").rename(tmp_path / "machine/proc/meminfo")
        recorded.usage()
    assert [record.getMessage() for record in caplog.records] == [
        f"heartbeats repeat the last usage: {tmp_path}/machine/proc/meminfo: does not say how much memory there is; "
        "tried again",
        "heartbeats repeat the last usage: in order again",
    ]


# --- what hangs -------------------------------------------------------------------------------------------------


class Hanging:
    """Lets reads of files with a word in their names hang, as a driver does in the kernel: no driver hangs here."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.word, self.read, self.let_go = "", list[str](), threading.Event()
        text, names = Root.text, Root.names
        monkeypatch.setattr(Root, "text", lambda root, name: self._wait(name) or text(root, name))
        monkeypatch.setattr(Root, "names", lambda root, name: self._wait(name) or names(root, name))

    def _wait(self, name: str) -> None:
        if self.word and self.word in name and not self.let_go.is_set():
            self.read.append(name)
            self.let_go.wait(60)


@pytest.fixture
def hanging(monkeypatch: pytest.MonkeyPatch) -> Iterator[Hanging]:
    hanging = Hanging(monkeypatch)
    yield hanging
    hanging.let_go.set()
    for thread in threading.enumerate():
        if thread.name.startswith("once"):
            thread.join(10)


SILENT = "did not answer within 1s"


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(survey_module, "look", partial(survey_module.look, limit=1.0))


@pytest.mark.usefixtures("short")
async def test_files_of_adapters_that_hang_are_a_problem_and_are_asked_once(
    recorded: Survey, hanging: Hanging, tmp_path: Path
):
    (tmp_path / "machine/sys/class/infiniband/mlx5_0/ports/1").mkdir(parents=True)
    hanging.word = "mlx5_0/ports"
    for _ in range(3):
        await recorded.look()
        assert recorded.inventory is not None
        assert recorded.inventory.adapter_problem == f"/sys/class/infiniband {SILENT}"
    assert len(hanging.read) == 1
    hanging.let_go.set()
    await ended("adapters")
    await recorded.look()
    assert [port.name for port in recorded.inventory.adapters] == ["mlx5_0"]
    assert recorded.inventory.adapter_problem == ""


@pytest.mark.usefixtures("short")
async def test_files_of_the_machine_that_hang_leave_what_is_known_and_are_told(
    recorded: Survey, hanging: Hanging, tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    (tmp_path / "machine/etc").mkdir()
    (tmp_path / "machine/etc/os-release").write_text("NAME=Plan9\n")
    await recorded.look()
    before = recorded.inventory
    assert before is not None and before.os == "Plan9"
    hanging.word = "os-release"
    give(tmp_path, 4 * GIB)
    for _ in range(3):
        await recorded.look()
    told = f"the files of the kernel and the system {SILENT}"
    found = recorded.inventory
    assert found is not None
    assert found == replace(before, memory=Bytes(4 * GIB), machine_problem=told, disks=found.disks)
    assert len(hanging.read) == 1
    assert [record.getMessage() for record in caplog.records] == [f"machine: {told}"]


@pytest.mark.usefixtures("short")
async def test_a_machine_whose_files_hang_from_the_start_is_described_without_them(recorded: Survey, hanging: Hanging):
    hanging.word = "cpuinfo"
    await recorded.look()
    found = recorded.inventory
    assert found is not None and (found.memory, found.os, found.cpu.cores) == (8 * GIB, "Linux", 0)
    assert found.machine_problem == f"the files of the kernel and the system {SILENT}"


@pytest.mark.usefixtures("short")
async def test_files_of_the_bus_that_hang_are_a_problem_of_gpus_and_adapters(recorded: Survey, hanging: Hanging):
    hanging.word = "sys/bus/pci"
    await recorded.look()
    found = recorded.inventory
    assert found is not None and SILENT in found.gpu_problem and SILENT in found.adapter_problem


@pytest.mark.usefixtures("short")
async def test_a_certificate_on_storage_that_hangs_ends_when_it_was_to_end(
    survey: Survey, monkeypatch: pytest.MonkeyPatch, hanging: Hanging
):
    await survey.look()
    assert survey.inventory is not None and survey.inventory.certificate_ends is not None
    before, let_go = survey.inventory, threading.Event()
    monkeypatch.setattr(certificate, "ends", lambda _: let_go.wait(60))
    try:
        await survey.look()
    finally:
        let_go.set()
        await ended("certificate")
    assert survey.inventory.certificate_ends == before.certificate_ends
    assert survey.inventory.machine_problem.endswith(f"node01.crt {SILENT}")


async def test_engines_are_probed_while_the_machine_does_not_answer(
    survey: Survey, monkeypatch: pytest.MonkeyPatch, hanging: Hanging
):
    again, left, real = asyncio.Event(), [2], survey_module.probe

    async def counted(*asked: Any) -> Any:
        left[0] -= 1
        if left[0] <= 0:
            again.set()
        return await real(*asked)

    monkeypatch.setattr(survey_module, "probe", counted)
    monkeypatch.setattr(survey_module, "EVERY", 0.01)
    hanging.word = "meminfo"
    task = asyncio.create_task(survey.run())
    try:
        async with asyncio.timeout(20):
            await again.wait()
        assert not survey.described.is_set()
    finally:
        task.cancel()


async def test_an_engine_on_storage_that_hangs_is_a_problem(survey: Survey, monkeypatch: pytest.MonkeyPatch):
    let_go = threading.Event()
    monkeypatch.setattr(probe_module, "TIMEOUT", 1.0)
    monkeypatch.setattr(probe_module, "obstacle", lambda _: let_go.wait(60) and None)
    try:
        await survey.probe()
    finally:
        let_go.set()
        await ended("engine")
    assert survey.engines is not None
    assert survey.engines.engines[0].problem.endswith(f"/engine {SILENT}")


async def ended(what: str) -> None:
    """Wait until nobody asks for it any more."""
    for thread in threading.enumerate():
        if thread.name.startswith("once") and what in thread.name:
            await asyncio.to_thread(thread.join, 10)


async def test_labels_of_agent_yaml_are_part_of_the_description(tmp_path: Path, tls: Callable[..., TlsFiles]):
    give(tmp_path, 8 * GIB)
    more = {"labels": "{zone: b, gpus: 8}", "discovery_root": "machine"}
    labelled = Survey(load_agent(config(tmp_path, tls("node01"), **more)), News())
    await labelled.look()
    assert labelled.inventory is not None and labelled.inventory.labels == ("gpus=8", "zone=b")
