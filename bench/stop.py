"""How long each daemon takes from SIGTERM to its end, with agents, a watch and a token stream open."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from bench.cluster import serving
from bench.figure import Figure
from llmgw.cli.local.check import request
from llmgw.cli.local.cluster import CONTROL, ROUTER, LocalCluster
from llmgw.cli.local.http import ask
from llmgw.client import ControlClient
from llmgw.core.errors import ClusterCannot, Unreachable
from llmgw.core.views import Noun

GOAL = 2.0
LONG = 1900
"""Tokens: about half a minute of answer."""


async def figures() -> AsyncIterator[Figure]:
    async with serving() as cluster:
        agent = cluster.plan.names[0]
        for name, again in (
            (ROUTER, cluster.start_router),
            (agent, lambda: cluster.start_agent(agent)),
            (CONTROL, cluster.start_control),
        ):
            yield await _stopped(cluster, name)
            await again()
            await cluster.until_ready()
            await cluster.until_routed()


async def _stopped(cluster: LocalCluster, name: str) -> Figure:
    async with _streams(cluster):
        started = time.monotonic()
        status = await cluster.children.end(name)
        took = time.monotonic() - started
    label = {CONTROL: "llmgwd", ROUTER: "router"}.get(name, "agent")
    failed = "" if status == 0 else f"ended with status {status}"
    return Figure(name=f"stop.{label}", value=took, unit="s", goal=GOAL, failed=failed)


@asynccontextmanager
async def _streams(cluster: LocalCluster) -> AsyncIterator[None]:
    """Hold a watch and a token stream open; both have brought something before the body begins."""
    watching, streaming = asyncio.Event(), asyncio.Event()
    async with asyncio.TaskGroup() as group:
        held = [group.create_task(_watch(cluster, watching)), group.create_task(_stream(cluster, streaming))]
        await asyncio.wait_for(asyncio.gather(watching.wait(), streaming.wait()), 30)
        yield
        for task in held:
            task.cancel()


async def _watch(cluster: LocalCluster, begun: asyncio.Event) -> None:
    with suppress(Unreachable):
        async with ControlClient.open(cluster.client) as client:
            async for _ in client.watch([*Noun], follow=True, events=10):
                begun.set()


async def _stream(cluster: LocalCluster, begun: asyncio.Event) -> None:
    body = request(cluster.plan.model) | {"stream": True, "max_tokens": LONG, "ignore_eos": True}
    with suppress(ClusterCannot):
        async with ask(cluster.made.gateway, "/v1/chat/completions", body) as answer:
            async for _ in answer:
                begun.set()
