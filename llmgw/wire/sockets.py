"""Sockets to listen on; what stands in the way is said in one line."""

import errno
import grp
import os
import socket
import stat
from pathlib import Path

from llmgw.core.errors import LlmgwError, Rejected
from llmgw.host.reason import reason
from llmgw.wire.peers import address_text


def tcp(host: str, port: int, key: str = "listen") -> socket.socket:
    """Listen at `host`:`port`; Rejected when that cannot be had, which names the `key` of the file that says it."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, _, _, _, address = found[0]
        return socket.create_server(address[:2], family=family, backlog=1024)
    except OSError as error:
        raise _cannot_listen(address_text((host, port)), error, key) from None


def unix(path: Path, group: str | None) -> socket.socket:
    """Listen at `path` for root, our own user and `group`; a socket that nobody listens on any more is replaced."""
    gid = _group_id(group)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        _clear(path)
        before = os.umask(0o177)
        try:
            listener.bind(str(path))
        finally:
            os.umask(before)
        if gid is not None:
            os.chown(path, -1, gid)
            path.chmod(0o660)
        listener.listen(128)
    except OSError as error:
        listener.close()
        raise _cannot_listen(str(path), error, "socket") from None
    except LlmgwError:
        listener.close()
        raise
    return listener


def remove(path: Path) -> None:
    """Take a socket's name away."""
    path.unlink(missing_ok=True)


def _cannot_listen(where: str, error: OSError, key: str) -> Rejected:
    way = "stop what listens there, or give another" if error.errno == errno.EADDRINUSE else "give another"
    return Rejected(f"cannot listen at {where}: {reason(error)}; {way} address with {key}: in server.yaml")


def _group_id(group: str | None) -> int | None:
    if group is None:
        return None
    try:
        return grp.getgrnam(group).gr_gid
    except KeyError:
        raise Rejected(
            f"group {group!r} does not exist; `adduser --system --group {group}` makes it, or leave it out"
        ) from None


def _clear(path: Path) -> None:
    """Remove a socket that nobody listens on any more."""
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(mode):
        raise Rejected(f"cannot listen at {path}: something that is no socket is there; move it away")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as knock:
        knock.setblocking(False)
        try:
            knock.connect(str(path))
        except ConnectionRefusedError:
            path.unlink(missing_ok=True)
            return
        except BlockingIOError:
            pass  # its queue is full: somebody listens
    raise Rejected(f"cannot listen at {path}: another program does; stop it first")
