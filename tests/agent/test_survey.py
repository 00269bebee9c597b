"""When a node was last looked at, and when that is told."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from llmgw.agent import survey as survey_module
from llmgw.agent.discovery.inventory import Look
from llmgw.agent.news import News
from llmgw.agent.survey import TELL_EVERY, Survey
from llmgw.config.load import load_agent
from llmgw.config.tls import TlsFiles
from llmgw.core.units import GIB
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


async def test_every_probe_has_its_time_and_is_told_with_what_else_is_new(survey: Survey, clock: Clock, news: News):
    """A minute's look that found nothing new is no news for a thousand nodes' control plane."""
    await survey.look()
    told = news.count
    assert told > 0
    clock.now_ += 60
    await survey.look()
    assert news.count == told
    assert survey.engines is not None and survey.engines.probed_at == clock.now_


async def test_a_node_on_which_nothing_changes_is_told_every_ten_minutes(survey: Survey, clock: Clock, news: News):
    await survey.look()
    told = news.count
    clock.now_ += TELL_EVERY - 1
    await survey.look()
    assert news.count == told
    clock.now_ += 1
    await survey.look()
    assert news.count == told + 1
    clock.now_ += TELL_EVERY - 1
    await survey.look()
    assert news.count == told + 1


async def test_an_engine_that_breaks_is_told_at_once(survey: Survey, clock: Clock, news: News, tmp_path: Path):
    await survey.look()
    told = news.count
    (tmp_path / "engine").unlink()
    await survey.look()
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
    recorded: Survey, news: News, tmp_path: Path
):
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
