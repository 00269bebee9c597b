"""What one agent may say at most."""

from dataclasses import replace

import pytest

from llmgw.core.errors import BadMessage
from llmgw.core.facts import EngineReport, Engines, Failure, FailureKind, Heartbeat, Report, Secret, ShardReport
from llmgw.core.inventory import Usage
from llmgw.core.names import ShardId
from llmgw.core.shard import ShardState
from llmgw.core.units import GIB
from llmgw.daemon.intake import LONGEST_WORDS, MOST_LINES, bounded
from tests.daemon.world import registration


def test_an_honest_message_passes_as_it_is() -> None:
    message = registration("node01")
    assert bounded(message) is message
    beat = Heartbeat(at=1.0, usage=Usage(memory_available=GIB))
    assert bounded(beat) is beat


def test_words_are_cut_at_any_depth_and_a_key_stays_secret() -> None:
    failure = Failure(
        kind=FailureKind.EXITED,
        text="t" * 10_000,
        last_lines=tuple(f"{index}" + "x" * 5_000 for index in range(60)),
        at=1.0,
    )
    shard = ShardReport(
        shard=ShardId("gemma/0.0"), state=ShardState.FAILED, since=1.0, failure=failure, key=Secret("k" * 5_000)
    )
    report = bounded(
        Report(shards=(shard,), engines=Engines(probed_at=1.0, engines=(EngineReport(engine="e" * 9_000),)))
    )
    cut = report.shards[0].failure
    assert cut is not None
    assert len(cut.text) == LONGEST_WORDS
    assert [line[:2] for line in cut.last_lines] == [str(index) for index in range(20, 60)], "the last lines count"
    assert len(cut.last_lines) == MOST_LINES
    assert {len(line) for line in cut.last_lines} == {LONGEST_WORDS}
    assert "k" not in repr(report.shards[0].key)
    assert report.engines is not None
    assert report.engines.engines[0].engine.endswith("…")


def test_a_list_that_is_too_long_is_refused_with_its_length() -> None:
    message = registration("node01")
    cpu = replace(message.inventory.cpu, features=("avx2",) * 1_001)
    with pytest.raises(BadMessage, match="features must hold at most 1000, not 1001"):
        bounded(replace(message, inventory=replace(message.inventory, cpu=cpu)))


def test_a_message_that_would_not_fit_in_a_watchers_page_is_refused() -> None:
    engines = Engines(probed_at=1.0, engines=(EngineReport(engine="e", problem="p" * 4_000),) * 200)
    with pytest.raises(BadMessage, match="more than 524288 characters in all"):
        bounded(Report(engines=engines))


@pytest.mark.parametrize("machine", ["", "a b", "\x1b[2J", "x" * 129])
def test_a_machine_id_that_the_store_would_not_read_back_is_refused(machine: str) -> None:
    with pytest.raises(BadMessage, match="message Registration: machine must be letters and digits"):
        bounded(registration("node01", machine=machine))
