"""How does the agent keep what it must not lose? Whole files: a power cut leaves the old or the new one."""

import contextlib
import hashlib
from pathlib import Path

from llmgw.host import files

_MOST = 16 << 20


class Damaged(Exception):
    """A kept file that does not hold what was written into it."""


def write(path: Path, text: str) -> None:
    """Replace `path` by `text` at once, readable by us alone, on the disk when this returns. Raises OSError."""
    body = text.encode()
    files.replace(path, b"sha256 " + hashlib.sha256(body).hexdigest().encode() + b"\n" + body)


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
    files.replace(path, secret.encode() + b"\n")


def make_private(directory: Path) -> None:
    """Make the directory, and let nobody else in. Raises OSError.

    What is as it should be is not touched: also a disk that takes no more writes may hold what we need.
    """
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    if directory.stat().st_mode & 0o777 != 0o700:
        directory.chmod(0o700)
