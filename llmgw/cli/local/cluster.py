"""A cluster on this machine from its first process to its last, and how far it has come up."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from llmgw.cli.local import leftovers
from llmgw.cli.local.check import lists
from llmgw.cli.local.children import Child, Children
from llmgw.cli.local.layout import Made, Plan, claimed, make
from llmgw.client import ControlClient
from llmgw.config.client import ClientConfig
from llmgw.config.load import load_client
from llmgw.core.errors import ClusterCannot
from llmgw.core.fold import Fold
from llmgw.core.presence import NodeState
from llmgw.core.safe import safe
from llmgw.core.shard import ShardState
from llmgw.core.views import Noun

CONTROL, ROUTER = "llmgwd", "router"
_UP = 120.0
"""Seconds that a cluster may take to come up."""

Say = Callable[[str], None]


class Seen(Fold):
    """What the watch stream has shown so far."""

    @property
    def nodes_ready(self) -> int:
        """How many."""
        return sum(node.state is NodeState.READY for node in self.nodes.values())

    @property
    def replicas_ready(self) -> int:
        """How many, of all models."""
        return sum(replica.state is ShardState.READY for replica in self.replicas.values())

    def lines(self) -> list[str]:
        """Each node and replica and its state, a line each."""
        told = [f"{name} is {node.state.value}" for name, node in self.nodes.items()]
        for name, replica in self.replicas.items():
            where = ", ".join(shard.node for shard in replica.shards)
            told.append(f"replica {name} is {replica.state.value} on {where}")
            told += [f"replica {name}: {safe(shard.failure.text)}" for shard in replica.shards if shard.failure]
        return told

    def refusals(self) -> list[str]:
        """Why what is wanted has no place, a line for each node."""
        return [
            f"{model.name} is refused by {refusal.node}: {safe(str(refusal))}"
            for model in self.models.values()
            for refusal in model.refusals
        ]


class LocalCluster:
    """A running cluster."""

    def __init__(self, plan: Plan, made: Made, children: Children) -> None:
        self.plan, self.made, self.children = plan, made, children

    @property
    def client(self) -> ClientConfig:
        """How to reach its control plane as an operator."""
        return load_client(self.plan.directory / "client.yaml")

    async def start_control(self) -> Child:
        """Start the control plane."""
        return await self.children.start(CONTROL, "llmgw.daemon.main", self.plan.directory / "server.yaml")

    async def start_router(self) -> Child:
        """Start the router."""
        return await self.children.start(ROUTER, "llmgw.router.main", self.plan.directory / "router.yaml")

    async def start_agent(self, node: str) -> Child:
        """Start a node's agent."""
        config = self.plan.directory / "nodes" / node / "agent.yaml"
        return await self.children.start(node, "llmgw.agent.main", config, kept=True)

    async def until(self, true: Callable[[Seen], bool], *, timeout: float = _UP, say: Say | None = None) -> Seen:
        """Watch until `true`; ClusterCannot tells what there was instead when `timeout` seconds have passed."""
        seen, told = Seen(), set[str]()
        try:
            async with asyncio.timeout(timeout), ControlClient.open(self.client) as client:
                pages = client.watch((Noun.NODES, Noun.MODELS, Noun.REPLICAS), follow=True)
                async with contextlib.aclosing(pages):
                    async for page in pages:
                        if seen.take(page) is None:
                            continue
                        for line in seen.lines():
                            if say and line not in told:
                                say(line)
                            told.add(line)
                        if true(seen):
                            return seen
        except TimeoutError:
            pass
        there_is = "; ".join(seen.lines() + seen.refusals()) or "no node came"
        raise ClusterCannot(f"the cluster is not up after {timeout:.0f}s: {there_is}")

    async def until_ready(self, say: Say | None = None) -> Seen:
        """Wait until all nodes and all replicas are ready."""
        plan = self.plan
        return await self.until(
            lambda seen: seen.nodes_ready >= plan.nodes and seen.replicas_ready >= plan.replicas, say=say
        )

    async def until_there(self, say: Say | None = None) -> Seen:
        """Wait until all nodes are ready, whatever they have yet to install."""
        return await self.until(lambda seen: seen.nodes_ready >= self.plan.nodes, say=say)

    async def until_routed(self) -> None:
        """Wait until the gateway knows the model, or raise ClusterCannot."""
        try:
            async with asyncio.timeout(_UP):
                # It tells nobody when it learns of one.
                while not await lists(self.made.gateway, self.plan.model):  # noqa: ASYNC110
                    await asyncio.sleep(0.05)
        except TimeoutError:
            raise ClusterCannot(f"the gateway {self.made.gateway} has not heard of {self.plan.model}") from None


@asynccontextmanager
async def running(plan: Plan, say: Say = lambda _: None) -> AsyncIterator[LocalCluster]:
    """Bring the cluster up, yield it once all its processes run, and leave nothing of it running behind.

    When the control plane or the router ends by itself meanwhile, that ends the body, and ClusterCannot tells its last
    lines. An agent is started again.
    """
    with claimed(plan.directory):
        await leftovers.end_all(plan.directory)
        made = make(plan)
        say(f"made an authority and certificates in {plan.directory}")
        try:
            async with asyncio.TaskGroup() as group:
                children = Children(plan.directory, group, say)
                cluster = LocalCluster(plan, made, children)
                try:
                    await _start(cluster, say)
                    yield cluster
                finally:
                    await children.stop(last=CONTROL)
        except BaseExceptionGroup as several:
            raise _first(several) from None
        finally:
            await leftovers.end_all(plan.directory)


def _first(error: BaseException) -> BaseException:
    """What happened first is the reason; the rest only followed from it."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


async def _start(cluster: LocalCluster, say: Say) -> None:
    await cluster.start_control()
    say(f"llmgwd listens on {cluster.made.control}")
    async with asyncio.TaskGroup() as group:
        for name in cluster.plan.names:
            group.create_task(cluster.start_agent(name), name=f"start {name}")
        group.create_task(cluster.start_router(), name="start router")
    say(f"the router listens on {cluster.made.gateway}")
