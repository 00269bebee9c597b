"""Keys and certificates on disk: complete or not there, never overwritten, a key never readable by others."""

import os
from pathlib import Path

from llmgw.core.errors import Rejected
from llmgw.host import files


class CannotIssue(Rejected):
    """An authority or certificate that cannot be made like this; nothing was written."""

    code = "cannot_issue"

    def __init__(self, subject: str, fact: str, way_out: str = "") -> None:
        super().__init__(subject, fact, way_out)
        self.subject, self.fact, self.way_out = subject, fact, way_out

    def __str__(self) -> str:
        return f"{self.subject}: {self.fact}" + (f"; {self.way_out}" if self.way_out else "")


def make_directory(path: Path, *, private: bool) -> None:
    """Make the directory where it is missing; a private one is ours alone."""
    try:
        path.mkdir(mode=0o700 if private else 0o755, parents=True, exist_ok=True)
    except OSError as error:
        raise _cannot(path, error) from None


def refuse_existing(*paths: Path) -> None:
    """Raise CannotIssue naming the first of `paths` that is there already."""
    for path in paths:
        if os.path.lexists(path):
            raise CannotIssue(str(path), "exists already", "move it away, or choose another place")


def write(path: Path, content: bytes, *, private: bool) -> None:
    """Write a new file of mode 0600 or 0644. It appears whole; what is there already is refused, not replaced."""
    try:
        files.create(path, content, mode=0o600 if private else 0o644)
    except FileExistsError:
        refuse_existing(path)
        raise
    except OSError as error:
        raise _cannot(path, error) from None


def read(path: Path, *, private: bool = False) -> bytes:
    """The content; a private file that others may read is refused."""
    try:
        content, mode = files.read(path)
    except files.Unfit as unfit:
        raise CannotIssue(str(path), str(unfit)) from None
    except OSError as error:
        raise _cannot(path, error) from None
    if private and mode & 0o077:
        raise CannotIssue(str(path), f"has mode {mode:04o}, others may read it", f"chmod 600 {path}")
    return content


def _cannot(path: Path, error: OSError) -> CannotIssue:
    return CannotIssue(str(path), (error.strerror or str(error)).lower())
