"""How does one engine come onto the node? Its steps in their order, each told as it goes; proven, then renamed.

```text
download ─▶ verify ─▶ unpack ─▶ libraries ─▶ prove ─▶ ready: one rename
```
What is made before that rename is nobody's engine, and goes when the attempt ends in another way. What was downloaded
stays.
"""

import errno
import os
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from llmgw.agent.engines.python.fits import needed_room
from llmgw.agent.engines.shelf import TREE, Shelf
from llmgw.agent.rate import Rate
from llmgw.core.engines.installed import Progress
from llmgw.core.engines.installing import Made, Plan, Target
from llmgw.core.engines.orders import EngineOrder, Release, ReleaseFile
from llmgw.core.engines.terms import EngineKind, InstallStep
from llmgw.core.units import NONE, Bytes, size
from llmgw.host import clock
from llmgw.host.files import digest
from llmgw.host.threads import aside

_UNPACKED = 4
"""Times its archive that an engine may take when it is unpacked: archives of programs hold two to three times that."""
RESERVE = 256 << 20
"""Bytes that are left for everybody else on the disk."""

FULL = frozenset({errno.ENOSPC, errno.EDQUOT})


class StepFailed(Exception):
    """A step cannot be done; the text is one line for the operator."""

    def __init__(self, text: str, *, full: bool = False, retry_after: float | None = None) -> None:
        super().__init__(text)
        self.full, self.retry_after = full, retry_after


@dataclass(frozen=True, slots=True, kw_only=True)
class Proof:
    """A program that was seen to run."""

    program: Path
    version: str
    flags: frozenset[str]
    note: str = ""
    """What could not be seen."""


Moved = Callable[[int, int, float | None], None]
"""Told of bytes done, of all, and of their rate; None where it is for us to find out."""
Moving = Callable[[str, int, int], None]
"""Told of a package, and of bytes: done, and of all."""
Say = Callable[[str], None]
"""Told what a step is at."""


class Parts(Protocol):
    """What does the work of each step. All of it raises StepFailed, or OSError for what the machine does not do."""

    async def download(
        self, order: EngineOrder, release: Release, file: ReleaseFile, target: Path, moved: Moved, verifying: Say
    ) -> None:
        """Have the whole file at `target`, its digest seen to be right."""

    async def unpack(self, archive: Path, into: Path, moved: Moved) -> None:
        """Unpack into a directory that is not there yet."""

    async def environment(self, release: Release, wheels: Path, into: Path, cache: Path, moved: Moving) -> None:
        """Make an environment of packages in a directory that is not there yet."""

    async def libraries(self, target: Target, tree: Path, say: Say) -> str:
        """See that all libraries are there, with the help of the node's package manager where that is allowed; returns
        a note on what it goes without."""

    async def prove(self, target: Target, tree: Path, say: Say) -> Proof:
        """See that it runs."""

    async def recheck(self, made: Made, tree: Path) -> None:
        """See that an installed one is whole still."""

    def environment_of(self, made: Made, tree: Path) -> Mapping[str, str]:
        """What an engine's environment has in addition for an installed one."""


