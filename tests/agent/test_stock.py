"""Which engines a node is said to have, and which of them a shard is started with."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from llmgw.agent.engines.stock import Stock
from llmgw.agent.news import News
from llmgw.agent.survey import Survey
from llmgw.config.load import load_agent
from llmgw.config.tls import TlsFiles
from llmgw.core.engines.installing import Made
from tests.agent.test_main import config


def made(version: str, variant: str = "cpu", name: str = "") -> Made:
    return Made(
        engine="llama.cpp",
        version=version,
        variant=variant,
        release="r",
        digests=("d",),
        name=name or f"{version}-{variant}",
        program="tree/llama-server",
        flags=("-m",),
        at=1.0,
    )


def put(stock: Stock, version: str, problem: str = "") -> None:
    one = made(version)
    stock.put(one, Path("/engines") / one.name, {"LD_LIBRARY_PATH": "/x"}, checked_at=2.0)
    if problem:
        stock.saw(one, problem, 3.0)


@pytest.fixture
def survey(tmp_path: Path, tls: Callable[..., TlsFiles], stand_in: Path) -> Survey:
    engines = f"{{llama.cpp: {stand_in}}}"
    return Survey(load_agent(config(tmp_path, tls("node01"), engines=engines)), News(), stock=Stock())


@pytest.fixture
def bare(tmp_path: Path, tls: Callable[..., TlsFiles]) -> Survey:
    """Of a node whose agent.yaml names no engine."""
    return Survey(load_agent(config(tmp_path, tls("node01"))), News(), stock=Stock())


async def test_engines_are_said_once_both_kinds_were_looked_at(survey: Survey):
    put(survey.stock, "b10991")
    await survey.probe()
    assert survey.engines is None and not survey.probed.is_set()
    survey.stock.inspected.set()
    await survey.probe()
    assert survey.engines is not None
    assert [(one.version, one.by_hand) for one in survey.engines.engines] == [("b10991", False), ("b4711", True)]


async def test_what_is_named_by_hand_stands_for_the_installed_one_of_its_version(survey: Survey):
    survey.stock.inspected.set()
    put(survey.stock, "b4711")
    await survey.probe()
    assert survey.engines is not None
    assert [(one.version, one.by_hand) for one in survey.engines.engines] == [("b4711", True)]


async def test_an_engine_that_comes_or_breaks_is_told_without_waiting_for_the_minute(bare: Survey):
    bare.stock.inspected.set()
    task = asyncio.create_task(bare.run())
    try:
        async with asyncio.timeout(10):
            await bare.probed.wait()
            for problem in ("", "libgomp.so.1 is missing", ""):
                seen = bare._news.count
                put(bare.stock, "b1", problem)
                while not (bare.engines and [one.problem for one in bare.engines.engines] == [problem]):
                    await bare._news.after(seen)
                    seen = bare._news.count
    finally:
        task.cancel()


async def test_a_shard_gets_the_version_it_names_or_what_is_there_by_hand(survey: Survey):
    survey.stock.inspected.set()
    put(survey.stock, "b10991")
    await survey.probe()
    named, by_hand = survey.engine("llama.cpp", "b10991"), survey.engine("llama.cpp")
    assert named is not None and named.report.path == "/engines/b10991-cpu/tree/llama-server"
    assert (named.directory, named.environment) == ("/engines/b10991-cpu", {"LD_LIBRARY_PATH": "/x"})
    assert by_hand is not None and by_hand.report.by_hand and by_hand.directory == ""
    other = survey.engine("llama.cpp", "b1")
    assert other is not None and other.report.by_hand, "so that the refusal can say what is here"
    assert survey.engine("vllm") is None


def test_without_a_version_it_is_the_newest_that_is_whole(bare: Survey):
    put(bare.stock, "b9999")
    put(bare.stock, "b10991")
    put(bare.stock, "b11000", "broken")
    assert (found := bare.engine("llama.cpp")) is not None and found.report.version == "b10991"


def test_an_engine_that_was_not_looked_at_in_this_life_is_none(bare: Survey):
    one = made("b1")
    bare.stock.put(one, Path("/engines/b1-cpu"), {}, checked_at=None)
    assert bare.engine("llama.cpp") is None
    bare.stock.saw(one, "libx.so is missing", 5.0)
    assert (found := bare.engine("llama.cpp")) is not None and found.report.problem == "libx.so is missing"
    (seen,) = bare.stock.seen()
    assert (seen.checked_at, seen.since) == (one.at, 5.0), "it was whole when it was made"


async def test_a_shard_does_not_wait_for_the_look_at_other_engines(survey: Survey):
    """After a power cut one engine takes a minute to say its version, and another is whole at once."""
    mine = asyncio.create_task(survey.settled("llama.cpp", "b1"))
    other = asyncio.create_task(survey.settled("llama.cpp", "b2"))
    async with asyncio.timeout(10):
        put(survey.stock, "b1")
        await mine
        assert not other.done() and not survey.probed.is_set()
        survey.stock.inspected.set()
        await survey.probe()
        await other
