"""What did an engine print last? Its log is a file that it appends to; it is kept short here and read from its end."""

import contextlib
import os
from pathlib import Path

LONGEST = 8 << 20
"""Bytes of a log before its older part is cut away."""
KEPT = 1 << 20
"""Bytes that live on when that happens."""
LINES, LINE = 40, 500
"""How many last lines are told, and the most characters of each."""


def previous(log: Path) -> Path:
    """Where what was printed before is found: by the last launch, or before the log was cut."""
    return log.with_name(log.name + ".1")


def fresh(log: Path) -> None:
    """Put the last launch's log aside and begin an empty one that only we can read."""
    with contextlib.suppress(FileNotFoundError):
        log.replace(previous(log))
    os.close(os.open(log, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC, 0o600))


def bound(log: Path, longest: int = LONGEST, kept: int = KEPT) -> None:
    """Keep the log short. The engine holds the file open, so it is emptied in place; what it prints between copying
    and emptying is lost. Raises OSError; four times too long it is emptied even where no copy can be made, since it
    may be what fills the disk."""
    try:
        length = log.stat().st_size
    except FileNotFoundError:
        return
    if length <= longest:
        return
    try:
        previous(log).write_bytes(_end(log, kept))
        previous(log).chmod(0o600)
    except OSError:
        if length <= 4 * longest:
            raise
    os.truncate(log, 0)


def tail(log: Path, launched_at: float = 0.0) -> tuple[str, ...]:
    """Return the last lines that an engine launched at `launched_at` printed, also when its log was just cut."""
    text = _end(log, LINES * LINE * 4)
    lines = _lines(text)
    if len(lines) < LINES:
        with contextlib.suppress(OSError):
            # Of this launch, not of the one before it: it was written after the launch.
            if previous(log).stat().st_mtime > launched_at > 0:
                lines = [*_lines(_end(previous(log), LINES * LINE * 4)), *lines]
    return tuple(line[:LINE] for line in lines[-LINES:])


def _lines(raw: bytes) -> list[str]:
    return [line for line in raw.decode("utf-8", "replace").split("\n") if line.strip()]


def _end(path: Path, length: int) -> bytes:
    """The last `length` bytes, from the first whole line of them on."""
    try:
        with path.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - length))
            raw = file.read(length)
    except OSError:
        return b""
    return raw.partition(b"\n")[2] if size > length and b"\n" in raw else raw
