"""How is a router wired, started and stopped? Top to bottom in `Router.run`."""

import asyncio
import contextlib
import errno
import logging
import resource
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from llmgw import __version__
from llmgw.core.errors import BadConfig
from llmgw.core.units import several
from llmgw.host.systemd import READY, STOPPING, keep_alive, notify, status
from llmgw.router.access import AccessLog
from llmgw.router.api import PATHS, Gateway
from llmgw.router.exchange import Exchanges
from llmgw.router.feed import Feed, Watch
from llmgw.router.limits import Limits
from llmgw.router.reach import Dial, Reaching
from llmgw.router.server import ClientConnection, Shared
from llmgw.router.table import Table

if TYPE_CHECKING:
    from llmgw.config.router import RouterConfig

log = logging.getLogger(__name__)

_LAST_WORDS = 0.5
"""Seconds that answers which were ended get to reach their clients."""


class Router:
    """One router process."""

    def __init__(
        self,
        config: "RouterConfig",
        *,
        machine: str,
        watch: Watch,
        dial: Dial | None = None,
        file: str = "router.yaml",
    ) -> None:
        """`machine` is this machine's id, `file` where `config` stands.

        `watch` opens a stream of route tables; `dial` a control plane that asks which nodes are reached, None for none.
        """
        self._config, self._machine, self._watch, self._dial, self._file = config, machine, watch, dial, file
        self.port = 0
        """The port that is listened on, once `ready` is set."""
        self.ready = asyncio.Event()
        self._stop = asyncio.Event()
        self._patience: asyncio.Timeout | None = None
        self._hurry = False

    def stop(self) -> None:
        """Drain and end; a second call ends it at once."""
        self._hurry = self._stop.is_set()
        if self._hurry and self._patience is not None and not self._patience.expired():
            self._patience.reschedule(0.0)
        self._stop.set()

    async def run(self, access_fd: int = 1) -> None:
        """Serve until told to stop; raises BadConfig when it cannot listen or has no place for its state."""
        config = self._config
        self._make_state()
        limits = Limits(max_body=config.max_body, connections=_most_connections())
        clock = asyncio.get_running_loop().time
        async with asyncio.TaskGroup() as group:
            access = AccessLog(access_fd, PATHS)
            table = Table(self._machine, limits, clock)
            feed = Feed(table, self._watch, config.state)
            exchanges = Exchanges(group, table, access, clock)
            clients = Shared(Gateway(table, exchanges, lambda: self._health(feed, table, exchanges)), limits, clock)
            feed.recall()
            server = await self._listen(clients)
            running = [
                group.create_task(access.run(), name="access log"),
                group.create_task(feed.run(), name="feed"),
                group.create_task(feed.keep(), name="route file"),
                group.create_task(_tick(limits.tick, clients, table, clock), name="deadlines"),
                group.create_task(keep_alive(lambda: True), name="watchdog"),
            ]
            if self._dial is not None:
                running.append(group.create_task(Reaching(self._machine, self._dial).run(), name="reaching"))
            log.info("llmgw-router %s on %s:%d", __version__, config.listen.host, self.port)
            notify(READY, status(f"serving on {config.listen.host}:{self.port}"))
            self.ready.set()
            await self._stop.wait()
            notify(STOPPING, status(f"draining for up to {config.drain:g} s"))
            server.close()
            await self._drain(clients, exchanges)
            await _within(_LAST_WORDS, feed.save())
            table.close()
            for task in (*running, *exchanges.connecting):
                task.cancel()

    def _make_state(self) -> None:
        state = self._config.state
        try:
            state.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise BadConfig(self._file, None, "state", f"{state} cannot be made: {error.strerror}") from None

    async def _listen(self, clients: Shared) -> asyncio.Server:
        where = self._config.listen
        try:
            server = await asyncio.get_running_loop().create_server(
                lambda: ClientConnection(clients), where.host, where.port, backlog=1024, reuse_port=False
            )
        except OSError as error:
            rule = f"cannot listen on {where}: {error.strerror or error}"
            if error.errno == errno.EADDRINUSE:
                rule = f"{where} is in use by another program; stop it, or name another port"
            raise BadConfig(self._file, None, "listen", rule) from None
        self.port = server.sockets[0].getsockname()[1]
        return server

    async def _drain(self, clients: Shared, exchanges: Exchanges) -> None:
        """Let running answers end, for as long as `drain` says; then end them."""
        log.info("stopping: %s left, at most %g s more", several(len(exchanges.running), "request"), self._config.drain)
        clients.draining = True
        for connection in list(clients.connections):
            connection.leave()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(0.0 if self._hurry else self._config.drain) as self._patience:
                await clients.empty.wait()
        self._patience = None
        if clients.connections:
            log.warning("ending %s too early", several(len(exchanges.running), "answer"))
            exchanges.stop()
            await _within(_LAST_WORDS, clients.empty.wait())
            for connection in list(clients.connections):
                connection.abort()

    def _health(self, feed: Feed, table: Table, exchanges: Exchanges) -> dict[str, object]:
        state = "draining" if self._stop.is_set() else "no_routes" if table.revision is None else "ok"
        return {
            "status": state,
            "routes": "live" if feed.live else "kept" if table.revision else "none",
            "revision": str(table.revision) if table.revision else None,
            "in_flight": len(exchanges.running),
            "drain": self._config.drain,
        }


async def _within(seconds: float, what: Awaitable[object]) -> None:
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await what


async def _tick(tick: float, clients: Shared, table: Table, clock: Callable[[], float]) -> None:
    while True:
        await asyncio.sleep(tick)
        clients.sweep()
        table.sweep(clock())


def _most_connections() -> int:
    """Clients that are taken: each may need a connection to an engine too. Asks for all files that are allowed."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return max(16, min(Limits().connections, (hard - 64) // 2))
