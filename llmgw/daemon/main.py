"""llmgwd: how the control plane comes up and goes down, in order.

    up    configuration · certificate · store · epoch · cluster · brain · catalog · listening · READY
    down  STOPPING · the brain takes what was asked, nothing more · streams and sockets end · store

Exit: 0 stopped, 2 the configuration or the certificate is wrong, 3 an address cannot be listened at, 4 the store is in
use or its disk fails, 70 a fault of ours. A second signal kills.
"""

import argparse
import asyncio
import grp
import logging
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import uvloop

from llmgw import __version__
from llmgw.config.load import load_server
from llmgw.config.server import ServerConfig
from llmgw.core.cluster import Cluster
from llmgw.core.errors import BadConfig, LlmgwError, Rejected, Unreachable
from llmgw.core.identity import Role
from llmgw.core.inputs import CatalogLoaded
from llmgw.core.ledger import Settings
from llmgw.core.safe import LINE, safe
from llmgw.daemon.agents import AgentLinks, Mailboxes
from llmgw.daemon.brain import Brain
from llmgw.daemon.operators import Operators
from llmgw.daemon.roles import ROLES
from llmgw.daemon.routes import RouteFeed
from llmgw.daemon.store import Store
from llmgw.daemon.watch import RECENT, Hub
from llmgw.host import clock
from llmgw.host.signals import stop_signal
from llmgw.host.systemd import READY, STOPPING, keep_alive, notify, set_up_logging, status
from llmgw.wire.agent import v1
from llmgw.wire.server import RpcServer, bidi
from llmgw.wire.tls import own_identity, server_context

log = logging.getLogger("llmgw.daemon")

DEFAULT_CONFIG = Path("/etc/llmgw/server.yaml")


class CannotListen(Unreachable):
    """An address of server.yaml cannot be listened at."""

    code = "cannot_listen"

    def __init__(self, text: str) -> None:
        super().__init__(text)


def main(argv: Sequence[str] | None = None) -> int:
    """Run llmgwd until a signal; return its exit status."""
    parser = argparse.ArgumentParser(prog="llmgwd", description="The control plane of an llmgw cluster.")
    parser.add_argument("--config", type=Path, default=DEFAULT_CONFIG, help="server.yaml (%(default)s)")
    parser.add_argument("--check", action="store_true", help="only say whether the configuration can be used")
    parser.add_argument("--version", action="version", version=f"llmgwd {__version__}")
    asked = parser.parse_args(argv)
    set_up_logging()
    try:
        config = load_server(asked.config)
        check(config, asked.config)
        if asked.check:
            print(f"{asked.config}: good: cluster {config.cluster}, {len(config.models)} models, at {config.listen}")
        else:
            uvloop.run(run(config))
    except Exception as error:  # the supervisor of the whole program
        expected = _expected(error)
        if expected is not None:
            return _say(expected)
        log.critical("llmgwd: a fault of ours ends it", exc_info=error)
        return LlmgwError.exit_status
    return 0


def check(config: ServerConfig, file: Path) -> None:
    """Raise BadConfig unless the certificate is readable, in time and for a control plane of this cluster."""
    try:
        grp.getgrnam(config.socket_group or "root")
    except KeyError:
        rule, found = "must be a group of this host", repr(config.socket_group)
        raise BadConfig(str(file), None, "socket_group", rule, found) from None
    server_context(config.tls)
    own = own_identity(config.tls)
    if (own.cluster, own.role) != (config.cluster, Role.CONTROL):
        rule = f"must be for a control plane of cluster {config.cluster}"
        raise BadConfig(str(config.tls.certificate), None, "", rule, f"for {own} of cluster {own.cluster}")


async def run(config: ServerConfig) -> None:
    """Serve until SIGTERM or SIGINT; raises LlmgwError when it cannot start, with nothing left behind."""
    stop = stop_signal()
    await serve(config, stop, _announce)


async def serve(config: ServerConfig, stop: asyncio.Event, ready: Callable[[str], None]) -> None:
    """Serve until `stop`; `ready` is called with the addresses once everything listens."""
    store = await Store.open(config.store, config.cluster)
    try:
        await _serve(config, store, stop, ready)
    finally:
        await store.close()


def _announce(where: str) -> None:
    log.info("llmgwd %s: ready at %s", __version__, where)
    notify(READY, status(f"ready at {where}"))


async def _serve(config: ServerConfig, store: Store, stop: asyncio.Event, ready: Callable[[str], None]) -> None:
    boxes = Mailboxes()
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
    hub, routes = Hub(cluster, clock.now, store.events), RouteFeed(cluster)
    hub.recall(await store.events(after=stored.seq - RECENT, before=stored.seq + 1, most=RECENT))
    brain = Brain(cluster, store, hub, routes, boxes, clock.now)
    links = AgentLinks(brain, boxes, clock.now)
    server = RpcServer(
        [
            bidi("/agent.v1.AgentLink/Link", v1.AgentMessage, v1.ControlMessage, links.link),
            Operators(brain, hub, routes, settings, clock.now),
        ],
        roles=ROLES,
        cluster=config.cluster,
    )
    async with asyncio.TaskGroup() as group:
        thinking = group.create_task(brain.run(), name="brain")
        watchdog = group.create_task(keep_alive(lambda: not thinking.done()), name="watchdog")
        try:
            await brain.tell(CatalogLoaded(models=config.catalog()))
            ready(await _listen(server, config))
            await stop.wait()
            notify(STOPPING)
        finally:
            brain.stop()
            await asyncio.wait([thinking])
            watchdog.cancel()
            await server.close()
    log.info("stopped")


async def _listen(server: RpcServer, config: ServerConfig) -> str:
    """Open all sockets, or none; return where."""
    host = config.listen.host
    try:
        port = await server.listen_tls(host, config.listen.port, server_context(config.tls))
        where = [f"[{host}]:{port}" if ":" in host else f"{host}:{port}"]
        if config.socket is not None:
            config.socket.parent.mkdir(parents=True, exist_ok=True)
            await server.listen_unix(config.socket, group=config.socket_group)
            where.append(str(config.socket))
    except OSError as error:
        raise CannotListen(f"cannot listen at {config.socket}: {(error.strerror or str(error)).lower()}") from None
    except Rejected as error:
        raise CannotListen(f"{error}{_holder(config.listen.port)}") from None
    return " and ".join(where)


def _holder(port: int) -> str:
    """Who listens at `port`, where the kernel lets us know."""
    import psutil  # only for this error

    try:
        listening = [one for one in psutil.net_connections("tcp") if one.status == psutil.CONN_LISTEN and one.laddr]
        holders = {one.pid for one in listening if one.laddr.port == port and one.pid}  # type: ignore[union-attr]
        names = {f"{psutil.Process(holder).name()} (pid {holder})" for holder in holders}
    except psutil.Error:
        return ""
    return f"; {' and '.join(sorted(names))} listens there" if names else ""


def _expected(error: BaseException) -> LlmgwError | None:
    """The error to say in one line, when nothing else went wrong beside it."""
    if isinstance(error, BaseExceptionGroup):
        found = [_expected(one) for one in error.exceptions]
        return found[0] if None not in found else None
    return error if isinstance(error, LlmgwError) else None


def _say(error: LlmgwError) -> int:
    print(f"llmgwd: {safe(str(error), LINE)}", file=sys.stderr)
    return error.exit_status


if __name__ == "__main__":
    sys.exit(main())
