"""Nodes that install their engine themselves: from the control plane's mirror to a model that serves, and later on."""

from pathlib import Path

import pytest

from llmgw.cli.local import engine
from llmgw.cli.local.cluster import LocalCluster
from llmgw.core.engines.terms import InstallStep, engine_id
from llmgw.core.events import EventKind
from llmgw.core.names import NodeName
from llmgw.core.refusals import EngineInstalling
from tests.journeys.engines import REFUSES, publish
from tests.journeys.world import chat, ctl, event, events, plan, reload, running, shard, until

pytestmark = [pytest.mark.journey, pytest.mark.long]

NEXT, WORSE = "b99998", "b99999"
NODES = ("node01", "node02")


async def test_nodes_install_the_engine_with_words_for_it_and_replicas_start_by_themselves(tmp_path: Path) -> None:
    # At this rate the download takes long enough to be seen.
    async with running(plan(tmp_path, nodes=2, install=True, download_rate="12MiB")) as cluster:
        told = list[str]()

        def on_its_way(seen) -> bool:
            refusals = [one for one in seen.models["tiny"].refusals if isinstance(one, EngineInstalling)]
            told.extend(one.text for one in refusals if one.step is InstallStep.DOWNLOAD)
            return any("%" in text for text in told)

        await until(cluster, on_its_way)
        build = engine.version()
        assert any(f"downloading llama-{build}-bin-ubuntu-" in text for text in told)
        why = (await ctl(cluster, "why", "tiny"))["refusals"]
        assert {one["code"] for one in why} <= {"engine_installing"}
        await cluster.until_ready()
        await cluster.until_routed()
        assert (await chat(cluster))["usage"]["completion_tokens"] > 0

        found = {one["node"]: one for one in (await ctl(cluster, "engines"))["engines"]}
        assert set(found) == set(NODES)
        assert all((one["version"], one["step"], one["by_hand"]) == (build, "ready", False) for one in found.values())
        # Why it was placed is a walk along the causes.
        placed = await event(cluster, lambda one: one.kind is EventKind.REPLICA_PLACED)
        known = {one.seq: one for one in await events(cluster, *EventKind)}
        walk = [placed]
        while walk[-1].cause:
            walk.append(known[walk[-1].cause])
        assert [one.kind for one in walk][:4] == [
            EventKind.REPLICA_PLACED,
            EventKind.NODE_QUALIFIES,
            EventKind.ENGINES_CHANGED,
            EventKind.ENGINE_INSTALLED,
        ]


async def test_an_engine_that_loses_a_library_takes_nothing_new_serves_on_and_is_repaired(tmp_path: Path) -> None:
    async with running(plan(tmp_path, nodes=2, replicas=1, install=True, check_engines="2s")) as cluster:
        seen = await cluster.until_ready()
        await cluster.until_routed()
        (replica,) = seen.replicas.values()
        node = shard(replica).node
        (library,) = _installed(cluster, node).rglob("xllamacpp.abi3.so")
        library.unlink()
        broken = await event(cluster, lambda one: one.kind is EventKind.ENGINE_BROKEN)
        assert broken.subject == engine_id(NodeName(node), engine.ENGINE, engine.version())
        assert "xllamacpp.abi3.so" in broken.text
        repaired = await event(cluster, lambda one: one.kind is EventKind.ENGINE_REPAIRED)
        assert repaired.subject == broken.subject
        seen = await until(cluster, lambda now: now.replicas_ready == 1)
        assert (list(seen.replicas), shard(seen.replicas[replica.id]).launch) == ([replica.id], 1), "it was touched"
        assert (await chat(cluster))["usage"]["completion_tokens"] > 0
        assert [file.name for file in _installed(cluster, node).rglob("xllamacpp.abi3.so")] == ["xllamacpp.abi3.so"]


async def test_a_new_version_is_installed_beside_and_replicas_move_until_one_fails(tmp_path: Path) -> None:
    async with running(plan(tmp_path, nodes=2, install=True)) as cluster:
        first = await cluster.until_ready()
        mirror = cluster.plan.directory / "mirror"
        publish(mirror, NEXT)
        _want(cluster, NEXT)
        await until(cluster, lambda now: now.replicas_ready == 2 and not first.replicas.keys() & now.replicas.keys())
        assert (await chat(cluster))["usage"]["completion_tokens"] > 0
        assert await _versions(cluster) == {(node, build) for node in NODES for build in (engine.version(), NEXT)}
        assert await _versions(cluster, used=True) == {(node, NEXT) for node in NODES}

        publish(mirror, WORSE, begins=REFUSES)
        _want(cluster, WORSE)
        stopped = await event(cluster, lambda one: one.kind is EventKind.ROLL_STOPPED)
        assert stopped.subject == "tiny"
        assert WORSE in stopped.text
        await until(cluster, lambda now: now.replicas_ready == 2 and len(now.replicas) == 2)
        assert await _versions(cluster, used=True) == {(node, NEXT) for node in NODES}
        assert (await chat(cluster))["usage"]["completion_tokens"] > 0


async def _versions(cluster: LocalCluster, *, used: bool = False) -> set[tuple[str, str]]:
    """Of engines that are ready; with `used`, of those that replicas run with."""
    found = [one for one in (await ctl(cluster, "engines"))["engines"] if one["step"] == "ready" and not one["problem"]]
    return {(one["node"], one["version"]) for one in found if one["used"] or not used}


def _installed(cluster: LocalCluster, node: str) -> Path:
    return cluster.plan.directory / "nodes" / node / "state" / "engines" / engine.ENGINE


def _want(cluster: LocalCluster, build: str) -> None:
    reload(cluster, lambda said: said["engines"][engine.ENGINE].update(version=build))
