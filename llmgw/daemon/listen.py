"""Where does the control plane listen, and what is in the way when it cannot?"""

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from socket import socket

from llmgw.config.address import Address
from llmgw.config.server import ServerConfig
from llmgw.core.errors import Rejected, Unreachable
from llmgw.wire import sockets
from llmgw.wire.server import RpcServer
from llmgw.wire.tls import server_context


class CannotListen(Unreachable):
    """An address of server.yaml cannot be listened at."""

    code = "cannot_listen"

    def __init__(self, text: str) -> None:
        super().__init__(text)


def probe(config: ServerConfig) -> None:
    """Bind every address for a moment, or raise CannotListen; nothing is left either way.

    For the time before the store is opened: what cannot listen must not write there that it started.
    """
    probe_tcp(config)
    if config.socket is None:
        return
    made = [one for one in config.socket.parents if not os.path.lexists(one)]
    with _said_of(config.socket):
        try:
            config.socket.parent.mkdir(parents=True, exist_ok=True)
            listener = sockets.unix(config.socket, config.socket_group)
            listener.close()
            sockets.remove(config.socket)
        finally:
            for directory in made:
                with suppress(OSError):  # not made after all, or no longer ours alone
                    directory.rmdir()


def probe_tcp(config: ServerConfig) -> None:
    """The same for `listen` and `metrics` alone."""
    for key, address in (("listen", config.listen), ("metrics", config.metrics)):
        if address is not None:
            opened(address, key).close()


def opened(at: Address, key: str) -> socket:
    """A socket that listens there, or CannotListen, which names the key of server.yaml."""
    with _said(at.port):
        return sockets.tcp(at.host, at.port, key)


async def listen(server: RpcServer, config: ServerConfig) -> str:
    """Open all sockets, or raise CannotListen; return where."""
    host, asked = config.listen.host, config.listen.port
    with _said(asked):
        port = await server.listen_tls(host, asked, server_context(config.tls))
    where = [f"[{host}]:{port}" if ":" in host else f"{host}:{port}"]
    if config.socket is not None:
        where.append(str(config.socket))
        with _said_of(config.socket):
            config.socket.parent.mkdir(parents=True, exist_ok=True)
            await server.listen_unix(config.socket, group=config.socket_group)
    return " and ".join(where)


@contextmanager
def _said(port: int) -> Iterator[None]:
    try:
        yield
    except Rejected as error:
        in_use = os.strerror(errno.EADDRINUSE).lower() in str(error)
        raise CannotListen(f"{error}{_holder(port) if in_use else ''}") from None


@contextmanager
def _said_of(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise CannotListen(f"cannot listen at {path}: {(error.strerror or str(error)).lower()}") from None
    except Rejected as error:
        raise CannotListen(str(error)) from None


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
