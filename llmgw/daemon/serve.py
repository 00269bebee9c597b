"""llmgwd: how the control plane comes up and goes down, in order.

    up    addresses tried · store · epoch · cluster · brain · catalog · listening · READY
    down  STOPPING · the brain takes what was asked, nothing more · streams and sockets end · store

SIGHUP reads `models:` and `engines:` of server.yaml again.
"""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
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
from llmgw.daemon.engine_calls import EngineCalls
from llmgw.daemon.listen import listen, probe
from llmgw.daemon.operators import Operators
from llmgw.daemon.releases.resolver import Resolver
from llmgw.daemon.releases.served import Served
from llmgw.daemon.reload import Reloader
from llmgw.daemon.roles import LARGE, ROLES
from llmgw.daemon.routes import RouteFeed
from llmgw.daemon.store import Store
from llmgw.daemon.watch import RECENT, Hub
from llmgw.host import clock
from llmgw.host.signals import hangup_signal, stop_signal
from llmgw.host.systemd import READY, STOPPING, keep_alive, notify, status
from llmgw.wire.files import FilesService
from llmgw.wire.server import RpcServer

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
        parts = await _wired(config, store)
        await _serve(config, parts, Reloader(file, config, parts.brain, hangup), stop, ready)
    finally:
        await store.close()


def _announce(where: str) -> None:
    log.info("llmgwd %s: ready at %s", __version__, where)
    notify(READY, status(f"ready at {where}"))


@dataclass(frozen=True, slots=True)
class _Parts:
    brain: Brain
    server: RpcServer
    resolver: Resolver


async def _wired(config: ServerConfig, store: Store) -> _Parts:
    """Make all parts, as the store remembers them; nothing runs yet."""
    settings = Settings(
        cluster=config.cluster,
        heartbeat=config.heartbeat,
        lost_after=config.lost_after,
        settle=config.settle,
        exposure=config.exposure,
        drain=config.drain,
        downloads=config.downloads,
    )
    stored, epoch = await store.load(), await store.next_epoch()
    log.info("cluster %s, epoch %d, %d replicas remembered", config.cluster, epoch, len(stored.assignments))
    cluster = Cluster(settings, stored, epoch=epoch, now=clock.now())
    hub, boxes = Hub(cluster, clock.now, store.events), Mailboxes()
    routes, attempts = RouteFeed(), AttemptFeed()
    hub.recall(await store.events(after=stored.seq - RECENT, before=stored.seq + 1, most=RECENT))
    resolver = Resolver(config.mirror)
    brain = Brain(cluster, store, hub, routes, attempts, boxes, resolver, clock.now, beat=config.heartbeat)
    links = AgentLinks(brain, boxes, clock.now)
    server = RpcServer(
        [
            links,
            FilesService(Served(config.mirror).find if config.mirror else _nothing),
            Operators(brain, hub, routes, attempts, settings, clock.now),
            EngineCalls(brain),
        ],
        roles=ROLES,
        large=LARGE,
        cluster=config.cluster,
    )
    return _Parts(brain, server, resolver)


def _nothing(digest: str) -> Path | None:
    """What a control plane without a mirror has."""
    return None


async def _serve(
    config: ServerConfig, parts: _Parts, reloader: Reloader, stop: asyncio.Event, ready: Callable[[str], None]
) -> None:
    brain, server = parts.brain, parts.server
    async with asyncio.TaskGroup() as group:
        thinking = group.create_task(brain.run(), name="brain")
        beside = [
            group.create_task(keep_alive(lambda: not thinking.done()), name="watchdog"),
            group.create_task(parts.resolver.run(brain.note), name="releases"),
        ]
        figures: Metrics | None = None
        try:
            await brain.tell(CatalogLoaded(models=config.catalog(), engines=config.wishes()))
            beside.append(group.create_task(reloader.run(), name="reload"))
            where = await listen(server, config)
            figures = await _figures(config, brain.cluster)
            ready(where)
            await stop.wait()
            notify(STOPPING)
        finally:
            brain.stop()
            await asyncio.wait([thinking])
            for task in beside:
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
