"""A real agent process: what becomes of its engines, whatever happens to it and to them."""

import asyncio
import os
import signal
import urllib.request
from pathlib import Path

import pytest

from llmgw.agent.launch import pids
from llmgw.core.facts import FailureKind, ShardReport, Want
from llmgw.core.link import Refused
from llmgw.core.shard import ShardState
from tests.agent.control import Control, desired, order

pytestmark = pytest.mark.journey


def serves(report: ShardReport) -> bool:
    request = urllib.request.Request(
        f"http://{report.host}:{report.port}/v1/models", headers={"Authorization": f"Bearer {report.key}"}
    )
    with urllib.request.urlopen(request, timeout=5) as answer:
        return answer.status == 200


def exists(report: ShardReport) -> bool:
    return report.pid is not None and pids.started_at(report.pid) is not None


async def test_a_real_engine_becomes_ready_and_its_key_is_nowhere_but_in_a_file(agent, control: Control, weights: Path):
    control.desired = desired(order(weights))
    started = await agent()
    report = await control.shard("tiny/0.0", ShardState.READY)
    assert await asyncio.to_thread(serves, report)
    assert control.session.states["tiny/0.0"][-2:] == [ShardState.STARTING, ShardState.READY]
    assert report.key not in " ".join(pids.arguments(report.pid))
    assert report.key not in started.said
    key_file = started.state / "shards" / "tiny-0-0" / "key"
    assert key_file.read_text().strip() == report.key
    assert oct(key_file.stat().st_mode & 0o777) == "0o600"


async def test_a_killed_agents_engine_serves_on_and_is_adopted(agent, control: Control, weights: Path):
    control.desired = desired(order(weights))
    started = await agent()
    before = await control.shard("tiny/0.0", ShardState.READY)
    await started.kill()
    await control.until(lambda: control.session.over)
    assert control.session.left is None
    assert await asyncio.to_thread(serves, before)
    await started.start()
    session = await control.registered(2)
    found = session.registration.shards[0]
    # Ready in the registration itself: a router must not miss it for a moment.
    assert (found.state, found.pid, found.port, found.key) == (ShardState.READY, before.pid, before.port, before.key)
    assert found.launch == before.launch == 1
    assert (session.registration.cluster, session.registration.epoch) == ("demo", 1)


async def test_a_stopping_agent_says_goodbye_at_once_and_leaves_its_engine(agent, control: Control, weights: Path):
    control.desired = desired(order(weights))
    started = await agent()
    report = await control.shard("tiny/0.0", ShardState.READY)
    assert await started.stop() < 2.0
    assert started.process.returncode == 0
    await control.until(lambda: control.session.over)
    assert control.session.left
    assert await asyncio.to_thread(serves, report)


async def test_a_killed_engine_is_told_with_its_signal_and_last_lines_and_started_again(
    agent, control: Control, stand_in: Path, weights: Path
):
    control.desired = desired(order(weights))
    await agent(stand_in)
    before = await control.shard("tiny/0.0", ShardState.READY)
    os.kill(before.pid, signal.SIGKILL)
    failed = await control.shard("tiny/0.0", ShardState.FAILED)
    assert failed.failure is not None and failed.retry_at is not None
    assert (failed.failure.kind, failed.failure.signal) == (FailureKind.EXITED, signal.SIGKILL)
    assert failed.failure.exit_status is None
    assert failed.failure.last_lines == ("stand-in: starting",)
    assert failed.retry_at - failed.failure.at == pytest.approx(1.0, abs=0.01)
    after = await control.shard("tiny/0.0", ShardState.READY)
    assert after.pid != before.pid
    assert (after.launch, after.attempts) == (2, 1)
    assert after.key != before.key


async def test_an_engine_that_always_ends_is_tried_after_one_then_two_seconds(
    agent, control: Control, stand_in: Path, weights: Path
):
    control.desired = desired(order(weights, arguments=("--do", "exit:3")))
    await agent(stand_in)
    waits = []
    for attempt in (1, 2):
        await control.until(lambda attempt=attempt: _attempts(control) == attempt)
        report = control.session.shards["tiny/0.0"]
        assert report.failure.exit_status == 3
        assert report.failure.last_lines[-1] == "stand-in: I end with 3"
        waits.append(round(report.retry_at - report.failure.at))
    assert waits == [1, 2]


