"""What does this node give to others? Files that it downloaded, by their digest, to agents of its own cluster."""

import asyncio
import logging
import socket
from collections.abc import Callable, Collection
from pathlib import Path

from llmgw.agent.launch.ports import NoPort
from llmgw.agent.leases import Leases, NoAddress
from llmgw.config.tls import TlsFiles
from llmgw.core.engines.digests import digits
from llmgw.core.errors import LlmgwError
from llmgw.core.facts import Exposure
from llmgw.host.reason import reason
from llmgw.host.threads import aside
from llmgw.wire import rehearsal, tls
from llmgw.wire.files import ROLES, FilesService
from llmgw.wire.server import Limits, RpcServer

_log = logging.getLogger(__name__)

LIMITS = Limits(connections=4, streams=8, held=1 << 20)
"""Another agent reads a file or a few, each over a connection of its own."""
_READERS = 16
"""Files read at once: a node that fills others must still serve its models."""
_TRIES = 3
"""Ports, of which another program may take the one that was free a moment ago."""


class _CannotServe(Exception):
    """The text says why, with the way out."""


class FileServer:
    """Serves what is whole in `directory`, on a port of engine_ports; `run` it in one task.

    `port` is what to tell others once `settled` is set: None while nothing is served, and the log says why.
    """

    def __init__(
        self, leases: Leases, files: TlsFiles, cluster: str, directory: Path, in_use: Callable[[], Collection[int]]
    ) -> None:
        self._leases, self._files, self._cluster, self._directory = leases, files, cluster, directory
        self._in_use = in_use
        self.port: int | None = None
        self.settled = asyncio.Event()

    async def run(self) -> None:
        """Serve until cancelled; returns where nothing can be served."""
        try:
            await self._run()
        except (LlmgwError, NoAddress, NoPort, _CannotServe) as error:
            _log.warning("this node gives no files to others: %s", error)
        finally:
            self.port = None
            self.settled.set()

    async def _run(self) -> None:
        if refused := await aside(rehearsal.refusal, self._files, serves=True):
            raise _CannotServe(
                f"certificate {self._files.certificate}: {refused}; issue a new one with `llmgw pki issue`"
            )
        host = await self._leases.host(Exposure.DIRECT)
        for left in reversed(range(_TRIES)):
            try:
                return await self._serve(host)
            except OSError as error:
                if not left:
                    raise _CannotServe(f"nothing can listen at {host}: {reason(error)}") from None

    async def _serve(self, host: str) -> None:
        context = await aside(tls.server_context, self._files)
        server = RpcServer([FilesService(self.held, most=_READERS)], roles=ROLES, cluster=self._cluster, limits=LIMITS)
        with self._leases.port(host, self._in_use()) as port:
            try:
                await server.listen_at(_listening(host, port), context)
                self.port = port
                self.settled.set()
                _log.info("files for other nodes at port %d", port)
                await asyncio.Event().wait()
            finally:
                self.port = None
                await server.close()

    def held(self, digest: str) -> Path | None:
        """Where the file of this digest is, if it is here; what is not whole has another name."""
        name = digits(digest)
        return self._directory / name if name else None


def _listening(host: str, port: int) -> socket.socket:
    family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
    return socket.create_server(address[:2], family=family, backlog=64)
