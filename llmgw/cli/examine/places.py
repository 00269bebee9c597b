"""Are the files and directories that a configuration names there, for the program's user and not for others?"""

import contextlib
import errno
import os
import stat
import tempfile
from collections.abc import Callable
from pathlib import Path

from llmgw.agent.patience import words
from llmgw.cli.examine.runner import Runner
from llmgw.cli.examine.user import as_root, user
from llmgw.config.tls import TlsFiles
from llmgw.core.checks import Check, Result, fault, ok, warning
from llmgw.core.inventory import Disk
from llmgw.core.symptoms import nearly_full
from llmgw.core.units import size
from llmgw.host.accounts import ENTER, READ, WRITE, name_of
from llmgw.host.room import room
from llmgw.host.units import hindrance
from llmgw.wire import pem

_FILES, _DIRECTORY, _DISK = "files", "directory", "disk"
_OTHERS = 0o077
"""Of a mode: whatever others than the owner may do."""
_AGAIN = "issue it on the machine with the authority (llmgw pki issue), or name another file under tls:"
_COPY = "copy it from the machine with the authority (there it is pki/root.crt), or name another file under tls:"
_FULL = (errno.ENOSPC, errno.EDQUOT)


def tls_files(files: TlsFiles, runner: Runner) -> list[Check]:
    """Whether the three files are there and what they should be, and the key is for the program's user only."""
    if pem.swapped(files):
        fact = f"tls.certificate and tls.key are swapped: {files.certificate} is a private key"
        return [fault(_FILES, fact, "exchange the two in the file"), _open_file(files.authority, runner, _COPY)]
    return [
        _open_file(files.certificate, runner, _AGAIN),
        _open_file(files.authority, runner, _COPY),
        _key(files.key, runner),
    ]


def own_file(path: Path, runner: Runner) -> list[Check]:
    """Whether the program can read its configuration; nothing is said where it can."""
    try:
        told = runner.unit and hindrance(runner.unit, path, READ)
    except OSError:
        return []  # told with its content
    return [fault(_FILES, *told)] if told else []


def readable(path: Path) -> bool:
    """Whether we may read the file."""
    return os.access(path, os.R_OK, effective_ids=True)


def is_key(path: Path) -> bool:
    """Whether a program may take it for its key: it can be read, and by its owner only."""
    return readable(path) and not path.stat().st_mode & _OTHERS


def _open_file(path: Path, runner: Runner, lacking: str) -> Check:
    try:
        mode = path.stat().st_mode
        told = runner.unit and hindrance(runner.unit, path, READ)
    except OSError as error:
        return _unseen(path, error, lacking)
    if not stat.S_ISREG(mode):
        return fault(_FILES, f"{path} is no file", lacking)
    if told:
        return fault(_FILES, *told)
    if not readable(path):
        return warning(_FILES, f"{path} cannot be read by {user()}", as_root())
    if mode & 0o022:
        return warning(_FILES, f"{path} has mode {mode & 0o777:04o}: others may write it", f"chmod 644 {path}")
    return ok(_FILES, f"{path} is there")


def _key(path: Path, runner: Runner) -> Check:
    try:
        seen = path.stat()
        told = runner.unit and hindrance(runner.unit, path, READ)
    except OSError as error:
        return _unseen(path, error, _AGAIN)
    mode, whose = seen.st_mode & 0o777, name_of(seen.st_uid)
    if not stat.S_ISREG(seen.st_mode):
        return fault(_FILES, f"{path} is no file", _AGAIN)
    if mode & _OTHERS:
        fix = f"chmod 600 {path}"
        if runner.unit is not None and runner.account.uid not in (0, seen.st_uid):
            fix = f"{fix}; chown {runner.account.name}: {path}"
        return fault(_FILES, f"{path} has mode {mode:04o}: a private key must be for its owner only", fix)
    if told:
        return fault(_FILES, *told)
    if not readable(path):
        return warning(_FILES, f"{path} is {whose}'s (mode {mode:04o}) and cannot be read by {user()}", as_root())
    return ok(_FILES, f"{path} has mode {mode:04o}, owner {whose}")


def _unseen(path: Path, error: OSError, lacking: str) -> Check:
    if isinstance(error, PermissionError):
        return warning(_FILES, f"{path} cannot be seen by {user()}", as_root())
    return fault(_FILES, f"{path} cannot be read: {words(OSError(error.errno, error.strerror or ''))}", lacking)


# --- directories ------------------------------------------------------------------------------------------------


