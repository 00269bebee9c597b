"""How is a file read that may be anything, and replaced so that a power cut leaves the old or the new one, whole?"""

import contextlib
import hashlib
import os
import stat
from pathlib import Path

MOST = 1 << 20
"""Bytes of a file that `read` takes: keys and certificates are a few thousand."""


class Unfit(Exception):
    """What stands there cannot be such a file; the text is the rule that it breaks."""


def read(path: Path, most: int = MOST) -> tuple[bytes, int]:
    """The content of a regular file of at most `most` bytes, and its mode. Raises OSError, and Unfit for what a reader
    would wait for or never come to the end of: a pipe, a device, a file that is larger."""
    with open(path, "rb", opener=at_once) as file:
        mode = os.fstat(file.fileno()).st_mode
        if not stat.S_ISREG(mode):
            raise Unfit("must be a regular file")
        content = file.read(most + 1)
    if len(content) > most:
        raise Unfit(f"must be at most {most >> 20} MiB large")
    return content, stat.S_IMODE(mode)


def digest(path: Path) -> str:
    """Of a whole file, as releases write it: `sha256:` and 64 hexadecimal digits. Blocks; raises OSError."""
    with path.open("rb", buffering=0) as file:
        return f"sha256:{hashlib.file_digest(file, 'sha256').hexdigest()}"


def at_once(path: str, flags: int) -> int:
    """An `opener` that waits for no writer where a pipe stands."""
    return os.open(path, flags | os.O_NONBLOCK)


def replace(path: Path, content: bytes, *, mode: int = 0o600) -> None:
    """Put `content` in the place of whatever `path` was; it is on the disk when this returns. Raises OSError.

    One writer at a time: two that replace the same file at once may fail, they never mix what they write.
    """
    beside = path.with_name(f".{path.name}.new")
    _write(beside, content, mode)
    try:
        os.replace(beside, path)
    except OSError:
        _remove(beside)
        raise
    settle(path.parent)


def create(path: Path, content: bytes, *, mode: int = 0o600) -> None:
    """Write a file that was not there; it appears whole. Raises FileExistsError where something is, OSError."""
    beside = path.with_name(f".{path.name}.{os.getpid()}.new")  # people do run one command twice at once
    _write(beside, content, mode)
    try:
        os.link(beside, path)  # unlike a rename, this fails where something stands
    finally:
        _remove(beside)
    settle(path.parent)


def _write(path: Path, content: bytes, mode: int) -> None:
    """Write a new file, whole and on the disk, or not at all."""
    # Left over from a cut: whose mode and content it has is unknown.
    with contextlib.suppress(FileNotFoundError):
        path.unlink()
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        with open(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fchmod(handle, mode)  # whatever the umask says
            os.fsync(handle)
    except OSError:
        _remove(path)  # half a file holds space that a full disk needs
        raise


def _remove(path: Path) -> None:
    with contextlib.suppress(OSError):
        path.unlink()


def settle(directory: Path) -> None:
    """Bring what came into a directory, or went, to the disk. Raises OSError."""
    handle = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
