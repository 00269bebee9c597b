"""llmgwd: how the control plane comes up and goes down, in order.

    up    addresses tried · store · epoch · cluster · brain · catalog · listening · READY
    down  STOPPING · the brain takes what was asked, nothing more · streams and sockets end · store

SIGHUP reads `models:` of server.yaml again.
"""

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from llmgw import __version__
from llmgw.config.server import ServerConfig
from llmgw.core.cluster import Cluster
from llmgw.core.inputs import CatalogLoaded
from llmgw.core.settings import Settings
from llmgw.daemon import place
from llmgw.daemon.agents import AgentLinks, Mailboxes
from llmgw.daemon.attempts import AttemptFeed
from llmgw.daemon.brain import Brain
from llmgw.daemon.listen import listen, probe
from llmgw.daemon.operators import Operators
from llmgw.daemon.reload import Reloader
from llmgw.daemon.roles import ROLES
from llmgw.daemon.routes import RouteFeed
from llmgw.daemon.store import Store
from llmgw.daemon.watch import RECENT, Hub
from llmgw.host import clock
from llmgw.host.signals import hangup_signal, stop_signal
from llmgw.host.systemd import READY, STOPPING, keep_alive, notify, status
from llmgw.wire.agent import v1
from llmgw.wire.server import RpcServer, bidi

if TYPE_CHECKING:
    from llmgw.daemon.metrics import Metrics

log = logging.getLogger("llmgw.daemon")


async def run(config: ServerConfig, file: Path) -> None:
    """Serve until SIGTERM or SIGINT; raises LlmgwError when it cannot start, with nothing left behind."""
    await serve(config, file, stop_signal(), hangup_signal(), _announce)


async def serve(
    config: ServerConfig, file: Path, stop: asyncio.Event, hangup: asyncio.Event, ready: Callable[[str], None]
) -> None:
    """Serve until `stop`; `ready` is called with the addresses once everything listens.

    `hangup` asks to read `file`, which `config` came from, again.
    """
    place.refuse_if_held(config.store)  # before the addresses: they are in use by the same one
    probe(config)
    store = await Store.open(config.store, config.cluster)
    try:
        brain, server = await _wired(config, store)
        await _serve(config, brain, server, Reloader(file, config, brain, hangup), stop, ready)
    finally:
        await store.close()


def _announce(where: str) -> None:
    log.info("llmgwd %s: ready at %s", __version__, where)
    notify(READY, status(f"ready at {where}"))


async def _wired(config: ServerConfig, store: Store) -> tuple[Brain, RpcServer]:
    """Make all parts, as the store remembers them; nothing runs yet."""
    settings = Settings(
        cluster=config.cluster,
        heartbeat=config.heartbeat,
        lost_after=config.lost_after,
        settle=config.settle,
        exposure=config.exposure,
        drain=config.drain,
    )
    stored, epoch = await store.load(), await store.next_epoch()
    log.info("cluster %s, epoch %d, %d replicas remembered", config.cluster, epoch, len(stored.assignments))
    cluster = Cluster(settings, stored, epoch=epoch, now=clock.now())
    hub, boxes = Hub(cluster, clock.now, store.events), Mailboxes()
    routes, attempts = RouteFeed(), AttemptFeed()
    hub.recall(await store.events(after=stored.seq - RECENT, before=stored.seq + 1, most=RECENT))
    brain = Brain(cluster, store, hub, routes, attempts, boxes, clock.now, beat=config.heartbeat)
    links = AgentLinks(brain, boxes, clock.now)
    server = RpcServer(
        [
            bidi("/agent.v1.AgentLink/Link", v1.AgentMessage, v1.ControlMessage, links.link),
            Operators(brain, hub, routes, attempts, settings, clock.now),
        ],
        roles=ROLES,
        cluster=config.cluster,
    )
    return brain, server


async def _serve(
    config: ServerConfig,
    brain: Brain,
    server: RpcServer,
    reloader: Reloader,
    stop: asyncio.Event,
    ready: Callable[[str], None],
) -> None:
    async with asyncio.TaskGroup() as group:
        thinking = group.create_task(brain.run(), name="brain")
        watchdog = group.create_task(keep_alive(lambda: not thinking.done()), name="watchdog")
        reloading: asyncio.Task[None] | None = None
        figures: Metrics | None = None
        try:
            await brain.tell(CatalogLoaded(models=config.catalog()))
            reloading = group.create_task(reloader.run(), name="reload")
            where = await listen(server, config)
            figures = await _figures(config, brain.cluster)
            ready(where)
            await stop.wait()
            notify(STOPPING)
        finally:
            brain.stop()
            await asyncio.wait([thinking])
            for task in (watchdog, reloading):
                if task is not None:
                    task.cancel()
            if figures is not None:
                await figures.close()
            await server.close()
    log.info("stopped")


async def _figures(config: ServerConfig, cluster: Cluster) -> "Metrics | None":
    if config.metrics is None:
        return None
    from llmgw.daemon.metrics import Metrics  # an HTTP server and more, which takes memory that few need

    return await Metrics.open(config.metrics, cluster)
