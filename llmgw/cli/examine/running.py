"""What runs already: who holds a lock, and who listens on which port?"""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from llmgw.agent.launch import pids
from llmgw.agent.launch.marks import marks

_LOCKS = Path("/proc/locks")
_MOST = 4 << 20


@dataclass(frozen=True, slots=True)
class Listener:
    """A process that listens on a TCP port."""

    port: int
    pid: int | None
    """None where the kernel does not let us know."""
    name: str

    def __str__(self) -> str:
        return f"{self.name} (pid {self.pid})" if self.pid else "another user's program"


def holder(lock: Path) -> int | None:
    """The process that holds a lock on the file, None when there is none; nothing is locked to find out.

    Raises OSError when the file cannot be looked at; a file that is not there is held by nobody.
    """
    try:
        seen = lock.stat()
    except FileNotFoundError:
        return None
    with _LOCKS.open("rb") as file:
        lines = file.read(_MOST).decode("ascii", "replace").splitlines()
    # `1: FLOCK  ADVISORY  WRITE 1234 08:02:131100 0 EOF`, by proc(5)
    for words in map(str.split, lines):
        if len(words) > 5 and words[1] == "FLOCK" and _is(words[5], seen):
            return int(words[4]) if words[4].isdecimal() else None
    return None


def _is(said: str, seen: os.stat_result) -> bool:
    """Whether MAJOR:MINOR:INODE is the file; without a device of its own (overlay, btrfs) stat may give another."""
    device, _, inode = said.rpartition(":")
    major, minor = os.major(seen.st_dev), os.minor(seen.st_dev)
    return inode == str(seen.st_ino) and (major == 0 or device == f"{major:02x}:{minor:02x}")


def listeners() -> list[Listener]:
    """All that listens on a TCP port of this host, once a port and process; none where the kernel does not say."""
    import psutil

    try:
        everybody = psutil.net_connections("tcp")
    except psutil.Error:
        return []
    found = dict[tuple[int, int | None], Listener]()
    for one in everybody:
        if one.status == psutil.CONN_LISTEN and one.laddr:
            port = one.laddr.port
            found[port, one.pid] = Listener(port, one.pid, _name(one.pid))
    return [found[key] for key in sorted(found, key=lambda key: (key[0], key[1] or 0))]


def is_engine(pid: int) -> bool:
    """Whether the process is an engine of an agent of ours, or may be one because we are not told."""
    environment = pids.environment(pid)
    return not environment or bool(marks(environment))


def on(port: int, everybody: list[Listener]) -> Iterator[Listener]:
    """Those who listen on a port."""
    return (one for one in everybody if one.port == port)


def _name(pid: int | None) -> str:
    if pid is None:
        return ""
    arguments = pids.arguments(pid)
    return os.path.basename(arguments[0])[:40] if arguments else "unknown"
