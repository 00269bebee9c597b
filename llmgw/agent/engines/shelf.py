"""What of engines is on this node's disk?

```text
STATE/engines/ENGINE/VERSION-VARIANT/   tree/ and install.json: one that was proven; made elsewhere and renamed to here
STATE/engines/.making/…                 half-made and half-removed ones; emptied when an agent starts
STATE/engines/.releases/ID.json         what an order's releases consist of: after a power cut nobody need be asked
STATE/downloads/HEX                     whole files by their digest, and `.part` beside what is not whole
```
A directory with a record is never written to again. What is made anew of the same gets a name of its own (`-2`), so
that no file changes under an engine that runs. Methods raise OSError where the disk does not do its part.
"""

import contextlib
import json
import logging
import os
import re
import secrets
import shutil
import stat
from collections.abc import Collection, Iterable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from llmgw.agent import keep
from llmgw.core.engines.digests import digits
from llmgw.core.engines.installing import Made
from llmgw.core.engines.orders import Release, ReleaseFile, release_id
from llmgw.core.engines.releases import version_name
from llmgw.core.engines.terms import KINDS
from llmgw.core.errors import BadMessage, BadName
from llmgw.host import files, room
from llmgw.wire.convert import from_wire, to_wire
from llmgw.wire.engines import v1

_log = logging.getLogger(__name__)

RECORD, TREE = "install.json", "tree"
_PART = ".part"
_ID = re.compile(r"[0-9a-f]{64}\Z")


class Unfit(Exception):
    """What the control plane said cannot be the name of a file or directory; the text is one line."""


