"""What one agent may say at most."""

from dataclasses import replace

import pytest

from llmgw.core.engines.terms import Install, Installs, InstallStep
from llmgw.core.errors import BadMessage
from llmgw.core.facts import EngineReport, Engines, Failure, FailureKind, Secret, ShardReport
from llmgw.core.inventory import GpuHolder, Usage
from llmgw.core.link import Heartbeat, Report
from llmgw.core.names import ShardId
from llmgw.core.shard import ShardState
from llmgw.core.units import GIB, Bytes
from llmgw.daemon.intake import LONGEST_WORDS, MOST_LINES, bounded, weight
from tests.core.stage import LLAMA
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


@pytest.mark.parametrize(("memory", "good"), [(0, True), (1 << 60, True), ((1 << 60) + 1, False), (1 << 63, False)])
def test_a_size_that_no_machine_has_is_refused_by_its_field(memory: int, good: bool) -> None:
    message = registration("node01")
    message = replace(message, inventory=replace(message.inventory, memory=Bytes(memory)))
    if good:
        assert bounded(message) is message
        return
    with pytest.raises(BadMessage, match=rf"message Registration: memory must be from 0 to \d+, not {memory}"):
        bounded(message)


@pytest.mark.parametrize("quota", [0.0, -1.0, 1e300, float("inf"), float("nan")])
def test_a_share_of_processors_is_above_none(quota: float) -> None:
    message = registration("node01")
    cpu = replace(message.inventory.cpu, quota=quota)
    with pytest.raises(BadMessage, match="quota must be from 1e-06 to 1000000000, not "):
        bounded(replace(message, inventory=replace(message.inventory, cpu=cpu)))


def test_a_certificate_without_an_end_has_the_last_second_that_a_calendar_has() -> None:
    message = registration("node01")
    forever = replace(message.inventory, certificate_ends=253402300799.0)
    message = replace(message, inventory=forever)
    assert bounded(message) is message


def test_each_of_several_numbers_counts() -> None:
    usage = Usage(memory_available=GIB, gpu_used=(GIB, Bytes(1 << 62)))
    with pytest.raises(BadMessage, match="gpu_used must be from 0"):
        bounded(Heartbeat(at=1.0, usage=usage))


@pytest.mark.parametrize("address", ["*", "a b", "127.1", "0x7f000001", "\x1b[2J", "a" * 254, "10.0.0.1:22", "::1%a b"])
def test_an_address_that_is_no_hosts_is_refused(address: str) -> None:
    """Of a node, and of a shard on it: routers would be sent there."""
    with pytest.raises(BadMessage, match="address must be a DNS name without wildcard, or an IP address"):
        bounded(registration("node01", address=address))
    shard = ShardReport(shard=ShardId("gemma/0.0"), state=ShardState.READY, since=1.0, host=address, port=22)
    with pytest.raises(BadMessage, match="host must be a DNS name without wildcard, or an IP address"):
        bounded(Report(shards=(shard,)))


@pytest.mark.parametrize("address", ["", "10.0.0.1", "2001:db8::1", "fe80::1%eth0", "node01.example"])
def test_a_node_has_an_address_or_none(address: str) -> None:
    message = registration("node01", address=address)
    assert bounded(message) is message


def test_a_message_weighs_by_what_it_makes_us_do() -> None:
    beat = Heartbeat(at=1.0, usage=Usage(memory_available=GIB))
    described = registration("node01")
    holders = tuple(GpuHolder(gpu="", pid=pid) for pid in range(900))
    crowded = replace(described, inventory=replace(described.inventory, gpu_holders=holders))
    assert weight(beat) == 1.0
    assert weight(Report()) == 1.0
    assert 10 < weight(described) < 20, "an honest node registers many times without being held up"
    assert weight(crowded) > 300
    assert weight(Report(inventory=crowded.inventory)) > 300
    assert weight(Report(engines=LLAMA)) > 10


@pytest.mark.parametrize(
    ("engine", "version", "field"),
    [
        ("../x", "b1", "engine"),
        ("", "b1", "engine"),
        ("e" * 65, "b1", "engine"),
        ("llama.cpp", "b1/b2", "version"),
        ("llama.cpp", "b1\x1b[2J", "version"),
    ],
)
def test_an_install_has_names_that_can_be_part_of_one(engine: str, version: str, field: str) -> None:
    install = Install(engine=engine, version=version, step=InstallStep.READY, since=1.0)
    with pytest.raises(BadMessage, match=f"message Installs: {field} .*must be "):
        bounded(Installs(installs=(install,)))
    with pytest.raises(BadMessage, match=f"message Registration: {field} .*must be "):
        bounded(registration("node01", installs=(install,)))
    fine = replace(install, engine="llama.cpp", version="b10991")
    assert bounded(Installs(installs=(fine,))).installs == (fine,)
