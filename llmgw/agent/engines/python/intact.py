"""Is all of an environment there still? Every file that its packages list, by its size, and its interpreter."""

import csv
import os
from collections.abc import Iterator
from pathlib import Path

from llmgw.agent.engines.python.fault import EnvironmentFault
from llmgw.agent.engines.python.names import site_packages

_MOST_RECORD = 64 << 20
"""Bytes of a package's list; that of torch is two million."""


def intact(tree: Path) -> None:
    """Raise EnvironmentFault for the first file that is not as it was installed. Reads no file but the lists."""
    python = tree / "bin" / "python"
    if not os.access(python, os.X_OK):
        aim = os.readlink(python) if python.is_symlink() else str(python)
        raise EnvironmentFault(f"its interpreter {aim} is gone")
    place = site_packages(tree)
    for record in sorted(place.glob("*.dist-info/RECORD")):
        package = record.parent.name.removesuffix(".dist-info").replace("-", " ")
        for name, size in _listed(record):
            _see(package, place / name, size)


def _listed(record: Path) -> Iterator[tuple[str, int | None]]:
    if record.stat().st_size > _MOST_RECORD:
        raise EnvironmentFault(f"{record}: is larger than {_MOST_RECORD >> 20} MiB, so no list of files")
    with record.open(newline="", encoding="utf-8", errors="replace") as file:
        for row in csv.reader(file):
            if row and not row[0].endswith(".pyc"):  # which come and go
                yield row[0], int(row[2]) if len(row) > 2 and row[2].isdecimal() else None


def _see(package: str, path: Path, size: int | None) -> None:
    try:
        seen = path.stat().st_size
    except (FileNotFoundError, NotADirectoryError):
        raise EnvironmentFault(f"{package}: {path} is gone") from None
    if size is not None and seen != size:
        raise EnvironmentFault(f"{package}: {path} has {seen} bytes, it was installed with {size}")
