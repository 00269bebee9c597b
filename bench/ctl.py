"""What `llmgw ctl nodes` costs beside the imports that no RPC client in Python goes without."""

import asyncio
import os
import resource
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

from bench.cluster import serving
from bench.figure import Figure
from llmgw.cli.local.cluster import LocalCluster

PEER = "import ssl, grpclib.client, betterproto2"
RUNS = 15
GOAL = 1.4


async def figures() -> AsyncIterator[Figure]:
    async with serving() as cluster:
        spent = await asyncio.to_thread(_spend, _commands(cluster))
    yield Figure(
        name="ctl", value=min(spent["ctl"]), unit="ms CPU", goal=GOAL, peer=PEER, peer_value=min(spent["peer"])
    )


def _commands(cluster: LocalCluster) -> dict[str, list[str]]:
    ctl = [str(Path(sys.executable).with_name("llmgw")), "ctl", "nodes"]
    directory = cluster.plan.directory
    return {
        "ctl": [*ctl, "--server", cluster.made.control, "--tls", str(directory / "tls")],
        "peer": [sys.executable, "-c", PEER],
    }


def _spend(commands: dict[str, list[str]]) -> dict[str, list[float]]:
    """CPU of each run in milliseconds; by turns, so that a machine that gets slower meanwhile changes all alike."""
    # As an operator has it: compiled once. Without this our modules would be compiled at every run, the peer's never.
    env = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    spent: dict[str, list[float]] = {name: [] for name in commands}
    for _ in range(RUNS):
        for name, command in commands.items():
            before = _children()
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env=env)
            spent[name].append(1000 * (_children() - before))
    return spent


def _children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