def own_directory(path: Path, key: str, runner: Runner, *, private: bool) -> list[Check]:
    """Whether the program can keep its things in the directory that `key` names, and how much room there is.

    What is not there yet must be possible to make. `private`: others may not look into it.
    """
    directory = _seen(path, key, lambda: _kept(path, key, runner, private=private))
    if not _is_place(path):
        return [directory]
    space = _seen(path, key, lambda: _room(path, key, runner))
    # That it may be written says nothing where nothing can be.
    return [one for one in (directory, space) if one is space or one.fix or not _is_full(space)]


def _is_full(space: Check) -> bool:
    """Whether it says that nothing can be written there; what else may be in the way is told of the directory."""
    return (space.name, space.result) == (_DISK, Result.FAULT)


def _is_place(path: Path) -> bool:
    try:
        return _nearest(path).is_dir()
    except OSError:
        return False


def _seen(path: Path, key: str, look: Callable[[], Check]) -> Check:
    try:
        return look()
    except PermissionError:
        return warning(_DIRECTORY, f"{key} {path} cannot be seen by {user()}", as_root())
    except OSError as error:
        return fault(_DIRECTORY, f"{key} {path} cannot be used: {words(error)}", _elsewhere(key))


def _kept(path: Path, key: str, runner: Runner, *, private: bool) -> Check:
    at = _nearest(path)
    if runner.given(path) and (at != path or path.is_dir()):
        name = runner.unit.name if runner.unit else ""
        return ok(_DIRECTORY, f"{key} {path} is made for user {runner.account.name}, or given to it, by unit {name}")
    if at != path:
        if not at.is_dir():
            return fault(_DIRECTORY, f"{key} {path} cannot be made: {at} is no directory", _elsewhere(key))
        return _writable(at, f"{key} {path} is not there yet; {at}", key, runner)
    mode = path.stat().st_mode
    if not stat.S_ISDIR(mode):
        return fault(_DIRECTORY, f"{key} {path} is no directory", _elsewhere(key))
    barred = _writable(path, f"{key} {path}", key, runner)
    if not barred.fix and private and mode & _OTHERS:
        fact = f"{key} {path} has mode {mode & 0o777:04o}: others may look into it"
        return warning(_DIRECTORY, fact, f"chmod 700 {path}")
    return barred


def _elsewhere(key: str) -> str:
    return f"move it away, or name another directory with {key}:"


def _writable(path: Path, subject: str, key: str, runner: Runner) -> Check:
    if os.statvfs(path).f_flag & os.ST_RDONLY:
        return fault(_DIRECTORY, f"{subject} is on a read-only filesystem", f"remount it, or name another with {key}:")
    if runner.unit is not None:
        told = hindrance(runner.unit, path, READ | WRITE | ENTER)
        return fault(_DIRECTORY, f"{subject}: {told[0]}", told[1]) if told else _may_write(subject)
    if os.access(path, os.W_OK | os.X_OK, effective_ids=True):
        return _may_write(subject)
    seen = path.stat()
    mode, whose = seen.st_mode & 0o777, name_of(seen.st_uid)
    if seen.st_uid != os.geteuid():
        # Whose it should be is the program's user, and that need not be who asks.
        return warning(_DIRECTORY, f"{subject} is {whose}'s and cannot be written by {user()}", as_root())
    return fault(_DIRECTORY, f"{subject} cannot be written (mode {mode:04o}, owner {whose})", f"chmod 700 {path}")


def _may_write(subject: str) -> Check:
    return ok(_DIRECTORY, f"{subject} can be written")


def _room(path: Path, key: str, runner: Runner) -> Check:
    """How much is free where the directory is, or will be made."""
    at = _nearest(path)
    total, free = room(at)
    fact, fix = f"{path}: {size(free)} of {size(total)} free", f"free some space there, or name another with {key}:"
    # What a filesystem keeps for root is no room for others.
    why = os.strerror(errno.ENOSPC).lower() if total and not free and runner.account.uid != 0 else _refused(at)
    if why:
        return fault(_DISK, f"{fact}: nothing can be written ({why})", fix)
    if nearly_full(Disk(directory=str(path), total=total, free=free)):
        return warning(_DISK, fact, fix)
    return ok(_DISK, fact)


def _refused(directory: Path) -> str:
    """Why the storage takes nothing more, empty where it does or we may not try; nothing is left there."""
    try:
        with tempfile.TemporaryFile(dir=directory) as file:
            file.write(bytes(4096))
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        return os.strerror(error.errno).lower() if error.errno in _FULL else ""
    return ""


def _nearest(path: Path) -> Path:
    """As `nearest` of host.room, but raises PermissionError where we may not see what is there."""
    for one in (path, *path.parents):
        # Below what is no directory nothing is.
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            one.lstat()
            return one
    return Path("/")