class Shelf:
    """The engines that were installed, what they are made of, and what is being made."""

    def __init__(self, state: Path) -> None:
        self.root, self.downloads = state / "engines", state / "downloads"
        self.cache = self.root / ".cache"
        """For what makes environments: on the same filesystem as they are."""
        self._making, self._releases = self.root / ".making", self.root / ".releases"
        self._strays = set[Path]()

    def open(self) -> None:
        """Make the directories, and remove what was being made when the last agent ended."""
        self.clear()

    def _make(self) -> None:
        """Make the directories: somebody may have removed them while we run."""
        for directory in (self.root, self.downloads, self.cache, self._making, self._releases):
            keep.make_private(directory)

    # --- installed ----------------------------------------------------------------------------------------------

    def made(self) -> list[Made]:
        """All that was proven and has a record that can be read; what has none counts as a stray."""
        found = {directory: self._read(directory) for directory in self._directories()}
        self._strays = {directory for directory, made in found.items() if made is None}
        return [made for made in found.values() if made is not None]

    def directory(self, made: Made) -> Path:
        """Where it is."""
        return self.root / made.engine / made.name

    def tree(self, made: Made) -> Path:
        """Where its files are."""
        return self.directory(made) / TREE

    def workplace(self) -> Path:
        """A fresh directory to make something in."""
        self._make()
        place = self._making / secrets.token_hex(6)
        place.mkdir(mode=0o700)
        return place

    def name_for(self, engine: str, version: str, variant: str) -> str:
        """A directory's name that is free; raises Unfit for what can be none."""
        if engine not in KINDS:
            raise Unfit(f"engine {engine[:40]!r} cannot be installed; this agent installs {', '.join(sorted(KINDS))}")
        try:
            version_name(version)
        except BadName:
            raise Unfit(f"version {version[:80]!r} of {engine} cannot name a directory") from None
        base = f"{version}-{_slug(variant)}"
        number = 1
        while os.path.lexists(self.root / engine / (name := base if number == 1 else f"{base}-{number}")):
            number += 1
        return name

    def files(self, place: Path) -> tuple[tuple[str, int], ...]:
        """The regular files at a place, seen from there, and their sizes."""
        found = (Path(directory, name) for directory, _, names in os.walk(place) for name in names)
        sizes = ((path, path.lstat()) for path in found)
        return tuple(sorted((str(path.relative_to(place)), one.st_size) for path, one in sizes if _regular(one)))

    def changed(self, made: Made) -> list[str]:
        """The names of the files that are not as they were installed."""
        directory = self.directory(made)
        return [Path(path).name for path, size in made.files if not _has_size(directory / path, size)]

    def put(self, place: Path, made: Made) -> None:
        """Let what was made at `place` be installed, at once and for good."""
        keep.write(place / RECORD, json.dumps(asdict(made), indent=1))
        keep.make_private(self.root / made.engine)
        place.rename(self.directory(made))
        files.settle(self.root / made.engine)
        files.settle(self._making)

    def remove(self, made: Made) -> None:
        """Remove an installed one. Where the disk does not let it go, it is a stray from now on."""
        directory = self.directory(made)
        self._strays.add(directory)
        self._take_away(directory)
        self._strays.discard(directory)

    def remove_strays(self, in_use: Collection[str]) -> None:
        """Remove what had no record when the shelf was read, unless something runs with it."""
        for directory in sorted(self._strays):
            if str(directory) not in in_use:
                self._take_away(directory)
                self._strays.discard(directory)

    def _take_away(self, directory: Path) -> None:
        place = self._making / f"gone-{secrets.token_hex(6)}"
        with contextlib.suppress(FileNotFoundError):
            directory.rename(place)
            _remove(place)

    def clear(self) -> None:
        """Remove what was being made or removed. Nothing else may be made meanwhile."""
        self._make()
        for left in self._making.iterdir():
            _remove(left)

    def _directories(self) -> Iterator[Path]:
        for engine in sorted(KINDS):
            with contextlib.suppress(FileNotFoundError):
                yield from sorted(one for one in (self.root / engine).iterdir() if one.is_dir())

    def _read(self, directory: Path) -> Made | None:
        path = directory / RECORD
        try:
            text = keep.read(path)
            made = None if text is None else _made(json.loads(text))
        except (keep.Damaged, IsADirectoryError, ValueError, TypeError, KeyError) as error:
            _log.error("%s cannot be used (%s); the engine beside it counts as none", path, error)
            return None
        if made is None or (made.engine, made.name) != (directory.parent.name, directory.name):
            _log.error("%s holds no record of this engine; it counts as none", directory)
            return None
        return made

    # --- releases -----------------------------------------------------------------------------------------------

    def save_release(self, release: Release) -> None:
        """Keep it by its id."""
        self._make()
        keep.write(self._release_file(release_id(release)), to_wire(release, v1.Release).to_json())

    def release(self, id: str) -> Release | None:
        """What was kept under this id; None when nothing was, or it is another by now."""
        path = self._release_file(id)
        try:
            text = keep.read(path)
            if text is None:
                return None
            release: Release = from_wire(v1.Release.from_json(text, ignore_unknown_fields=True), Release)
        except (keep.Damaged, BadMessage, BadName, ValueError, TypeError, LookupError, AttributeError) as error:
            _log.error("%s cannot be used (%s); the control plane is asked again", path, error)
            return None
        return release if release_id(release) == id else None

    def _release_file(self, id: str) -> Path:
        if _ID.match(id) is None:
            raise Unfit(f"release {id[:80]!r} is no id of one")
        return self._releases / f"{id}.json"

    # --- downloads ----------------------------------------------------------------------------------------------

    def download(self, file: ReleaseFile) -> Path:
        """Where a file is when all of it is here; raises Unfit for one without a digest that we know."""
        name = digits(file.digest)
        if name is None:
            way_out = "pin one in server.yaml, or take another build"
            raise Unfit(f"{file.name}: its source publishes no sha256 digest, so it is not installed; {way_out}")
        return self.downloads / name

    def has(self, file: ReleaseFile) -> bool:
        """Whether all of it is here, by its size."""
        try:
            return _has_size(self.download(file), file.size)
        except Unfit:
            return False

    def left(self, file: ReleaseFile) -> int:
        """Bytes of it that are still to be downloaded."""
        place = self.download(file)
        try:
            begun = place.with_name(place.name + _PART).lstat().st_size
        except FileNotFoundError:
            begun = 0
        return max(0, file.size - begun)

    def has_all(self, files: Iterable[ReleaseFile]) -> bool:
        """Whether all of them are here."""
        return all(map(self.has, files))

    def prune(self, digests: Collection[str], releases: Collection[str]) -> None:
        """Remove downloads, whole or not, and releases that are not among these."""
        kept = {digits(digest) for digest in digests}
        for path in self.downloads.iterdir():
            if path.name[:64] not in kept:
                _remove(path)
        for path in self._releases.iterdir():
            if path.stem not in releases:
                _remove(path)

    def free(self) -> int:
        """Bytes that may still be written here."""
        return room.room(room.nearest(self.root))[1]


def _slug(variant: str) -> str:
    return re.sub(r"[^a-z0-9.]+", "-", variant.lower()).strip("-.")[:40] or "any"


def _made(fields: Any) -> Made:
    """Raises TypeError, ValueError or KeyError for what is no record."""
    about: dict[str, Any] = {name: tuple(str(one) for one in fields[name]) for name in ("digests", "flags")}
    for name in ("engine", "version", "variant", "release", "name", "program", "said", "note"):
        about[name] = str(fields[name])
    files = tuple((str(path), int(size)) for path, size in fields["files"])
    return Made(**about, files=files, at=float(fields["at"]))


def _has_size(path: Path, size: int) -> bool:
    try:
        about = path.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    return _regular(about) and about.st_size == size


def _regular(about: os.stat_result) -> bool:
    return stat.S_ISREG(about.st_mode)


def _remove(path: Path) -> None:
    """Remove a file, a link, or a directory with all in it; links in it are not followed."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
