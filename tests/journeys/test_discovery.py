"""What the cluster does when a machine changes under its agent: real processes, engines and a recorded machine."""

from pathlib import Path

import pytest

from llmgw.cli.local.cluster import CONTROL, ROUTER, LocalCluster
from llmgw.core.events import EventKind
from llmgw.core.refusals import NotEnoughMemory, Verdict
from llmgw.core.shard import ShardState
from tests.journeys.world import ctl, event, events, plan, serving, shard, until

pytestmark = pytest.mark.journey

LARGE = "tiny-large"


async def test_a_vm_that_is_given_memory_gets_the_model_that_did_not_fit_and_the_events_say_why(
    tmp_path: Path,
) -> None:
    async with serving(plan(tmp_path, nodes=2, large=LARGE)) as cluster:
        seen = await until(cluster, lambda now: bool(now.models[LARGE].refusals))
        refusals = seen.models[LARGE].refusals
        assert {type(one) for one in refusals} == {NotEnoughMemory}
        assert {one.verdict for one in refusals} == {Verdict.NEVER}
        before = [cluster.children[name].pid for name in (CONTROL, ROUTER, "node01", "node02")]

        give(cluster, "node02", mib=3 * cluster.plan.room)
        seen = await until(cluster, lambda now: any(one.state is ShardState.READY for one in of(now, LARGE)))
        (placed,) = of(seen, LARGE)
        assert shard(placed).node == "node02"
        assert seen.models[LARGE].refusals == ()
        assert [cluster.children[name].pid for name in (CONTROL, ROUTER, "node01", "node02")] == before

        # Why it was placed is a walk along the causes.
        because = await event(cluster, lambda one: one.kind is EventKind.REPLICA_PLACED and one.subject == placed.id)
        known = {one.seq: one for one in await events(cluster, EventKind.NODE_CHANGED, EventKind.NODE_QUALIFIES)}
        qualifies = known[because.cause]
        assert (qualifies.kind, qualifies.subject) == (EventKind.NODE_QUALIFIES, "node02")
        assert f"for {LARGE}: memory " in qualifies.text
        changed = known[qualifies.cause]
        assert (changed.kind, changed.subject) == (EventKind.NODE_CHANGED, "node02")
        assert "memory" in changed.text


async def test_a_vm_that_loses_memory_is_warned_about_and_qualifies_no_more(tmp_path: Path) -> None:
    async with serving(plan(tmp_path, nodes=2, replicas=1)) as cluster:
        seen = await until(cluster, lambda now: now.replicas_ready == 1)
        (replica,) = seen.replicas.values()
        node = shard(replica).node
        give(cluster, node, mib=cluster.plan.memory // 2)
        gone = await event(cluster, lambda one: one.kind is EventKind.NODE_DISQUALIFIED)
        assert gone.subject == node
        assert "no longer for tiny: memory" in gone.text
        nodes = {one["name"]: one for one in (await ctl(cluster, "nodes"))["nodes"]}
        assert "memory_shrunk" in [warning["code"] for warning in nodes[node]["warnings"]]
        # What runs there is left alone.
        seen = await until(cluster, lambda now: now.replicas_ready == 1)
        assert (list(seen.replicas), shard(seen.replicas[replica.id]).launch) == ([replica.id], 1)


def of(seen: object, model: str) -> list:  # type: ignore[type-arg]
    return [one for one in seen.replicas.values() if one.model == model]  # type: ignore[attr-defined]


def give(cluster: LocalCluster, node: str, *, mib: int) -> None:
    """Let a node's machine have so much memory."""
    meminfo = cluster.plan.directory / "nodes" / node / "machine" / "proc" / "meminfo"
    kib = mib * 1024
    fresh = meminfo.with_suffix(".new")
    fresh.write_text(f"MemTotal: {kib} kB\nMemAvailable: {kib} kB\n")
    fresh.replace(meminfo)
