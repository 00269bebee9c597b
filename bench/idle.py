"""What a control plane with three agents costs when nothing happens."""

import asyncio
import time
from collections.abc import AsyncIterator

import psutil

from bench.cluster import serving
from bench.figure import Figure
from llmgw.cli.local.cluster import CONTROL

SECONDS = 20.0


async def figures() -> AsyncIterator[Figure]:
    async with serving(nodes=3) as cluster:
        daemon = psutil.Process(cluster.children[CONTROL].pid)
        before, started = daemon.cpu_times(), time.monotonic()
        await asyncio.sleep(SECONDS)  # this time is what is measured
        after, took = daemon.cpu_times(), time.monotonic() - started
        used = after.user + after.system - before.user - before.system
        yield Figure(name="idle.cpu", value=100 * used / took, unit="% of a core", goal=3.0)
        yield Figure(name="idle.memory", value=daemon.memory_info().rss / (1 << 20), unit="MiB", goal=150.0)
