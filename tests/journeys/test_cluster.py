"""What the cluster does when its parts are killed: real processes, certificates, sockets and engines."""

import asyncio
import os
import signal
from pathlib import Path

import pytest

from llmgw.cli.local.cluster import CONTROL, ROUTER
from llmgw.core.events import EventKind
from llmgw.core.presence import NodeState
from llmgw.core.shard import ShardState
from tests.journeys.world import (
    alive,
    chat,
    ctl,
    event,
    events,
    kill,
    log,
    logged,
    on,
    pids,
    plan,
    serving,
    shard,
    stream,
    until,
)
from tests.tiny import SLOW, tiny_gguf

pytestmark = pytest.mark.journey


async def test_two_replicas_serve_and_a_killed_engine_comes_back(tmp_path: Path) -> None:
    async with serving(plan(tmp_path, nodes=2)) as cluster:
        for _ in range(4):
            assert (await chat(cluster))["usage"]["completion_tokens"] >= 1

        seen = await until(cluster, lambda now: now.replicas_ready == 2)
        victim = shard(seen.replicas["tiny/0"])
        assert victim.pid is not None
        os.kill(victim.pid, signal.SIGKILL)
        failed = await event(cluster, lambda one: one.kind is EventKind.SHARD_FAILED)
        assert failed.subject == victim.shard
        assert "signal 9" in failed.text
        assert any("listening on" in line or "model loaded" in line for line in failed.lines)
        assert (await chat(cluster))["choices"]

        seen = await until(
            cluster, lambda now: now.replicas_ready == 2 and shard(now.replicas["tiny/0"]).launch > victim.launch
        )
        again = shard(seen.replicas["tiny/0"])
        assert (again.node, again.pid != victim.pid) == (victim.node, True)
        assert shard(seen.replicas["tiny/1"]).launch == victim.launch

        await cluster.children.end(ROUTER)  # its access log is whole once it ended
        served = [
            line.partition(" replica=")[2].split()[0]
            for line in log(cluster, ROUTER).splitlines()
            if " replica=" in line
        ]
        assert set(served) == {"tiny/0", "tiny/1"}


async def test_an_agent_is_killed_and_its_engine_serves_on_until_it_is_adopted(tmp_path: Path) -> None:
    async with serving(plan(tmp_path)) as cluster:
        seen = await until(cluster, lambda now: now.replicas_ready == 2)
        away, other = (shard(replica).node for replica in seen.replicas.values())
        engine = shard(on(seen, away)[0])
        before = pids(cluster)

        await kill(cluster, away)
        await until(cluster, lambda now: now.nodes[away].state is NodeState.UNREACHABLE)
        assert pids(cluster) == before
        for _ in range(4):
            await chat(cluster)

        spare = ({"node01", "node02", "node03"} - {away, other}).pop()
        seen = await until(
            cluster,
            lambda now: (
                now.nodes[away].state is NodeState.LOST
                and any(replica.state is ShardState.READY for replica in on(now, spare))
            ),
        )
        lost = await event(cluster, lambda one: one.kind is EventKind.NODE_LOST)
        placed = await event(cluster, lambda one: one.kind is EventKind.REPLICA_PLACED and one.seq > lost.seq)
        assert (lost.subject, placed.cause) == (away, lost.seq)

        # With a second node gone there is no room left, and the cluster says so node by node.
        await kill(cluster, other)
        await until(cluster, lambda now: now.nodes[other].state is NodeState.LOST and bool(now.models["tiny"].refusals))
        why = await ctl(cluster, "why", "tiny")
        codes = {refusal["node"]: refusal["code"] for refusal in why["refusals"]}
        assert codes == {away: "node_away", other: "node_away", spare: "not_enough_memory"}

        # Both come back: what runs there is adopted as it is, and what is too many goes.
        assert engine.pid is not None
        assert alive(engine.pid)
        async with asyncio.TaskGroup() as group:
            for name in (away, other):
                group.create_task(cluster.start_agent(name))
        assert f"adopted pid {engine.pid}" in log(cluster, away)
        await until(
            cluster,
            lambda now: now.nodes_ready == 3 and now.replicas_ready == 2 and len(now.replicas) == 2,
        )
        started = [one.subject for one in await events(cluster, EventKind.SHARD_STARTING)]
        assert len(started) == len(set(started)) == 3
        assert len(pids(cluster)) == 2
        assert pids(cluster) <= before | {shard(replica).pid for replica in on(seen, spare)}
        await chat(cluster)


async def test_the_control_plane_is_killed_and_a_token_stream_ends_normally(tmp_path: Path) -> None:
    tokens = 1200
    # On a busy machine the agents may need a while to come back; until then nothing is to be called lost.
    slow = plan(tmp_path, nodes=2, weights=tiny_gguf(SLOW), context=tokens + 200, slots=1, lost_after="20s")
    async with serving(slow) as cluster, stream(cluster, tokens) as answer:
        await answer.piece()
        before = pids(cluster)
        await kill(cluster, CONTROL)
        await answer.piece()
        await cluster.start_control()
        seen = await until(cluster, lambda now: now.nodes_ready == 2 and now.replicas_ready == 2)
        await answer.rest()
        assert answer.done
        assert f'"completion_tokens":{tokens}' in answer.text
        assert pids(cluster) == before
        assert {shard(replica).launch for replica in seen.replicas.values()} == {1}
        assert await events(cluster, EventKind.NODE_LOST, EventKind.SHARD_FAILED) == []
        await chat(cluster)


async def test_a_certificate_for_another_node_is_refused_with_both_names(tmp_path: Path) -> None:
    async with serving(plan(tmp_path, nodes=3, replicas=1)) as cluster:
        config = cluster.plan.directory / "nodes" / "node02" / "agent.yaml"
        await cluster.children.end("node03")
        await cluster.children.end("node02")
        claim(config, "node03")
        await cluster.start_agent("node02")
        names = "certificate is for node02, the agent says it is node03"
        refused = await event(cluster, lambda one: one.kind is EventKind.NODE_REFUSED)
        assert names in refused.text
        await logged(cluster, "node02", names)
        seen = await until(cluster, lambda now: len(now.nodes) == 3)
        assert seen.nodes["node03"].state is not NodeState.READY


def claim(config: Path, name: str) -> None:
    """Let the agent of node02 say that it is another node; a state directory belongs to one node for good."""
    text = config.read_text().replace("node: node02", f"node: {name}").replace("state: state", "state: claimed")
    config.write_text(text)
