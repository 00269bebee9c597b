"""Can the store be where server.yaml says, and is it ours alone?

The lock is a file beside the store, for SQLite's own would let a second llmgwd in between two writes.
"""

import fcntl
import os
import tempfile
from pathlib import Path

from llmgw.core.errors import BadConfig, ClusterCannot
from llmgw.host.accounts import name_of
from llmgw.host.room import nearest


def check(path: Path) -> None:
    """Raise BadConfig unless a store can be at `path`; nothing is left there."""
    above = nearest(path.parent)
    if not above.is_dir():
        raise _bad(path, f"{above} is not a directory; move it away, or name another `store:`")
    try:
        tempfile.TemporaryFile(dir=above).close()  # root may do everything, but not on every file system
    except OSError as error:
        fact = f"{above} cannot be written by {_user()}: {(error.strerror or str(error)).lower()}"
        raise _bad(path, f"{fact}; give it to that user, or name another `store:`") from None
    for file in (path, lock_file(path)):
        if not os.path.lexists(file):
            continue
        if not file.is_file():
            raise _bad(path, f"{file} is not a file; move it away, or name another `store:`")
        if not os.access(file, os.R_OK | os.W_OK):
            raise _bad(path, f"{file} cannot be read and written by {_user()}; give it to that user")


def refuse_if_held(path: Path) -> None:
    """Raise ClusterCannot when another llmgwd has the store; nothing is made or changed."""
    try:
        descriptor = os.open(lock_file(path), os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return  # never locked, or `take` says why not
    try:
        _lock(path, descriptor)
    finally:
        os.close(descriptor)


def held(path: Path) -> bool:
    """Whether a llmgwd has the store."""
    try:
        refuse_if_held(path)
    except ClusterCannot:
        return True
    return False


def take(path: Path) -> int:
    """Take the store's lock; the kernel gives it back when this process ends, however it ends."""
    beside = lock_file(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(beside, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise _bad(path, f"cannot be locked: {beside.name}: {error.strerror}") from None
    try:
        _lock(path, descriptor)
    except ClusterCannot:
        os.close(descriptor)
        raise
    os.ftruncate(descriptor, 0)
    os.write(descriptor, f"{os.getpid()}\n".encode())
    return descriptor


def _lock(path: Path, descriptor: int) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        holder = os.read(descriptor, 32).decode("ascii", "replace").strip()
        who = f"llmgwd (pid {holder})" if holder.isdecimal() else "another llmgwd"
        raise ClusterCannot(f"{path}: is in use by {who}; stop that one, or name another `store:`") from None
    except OSError as error:
        raise ClusterCannot(f"{path}: cannot be locked: {error.strerror}; keep it on a local disk") from None


def lock_file(path: Path) -> Path:
    """The file whose lock says that a llmgwd has the store."""
    return path.with_name(path.name + ".lock")


def _bad(path: Path, fact: str) -> BadConfig:
    return BadConfig(str(path), None, "", fact)


def _user() -> str:
    return name_of(os.geteuid())
