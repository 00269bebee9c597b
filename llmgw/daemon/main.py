"""llmgwd: how the control plane comes up and goes down, in order.

    up    configuration · certificate · addresses tried · store · epoch · cluster · brain · catalog · listening · READY
    down  STOPPING · the brain takes what was asked, nothing more · streams and sockets end · store

SIGHUP reads `models:` of server.yaml again.

What it ends with is in `llmgwd --help`. A second signal kills.
"""

import asyncio
import grp
import logging
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import uvloop

from llmgw import __version__
from llmgw.config.load import load_server
from llmgw.config.server import ServerConfig
from llmgw.core.cluster import Cluster
from llmgw.core.errors import BadConfig
from llmgw.core.identity import Role
from llmgw.core.inputs import CatalogLoaded
from llmgw.core.settings import Settings
from llmgw.core.units import several
from llmgw.daemon import place
from llmgw.daemon.agents import AgentLinks, Mailboxes
from llmgw.daemon.attempts import AttemptFeed
from llmgw.daemon.brain import Brain
from llmgw.daemon.listen import listen, probe, probe_tcp
from llmgw.daemon.operators import Operators
from llmgw.daemon.reload import Reloader
from llmgw.daemon.roles import ROLES
from llmgw.daemon.routes import RouteFeed
from llmgw.daemon.store import Store
from llmgw.daemon.watch import RECENT, Hub
from llmgw.host import clock
from llmgw.host.program import command_line, run_program
from llmgw.host.signals import hangup_signal, stop_signal
from llmgw.host.systemd import READY, STOPPING, keep_alive, notify, set_up_logging, status
from llmgw.host.units import refuse_if_barred
from llmgw.wire.agent import v1
from llmgw.wire.server import RpcServer, bidi
from llmgw.wire.tls import own_identity, server_context

if TYPE_CHECKING:
    from llmgw.daemon.metrics import Metrics

log = logging.getLogger("llmgw.daemon")

DEFAULT_CONFIG = Path("/etc/llmgw/server.yaml")


EXITS = {
    3: "an address cannot be listened at",
    4: "the store is in use, or its disk fails",
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run llmgwd until a signal; return its exit status."""
    asked = command_line("llmgwd", "The control plane of an llmgw cluster.", DEFAULT_CONFIG, EXITS).parse_args(argv)
    set_up_logging()
    return run_program("llmgwd", lambda: _work(asked.config, check_only=asked.check))


def _work(file: Path, *, check_only: bool) -> None:
    config = load_server(file)
    check(config, file)
    if check_only:
        check_unit(config, file)
        print(f"{file}: good: cluster {config.cluster}, {several(len(config.models), 'model')}, at {config.listen}")
    else:
        uvloop.run(run(config, file))


def check(config: ServerConfig, file: Path) -> None:
    """Raise BadConfig unless the certificate is readable, in time and for a control plane of this cluster.

    And unless a store can be where it says. Nothing is made.
    """
    try:
        grp.getgrnam(config.socket_group or "root")
    except KeyError:
        rule, found = (
            "must be a group of this host",
            f"{config.socket_group!r}; `adduser --system --group {config.socket_group}` makes it",
        )
        raise BadConfig(str(file), None, "socket_group", rule, found) from None
    server_context(config.tls)
    own = own_identity(config.tls)
    if (own.cluster, own.role) != (config.cluster, Role.CONTROL):
        rule = f"must be for a control plane of cluster {config.cluster}"
        raise BadConfig(str(config.tls.certificate), None, "", rule, f"for {own} of cluster {own.cluster}")
    place.check(config.store)


def check_unit(config: ServerConfig, file: Path) -> None:
    """Raise BadConfig unless the user of the unit can use the files, and CannotListen where it does not run and could
    not listen. Root can use them all, and a start would still fail.
    """
    tls, store = config.tls, config.store
    refuse_if_barred("llmgwd", file, (tls.certificate, tls.key, tls.authority), (store, place.lock_file(store)))
    if not place.held(config.store):
        probe_tcp(config)


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


if __name__ == "__main__":
    sys.exit(main())
