"""Which file of llmgwd's own mirror has this digest? Only those that an index names, and that are really in it."""

import logging
import threading
from collections.abc import Iterator
from pathlib import Path

from llmgw.core.brief import cut
from llmgw.core.engines import releases
from llmgw.core.engines.orders import ReleaseFile
from llmgw.core.engines.terms import KINDS
from llmgw.daemon.releases.mirror import MOST_INDEX
from llmgw.host import files

log = logging.getLogger(__name__)

MOST_INDEXES = 1_000
"""Of a mirror; the rest is not looked at."""


class Served:
    """The files of a mirror by their digest. Blocks: `find` is for threads."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._files = dict[str, Path]()
        self._seen: frozenset[tuple[str, int]] | None = None
        self._looking = threading.Lock()

    def find(self, digest: str) -> Path | None:
        """Where the file with this digest is, no link; None when the mirror has none, or lost it."""
        path = self._files.get(digest)
        if path is None:
            self._look()
            path = self._files.get(digest)
        return path if path is not None and path.is_file() else None

    def _look(self) -> None:
        """Read the indexes again if there is anything new: agents may ask for whatever they like."""
        with self._looking:
            seen = _changes(self._directory)
            if seen != self._seen:
                self._files = dict(_found(self._directory))
                self._seen = seen


def _changes(directory: Path) -> frozenset[tuple[str, int]]:
    """When something came into the directory of each version, or went: an index comes last. Empty where that is not
    to be seen: then nothing is served that was not before."""
    try:
        places = [place for engine in KINDS for place in (directory / engine).glob("*/")]
        return frozenset((str(place), place.stat().st_mtime_ns) for place in places[:MOST_INDEXES])
    except OSError:
        return frozenset()


def _found(directory: Path) -> Iterator[tuple[str, Path]]:
    try:
        root = directory.resolve(strict=True)
        indexes = sorted(index for engine in KINDS for index in (root / engine).glob("*/release*.json"))
    except OSError as error:
        log.warning("mirror %s cannot be read: %s", directory, error)
        return
    if len(indexes) > MOST_INDEXES:
        log.warning("mirror %s has %d indexes; the first %d are served", directory, len(indexes), MOST_INDEXES)
    for index in indexes[:MOST_INDEXES]:
        for file in _listed(index):
            if file.digest and (path := _inside(root, index.parent / file.name)) is not None:
                yield file.digest, path


def _listed(index: Path) -> tuple[ReleaseFile, ...]:
    try:
        content, _ = files.read(index, MOST_INDEX)
        return releases.read(content).files
    except (OSError, files.Unfit, ValueError) as error:
        log.warning("%s is left out: %s", index, cut(str(error)))
        return ()


def _inside(root: Path, path: Path) -> Path | None:
    """The file itself when it is one, and in the mirror."""
    try:
        found = path.resolve(strict=True)
    except (OSError, RuntimeError):  # not there, or links in a ring
        return None
    return found if found.is_relative_to(root) and found.is_file() else None
