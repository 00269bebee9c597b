"""Are the files and directories that a configuration names there, ours and not open to others, and is there room?"""

import os
import stat
from collections.abc import Callable
from pathlib import Path

from llmgw.agent.patience import words
from llmgw.cli.examine.user import AS_ROOT, owner, user
from llmgw.config.tls import TlsFiles
from llmgw.core.checks import Check, fault, ok, warning
from llmgw.core.inventory import Disk
from llmgw.core.symptoms import nearly_full
from llmgw.core.units import size
from llmgw.host.room import nearest, room

_FILES, _DIRECTORY, _DISK = "files", "directory", "disk"
_OTHERS = 0o077
"""Of a mode: whatever others than the owner may do."""
_AGAIN = "make it with `llmgw pki issue`, or name another file under tls:"


def tls_files(files: TlsFiles) -> list[Check]:
    """Whether the three files are there, and the key is for its owner only."""
    return [_certificate(files.certificate), _certificate(files.authority), _key(files.key)]


def readable(path: Path) -> bool:
    """Whether we may read the file."""
    return os.access(path, os.R_OK, effective_ids=True)


def is_key(path: Path) -> bool:
    """Whether a program may take it for its key: it can be read, and by its owner only."""
    return readable(path) and not path.stat().st_mode & _OTHERS


def _certificate(path: Path) -> Check:
    try:
        mode = path.stat().st_mode
    except OSError as error:
        return _unseen(path, error)
    if not stat.S_ISREG(mode):
        return fault(_FILES, f"{path} is no file", _AGAIN)
    if not readable(path):
        return warning(_FILES, f"{path} cannot be read by {user()}", AS_ROOT)
    if mode & 0o022:
        return warning(_FILES, f"{path} has mode {mode & 0o777:04o}: others may write it", f"chmod 644 {path}")
    return ok(_FILES, f"{path} is there")


def _key(path: Path) -> Check:
    try:
        seen = path.stat()
    except OSError as error:
        return _unseen(path, error)
    mode, whose = seen.st_mode & 0o777, owner(seen.st_uid)
    if not stat.S_ISREG(seen.st_mode):
        return fault(_FILES, f"{path} is no file", _AGAIN)
    if mode & _OTHERS:
        return fault(
            _FILES, f"{path} has mode {mode:04o}: a private key must be for its owner only", f"chmod 600 {path}"
        )
    if not readable(path):
        return warning(_FILES, f"{path} is {whose}'s (mode {mode:04o}) and cannot be read by {user()}", AS_ROOT)
    return ok(_FILES, f"{path} has mode {mode:04o}, owner {whose}")


def _unseen(path: Path, error: OSError) -> Check:
    if isinstance(error, PermissionError):
        return warning(_FILES, f"{path} cannot be seen by {user()}", AS_ROOT)
    return fault(_FILES, f"{path} cannot be read: {words(OSError(error.errno, error.strerror or ''))}", _AGAIN)


def own_directory(path: Path, key: str, *, private: bool) -> list[Check]:
    """Whether the program can keep its things in the directory that `key` names.

    What is not there yet must be possible to make. `private`: others may not look into it.
    """
    return _seen(path, key, lambda: [_kept(path, key, private=private)])


def free_space(path: Path, key: str) -> list[Check]:
    """How much is free where the directory is, or will be made."""
    return _seen(path, key, lambda: [_free(path)])


def _seen(path: Path, key: str, look: Callable[[], list[Check]]) -> list[Check]:
    try:
        return look()
    except PermissionError:
        return [warning(_DIRECTORY, f"{key} {path} cannot be seen by {user()}", AS_ROOT)]
    except OSError as error:
        return [fault(_DIRECTORY, f"{key} {path} cannot be used: {words(error)}", _elsewhere(key))]


def _kept(path: Path, key: str, *, private: bool) -> Check:
    if not os.path.lexists(path):
        above = nearest(path)
        if not above.is_dir():
            return fault(_DIRECTORY, f"{key} {path} cannot be made: {above} is no directory", _elsewhere(key))
        return _writable(above, f"{key} {path} is not there yet; {above}", key)
    mode = path.stat().st_mode
    if not stat.S_ISDIR(mode):
        return fault(_DIRECTORY, f"{key} {path} is no directory", _elsewhere(key))
    if private and mode & _OTHERS:
        fact = f"{key} {path} has mode {mode & 0o777:04o}: others may look into it"
        return warning(_DIRECTORY, fact, f"chmod 700 {path}")
    return _writable(path, f"{key} {path}", key)


def _elsewhere(key: str) -> str:
    return f"move it away, or name another directory with {key}:"


def _writable(path: Path, subject: str, key: str) -> Check:
    if os.access(path, os.W_OK | os.X_OK, effective_ids=True):
        return ok(_DIRECTORY, f"{subject} can be written")
    seen = path.stat()
    if os.statvfs(path).f_flag & os.ST_RDONLY:
        return fault(_DIRECTORY, f"{subject} is on a read-only filesystem", f"remount it, or name another with {key}:")
    mode, whose = seen.st_mode & 0o777, owner(seen.st_uid)
    if seen.st_uid != os.geteuid():
        fact = f"{subject} is {whose}'s and cannot be written by {user()}"
        return warning(_DIRECTORY, fact, f"{AS_ROOT}; or give it to the user that runs the program")
    return fault(_DIRECTORY, f"{subject} cannot be written (mode {mode:04o}, owner {whose})", f"chmod 700 {path}")


def _free(path: Path) -> Check:
    total, free = room(nearest(path))
    fact, fix = f"{path}: {size(free)} of {size(total)} free", "free some space there, or name another directory"
    if total and not free:
        return fault(_DISK, fact, fix)
    if nearly_full(Disk(directory=str(path), total=total, free=free)):
        return warning(_DISK, fact, fix)
    return ok(_DISK, fact)
