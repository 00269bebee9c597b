"""Which files of a directory are programs and shared objects, and where do its links lead?"""

import os
from collections.abc import Iterator
from pathlib import Path

MOST = 20_000
"""Files of a tree that are looked at; a release of llama.cpp has a hundred."""

_MAGIC = b"\x7fELF"


class TooLarge(Exception):
    """A tree has more files than anybody packs into an engine; the text says so."""


def shared_objects(tree: Path) -> list[Path]:
    """Every regular ELF file whose name is that of a shared object, sorted. Raises OSError, TooLarge."""
    return sorted(path for path in files(tree) if ".so" in path.name and _is_elf(path))


def broken_links(tree: Path) -> list[str]:
    """`libggml.so -> libggml.so.0` for each link that leads nowhere, sorted. Raises OSError, TooLarge."""
    links = [path for path in _entries(tree) if path.is_symlink() and not os.path.exists(path)]
    return sorted(f"{path.relative_to(tree)} -> {os.readlink(path)}" for path in links)


def files(tree: Path) -> Iterator[Path]:
    """Every regular file below, links left out. Raises OSError, TooLarge."""
    return (path for path in _entries(tree) if path.is_file() and not path.is_symlink())


def _entries(tree: Path) -> Iterator[Path]:
    """Everything below that is no directory; links to directories are links."""
    seen = 0
    for directory, inside, names in os.walk(tree, onerror=_raise):
        links = [name for name in inside if os.path.islink(os.path.join(directory, name))]
        for name in (*names, *links):
            seen += 1
            if seen > MOST:
                raise TooLarge(f"{tree} has more than {MOST} files")
            yield Path(directory, name)


def _raise(error: OSError) -> None:
    raise error


def _is_elf(path: Path) -> bool:
    # Unlike a pipe, a regular file does not make whoever opens it wait.
    with open(path, "rb") as file:
        return file.read(len(_MAGIC)) == _MAGIC
