"""What do launchers keep in a shard's directory? Which process it is (process.json) and how it ended (exit.json)."""

import contextlib
import json
from collections.abc import Mapping
from pathlib import Path

from llmgw.host import files

PROCESS, EXIT = "process.json", "exit.json"


def read(directory: Path, name: str) -> dict[str, object]:
    """Return the object in a file, empty when there is no file or it holds something else: that is not trusted.

    Raises OSError when it cannot be read: that says nothing about a process.
    """
    try:
        found = json.loads((directory / name).read_bytes())
    except (FileNotFoundError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def write(directory: Path, name: str, content: Mapping[str, object]) -> None:
    """Replace a file. Raises OSError."""
    files.replace(directory / name, json.dumps(content).encode())


def number(said: Mapping[str, object], name: str) -> int:
    """A whole number of a file that was read, -1 when it is none."""
    value = said.get(name)
    return value if isinstance(value, int) and not isinstance(value, bool) else -1


def remove(directory: Path) -> None:
    """Remove both files. Raises OSError."""
    for name in (PROCESS, EXIT):
        with contextlib.suppress(FileNotFoundError):
            (directory / name).unlink()
