"""How does the agent keep what it must not lose? Whole files: a power cut leaves the old or the new one."""

import contextlib
import hashlib
import os
from pathlib import Path

_MOST = 16 << 20


class Damaged(Exception):
    """A kept file that does not hold what was written into it."""


def write(path: Path, text: str) -> None:
    """Replace `path` by `text` at once, readable by us alone, on the disk when this returns. Raises OSError."""
    body = text.encode()
    _replace(path, b"sha256 " + hashlib.sha256(body).hexdigest().encode() + b"\n" + body)


def read(path: Path) -> str | None:
    """Return what `write` wrote, None when there is no such file. Raises Damaged (file and fact) and OSError."""
    try:
        with path.open("rb") as file:
            raw = file.read(_MOST + 1)
    except FileNotFoundError:
        return None
    head, _, body = raw.partition(b"\n")
    if len(raw) > _MOST or head != b"sha256 " + hashlib.sha256(body).hexdigest().encode():
        raise Damaged(f"{path} is damaged: its content does not match its checksum")
    return body.decode()


def put_aside(path: Path) -> Path:
    """Rename a damaged file, so that it can be looked at and is not read again."""
    aside = path.with_name(path.name + ".damaged")
    with contextlib.suppress(OSError):
        path.replace(aside)
    return aside


def write_secret(path: Path, secret: str) -> None:
    """Write a file that nobody else can read at any moment."""
    _replace(path, secret.encode() + b"\n")


def make_private(directory: Path) -> None:
    """Make the directory, and let nobody else in. Raises OSError."""
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    directory.chmod(0o700)


def _replace(path: Path, content: bytes) -> None:
    beside = path.with_name(f".{path.name}.new")
    # Left over from a cut: whose mode and content it has is unknown.
    with contextlib.suppress(FileNotFoundError):
        beside.unlink()
    handle = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    with open(handle, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    beside.replace(path)
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
