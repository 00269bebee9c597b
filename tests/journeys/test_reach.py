"""A node with an address that nobody can reach: real processes, from the registration to what an operator is told."""

import signal
from pathlib import Path
from typing import Any

import pytest
import yaml

from llmgw.cli.local.cluster import CONTROL, LocalCluster, running
from llmgw.core.events import EventKind
from tests.journeys.world import ctl, event, plan

pytestmark = pytest.mark.journey

NOBODYS = "192.0.2.1"
"""RFC 5737: documentation's own, so no machine has it."""


async def test_a_node_with_an_address_that_is_not_its_own_is_refused_until_that_is_corrected(tmp_path: Path) -> None:
    async with running(plan(tmp_path, nodes=1, replicas=1)) as cluster:
        edit(cluster.plan.directory / "server.yaml", exposure="direct")
        edit(cluster.plan.directory / "nodes" / "node01" / "agent.yaml", address=NOBODYS)
        await cluster.children.end("node01", signal.SIGTERM)
        await cluster.children.end(CONTROL, signal.SIGTERM)
        await cluster.start_control()
        await cluster.start_agent("node01")
        said = await event(cluster, lambda one: one.kind is EventKind.ADDRESS_UNREACHABLE)
        assert said.subject == "node01"

        (refusal,) = await refusals(cluster)
        assert (refusal["code"], refusal["verdict"]) == ("unreachable_address", "not now")
        assert (refusal["router"], refusal["address"]) == ("router", NOBODYS)
        assert refusal["port"] > 0
        assert "nothing can listen on 192.0.2.1: cannot assign requested address" in refusal["error"]
        node = (await ctl(cluster, "nodes"))["nodes"][0]
        assert "router_cannot_reach" in [warning["code"] for warning in node["warnings"]]

        edit(cluster.plan.directory / "nodes" / "node01" / "agent.yaml", address=None)
        await cluster.children.end("node01", signal.SIGTERM)
        await cluster.start_agent("node01")
        reached = await event(cluster, lambda one: one.kind is EventKind.ADDRESS_REACHED)
        assert reached.text.startswith("router router reaches 127.0.0.1:")
        assert await refusals(cluster) == []


async def refusals(cluster: LocalCluster) -> list[dict[str, Any]]:
    """Those that speak of the address."""
    found = (await ctl(cluster, "why", cluster.plan.model))["refusals"]
    return [one | one.get("numbers", {}) for one in found if "address" in one["code"]]


def edit(file: Path, **changes: str | None) -> None:
    """Write these keys; None takes one out."""
    known = yaml.safe_load(file.read_text()) | changes
    file.write_text(yaml.safe_dump({key: value for key, value in known.items() if value is not None}))
