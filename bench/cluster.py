"""A cluster to measure: the demo's, in a directory of its own that goes when it is done."""

import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from llmgw.cli.local.cluster import LocalCluster, running
from llmgw.cli.local.layout import Plan
from llmgw.cli.local.weights import real_model


@asynccontextmanager
async def serving(nodes: int = 3) -> AsyncIterator[LocalCluster]:
    """Yield a cluster that answers requests with the real small model on two nodes."""
    with tempfile.TemporaryDirectory(prefix="llmgw-bench-") as scratch:
        plan = Plan(directory=Path(scratch, "demo"), weights=real_model(), nodes=nodes)
        async with running(plan) as cluster:
            await cluster.until_ready()
            await cluster.until_routed()
            yield cluster