@dataclass(slots=True)
class Attempt:
    """One try to install what a plan is for. `progress` says how far it is; `told` is called when that changed."""

    plan: Plan
    target: Target
    release: Release
    shelf: Shelf
    parts: Parts
    told: Callable[[Progress], None]
    progress: Progress = field(init=False)
    _rate: Rate = field(init=False, default_factory=Rate)

    def __post_init__(self) -> None:
        self.progress = Progress(step=InstallStep.DOWNLOAD, since=clock.now())

    async def run(self) -> tuple[Path, Made]:
        """Make and prove it; returns where it is, and its record, for whoever puts it on the shelf.

        Raises StepFailed, Unfit or OSError. What is half-made then, or when this is cancelled, is the caller's to
        remove: an agent that ends has no time for that.
        """
        name = await aside(self.shelf.name_for, self.target.engine, self.target.version, self.target.variant)
        await self._download()
        place = await aside(self.shelf.workplace)
        return place, await self._make(place, name)

    async def _make(self, place: Path, name: str) -> Made:
        tree = place / TREE
        self._enter(InstallStep.UNPACK)
        if self.target.kind is EngineKind.ARCHIVE:
            await self._unpack(tree)
        else:
            await self._environment(place, tree)
        self._enter(InstallStep.LIBRARIES)
        lacks = await self.parts.libraries(self.target, tree, self._at)
        self._enter(InstallStep.PROVE)
        proof = await self.parts.prove(self.target, tree, self._at)
        files = await aside(self.shelf.files, place) if self.target.kind is EngineKind.ARCHIVE else ()
        return self._record(name, proof, place, lacks, files)

    def _record(self, name: str, proof: Proof, place: Path, lacks: str, files: tuple[tuple[str, int], ...]) -> Made:
        target = self.target
        return Made(
            engine=target.engine,
            version=target.version,
            variant=target.variant,
            release=target.release,
            digests=target.digests,
            name=name,
            program=str(proof.program.relative_to(place)),
            said=proof.version,
            flags=tuple(sorted(proof.flags)),
            note="; ".join(filter(None, (target.note, lacks, proof.note))),
            files=files,
            at=clock.now(),
        )

    # --- files --------------------------------------------------------------------------------------------------

    async def _download(self) -> None:
        """Have all files, whole and right: those that are here already are read once more."""
        files = self.target.files
        here = [file for file in files if await aside(self.shelf.has, file)]
        self._enter(InstallStep.VERIFY if len(here) == len(files) else InstallStep.DOWNLOAD)
        wrong = [file for file in here if not await self._is_right(file)]
        missing = [file for file in files if file not in here or file in wrong]
        if missing:
            self._enter(InstallStep.DOWNLOAD)
            await self._check_room(missing)
        total = sum(file.size for file in missing)
        done = 0
        for file in missing:
            await self._fetch(file, done, total)
            done += file.size

    async def _check_room(self, missing: Sequence[ReleaseFile]) -> None:
        """Refuse what will not fit when it is unpacked, before gigabytes of it are downloaded."""
        files, come = self.target.files, sum([await aside(self.shelf.left, file) for file in missing])
        total = sum(file.size for file in files)
        made = needed_room(files) if self.target.kind is EngineKind.PYTHON else _UNPACKED * total + RESERVE
        free = await aside(self.shelf.free)
        if free < come + made:
            more = f"downloading {size(come)} and unpacking" if come else "unpacking"
            fact = f"{more} {size(total)} needs about {size(come + made)}, {size(free)} is free"
            raise StepFailed(f"{self.shelf.root}: {fact}; make room there", full=True)

    async def _fetch(self, file: ReleaseFile, before: int, total: int) -> None:
        last = before + file.size == total

        def moved(done: int, _: int, rate: float | None) -> None:
            if self.progress.step is InstallStep.VERIFY:
                if done == file.size:
                    return
                self._enter(InstallStep.DOWNLOAD)  # it was wrong, and comes from elsewhere
            self._moved(file.name, before + done, total, rate)

        def verifying(_: str) -> None:
            if last:
                self._enter(InstallStep.VERIFY)
                self._at(file.name)

        self._moved(file.name, before, total, 0.0)
        target = self.shelf.download(file)
        await self.parts.download(self.plan.order, self.release, file, target, moved, verifying)

    async def _is_right(self, file: ReleaseFile) -> bool:
        self._at(file.name)
        path = self.shelf.download(file)
        if await aside(digest, path) == file.digest:
            return True
        await aside(path.unlink)
        return False

    async def _unpack(self, tree: Path) -> None:
        sizes: Sequence[int] = [file.size for file in self.target.files]
        await self._check_room(())
        await aside(tree.mkdir, 0o755)
        done = 0
        for file in self.target.files:

            def moved(now: int, _: int, rate: float | None, name: str = file.name, before: int = done) -> None:
                self._moved(name, before + now, sum(sizes), rate)

            await self.parts.unpack(self.shelf.download(file), tree / file.name.removesuffix(".tar.gz"), moved)
            done += file.size

    async def _environment(self, place: Path, tree: Path) -> None:
        """Packages are found by their files' names, which downloads do not have."""
        wheels = place / "wheels"
        await aside(self._name_wheels, wheels)

        def moved(package: str, done: int, total: int) -> None:
            self._moved(package, done, total, None)

        await self.parts.environment(self.release, wheels, tree, self.shelf.cache, moved)
        await aside(shutil.rmtree, wheels)

    def _name_wheels(self, wheels: Path) -> None:
        wheels.mkdir(mode=0o755)
        for file in self.target.files:
            if "/" in file.name or file.name in ("", ".", ".."):
                raise StepFailed(f"file {file.name[:80]!r} of {self.target.engine} is no name of a file")
            os.link(self.shelf.download(file), wheels / file.name)

    # --- telling ------------------------------------------------------------------------------------------------

    def _enter(self, step: InstallStep) -> None:
        self._rate = Rate()
        self._tell(Progress(step=step, since=clock.now()))

    def _at(self, subject: str) -> None:
        self._tell(Progress(step=self.progress.step, since=self.progress.since, subject=subject))

    def _moved(self, subject: str, done: int, total: int, rate: float | None) -> None:
        self._tell(
            Progress(
                step=self.progress.step,
                since=self.progress.since,
                subject=subject,
                done=Bytes(done),
                total=Bytes(total) if total > 0 else NONE,
                rate=self._rate.at(done, time.monotonic()) if rate is None else rate,
            )
        )

    def _tell(self, progress: Progress) -> None:
        self.progress = progress
        self.told(progress)