def _attempts(control: Control) -> int:
    report = control.sessions and control.session.shards.get("tiny/0.0")
    return report.attempts if report and report.state is ShardState.FAILED else 0


async def test_an_engine_that_ended_while_the_agent_was_away_is_told_with_its_signal(
    agent, control: Control, stand_in: Path, weights: Path
):
    control.desired = desired(order(weights))
    started = await agent(stand_in)
    before = await control.shard("tiny/0.0", ShardState.READY)
    await started.kill()
    os.kill(before.pid, signal.SIGABRT)
    await started.start()
    session = await control.registered(2)
    found = session.registration.shards[0]
    assert found.state is ShardState.FAILED
    assert found.failure is not None and found.failure.signal == signal.SIGABRT
    assert (await control.shard("tiny/0.0", ShardState.READY)).launch == 2


async def test_an_end_that_was_told_before_is_not_told_again(agent, control: Control, stand_in: Path, weights: Path):
    """What ended as it should is no failure after the agent was away."""
    control.desired = desired(order(weights))
    started = await agent(stand_in)
    await control.shard("tiny/0.0", ShardState.READY)
    await control.want(desired(order(weights, want=Want.STOP), revision=2))
    await control.shard("tiny/0.0", ShardState.STOPPED)
    await started.stop()
    await started.start()
    (found,) = (await control.registered(2)).registration.shards
    assert (found.state, found.failure, found.launch) == (ShardState.STOPPED, None, 1)


async def test_weights_that_are_not_there_are_refused_in_words(agent, control: Control, tmp_path: Path):
    control.desired = desired(order(tmp_path / "gone.gguf"))
    await agent()
    report = await control.shard("tiny/0.0", ShardState.FAILED)
    assert report.failure is not None and report.failure.kind is FailureKind.REFUSED
    assert f"weights {tmp_path}/gone.gguf: cannot be read: no such file" in report.failure.text
    assert report.retry_at is not None
    assert report.retry_at - report.failure.at == pytest.approx(60.0, abs=0.1)
    assert report.pid is None


async def test_an_engine_that_never_gets_ready_is_stopped_in_time(
    agent, control: Control, stand_in: Path, weights: Path
):
    control.desired = desired(order(weights, arguments=("--do", "load")))
    await agent(stand_in, start_timeout="1s")
    starting = await control.shard("tiny/0.0", ShardState.STARTING)
    await control.until(lambda: _attempts(control) == 1 and control.session.shards["tiny/0.0"].pid is None)
    report = control.session.shards["tiny/0.0"]
    assert report.failure.kind is FailureKind.TIMEOUT
    assert report.failure.last_lines == ("stand-in: starting",)
    assert not exists(starting)


async def test_omission_stops_an_engine_only_when_a_settled_leader_omits(
    agent, control: Control, stand_in: Path, weights: Path
):
    control.desired = desired(order(weights), order(weights, "tiny/1.0"))
    started = await agent(stand_in)
    first = await control.shard("tiny/0.0", ShardState.READY)
    second = await control.shard("tiny/1.0", ShardState.READY)
    await control.want(desired(order(weights, "tiny/1.0", want=Want.STOP), settled=False, revision=2))
    await control.shard("tiny/1.0", ShardState.STOPPED)
    assert not exists(second)
    # Its report of the other came after it obeyed: the omitted one was left alone.
    assert control.session.shards["tiny/0.0"].state is ShardState.READY
    assert exists(first)
    await control.want(desired(revision=3))
    await control.until(lambda: not control.session.shards)
    assert not exists(first)
    assert not list((started.state / "shards").iterdir())


