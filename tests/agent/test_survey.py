"""When a node was last looked at, and when that is told."""

from pathlib import Path

import pytest

from llmgw.agent import survey as survey_module
from llmgw.agent.news import News
from llmgw.agent.survey import TELL_EVERY, Survey
from llmgw.config.load import load_agent
from llmgw.core.facts import Inventory
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
def survey(tmp_path: Path, tls, stand_in: Path, news: News) -> Survey:
    engines = f"{{llama.cpp: {tmp_path}/engine}}"
    (tmp_path / "engine").symlink_to(stand_in)
    return Survey(load_agent(config(tmp_path, tls("node01"), engines=engines)), news)


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
    seen = survey_module.inventory

    async def fails(_: object) -> Inventory:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(survey_module, "inventory", fails)
    await survey.look()
    assert not survey.described.is_set()
    monkeypatch.setattr(survey_module, "inventory", seen)
    await survey.look()
    assert survey.described.is_set()