async def test_a_lower_epoch_and_another_cluster_are_not_obeyed(agent, control: Control, stand_in: Path, weights: Path):
    control.desired = desired(order(weights), epoch=7)
    started = await agent(stand_in)
    report = await control.shard("tiny/0.0", ShardState.READY)
    await control.want(desired(epoch=6, revision=2))
    assert "epoch 6, epoch 7 was obeyed" in await started.logged("not obeyed")
    await control.want(desired(epoch=9, revision=3, cluster="other"))
    await started.logged("it is of cluster other")
    await control.want(desired(order(weights), order("/nowhere.gguf", "tiny/1.0"), epoch=7, revision=4))
    await control.shard("tiny/1.0", ShardState.FAILED)
    assert control.session.shards["tiny/0.0"].pid == report.pid
    assert control.session.shards["tiny/0.0"].state is ShardState.READY


async def test_a_draining_engine_is_stopped_when_it_serves_nothing_more(
    agent, control: Control, stand_in: Path, weights: Path
):
    busy = order(weights, arguments=("--do", "busy"))
    control.desired = desired(busy)
    started = await agent(stand_in)
    report = await control.shard("tiny/0.0", ShardState.READY)
    await control.want(desired(order(weights, want=Want.DRAIN), revision=2))
    await control.shard("tiny/0.0", ShardState.DRAINING)
    assert await asyncio.to_thread(serves, report)
    (started.state / "shards" / "tiny-0-0" / "key.done").touch()
    await control.shard("tiny/0.0", ShardState.STOPPED)
    assert not exists(report)


async def test_a_drain_ends_when_its_time_is_over(agent, control: Control, stand_in: Path, weights: Path):
    busy = order(weights, arguments=("--do", "busy"))
    control.desired = desired(busy)
    await agent(stand_in)
    await control.shard("tiny/0.0", ShardState.READY)
    await control.want(desired(order(weights, want=Want.DRAIN, drain=0.3), revision=2))
    await control.shard("tiny/0.0", ShardState.STOPPED)


async def test_after_a_power_cut_engines_start_without_a_control_plane(
    agent, control: Control, stand_in: Path, weights: Path
):
    """A power cut takes the engine and its waiter at once, and the machine has another boot id afterwards."""
    control.desired = desired(order(weights))
    started = await agent(stand_in)
    before = await control.shard("tiny/0.0", ShardState.READY)
    await started.kill()
    os.killpg(before.pid, signal.SIGKILL)
    for name in ("process.json", "exit.json"):
        (started.state / "shards" / "tiny-0-0" / name).unlink(missing_ok=True)
    control.answer = lambda _: None
    await started.start()
    await started.logged("shard tiny/0.0: ready", times=2)
    text = started.said
    assert text.count("registered, epoch") == 1
    assert "failed" not in text


async def test_a_certificate_for_another_node_is_refused_with_both_names(agent, control: Control):
    control.answer = lambda registration: Refused(code="not_allowed", text="agent node02 may not speak for node01")
    started = await agent(certificate="node02")
    line = await started.logged("refused")
    assert "our certificate is for agent node02" in line
    assert "we say that we are node node01" in line


async def test_a_second_agent_on_one_state_is_refused(agent, control: Control):
    await agent()
    await control.registered()
    second = await agent()
    assert await second.ended() == 2
    assert "is in use by another agent" in second.said


async def test_a_state_of_another_node_is_refused(agent, control: Control):
    """As after a copied directory: the engines that it speaks of are another agent's."""
    first = await agent()
    await control.registered()
    await first.stop()
    first.config.write_text(first.config.read_text().replace("node: node01", "node: node02"))
    await first.start()
    assert await first.ended() == 2
    assert "is of node node01 of cluster demo, this agent is node node02" in first.said


async def test_a_second_signal_kills(agent, control: Control):
    """Where the goodbye takes its time, whoever is impatient says it twice."""
    started = await agent()
    await control.registered()
    os.kill(started.pid, signal.SIGSTOP)
    os.kill(started.pid, signal.SIGTERM)
    os.kill(started.pid, signal.SIGCONT)
    await started.logged("stopping")
    os.kill(started.pid, signal.SIGTERM)
    assert await started.ended(2.0) in (-signal.SIGTERM, 0)
