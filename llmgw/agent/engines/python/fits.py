"""Can this node use what was locked? By its processor, its C library and its disk's room, before anything is made."""

import os
import re
from collections.abc import Sequence
from pathlib import Path

from llmgw.agent.engines.python.fault import EnvironmentFault
from llmgw.core.engines.arches import locked_for, needed
from llmgw.core.engines.orders import Release, ReleaseFile
from llmgw.core.units import GIB, Bytes, size, size_up
from llmgw.host.room import nearest, room
from llmgw.host.threads import aside

UNPACKED = 3
"""Times their wheels that packages take: those of CUDA, which are most of it, hold two to two and a half."""
RESERVE = GIB
"""Bytes that are left for everybody else."""

_MANYLINUX = re.compile(r"manylinux_(\d+)_(\d+)_")
_GLIBC = re.compile(r"glibc (\d+)\.(\d+)")


def of_this_machine(release: Release) -> tuple[ReleaseFile, ...]:
    """The files of the release that this node needs. Raises EnvironmentFault where they do not run here."""
    subject, arch = f"{release.engine} {release.version}", os.uname().machine
    arches = locked_for(release.files)
    if arches and arch not in arches:
        fact = f"is locked for {' and '.join(arches)}, this node is {arch}"
        raise EnvironmentFault(f"{subject}: {fact}; lock it for {arch}, too")
    files = needed(release.files, arch)
    _refuse_other_library(subject, files, _glibc())
    return files


def _refuse_other_library(subject: str, files: Sequence[ReleaseFile], here: tuple[int, int] | None) -> None:
    if here is None:
        raise EnvironmentFault(
            f"{subject}: cannot run on this system: its C library is not glibc, which packages are built for; "
            "use a system with glibc (Debian, Ubuntu, Fedora, SUSE)"
        )
    for file in files:
        least = _least_glibc(file) if file.package else None
        if least is not None and least > here:
            fact = f"needs glibc {least[0]}.{least[1]}, this node has {here[0]}.{here[1]}"
            raise EnvironmentFault(f"{subject}: {file.name} {fact}; lock it for glibc {here[0]}.{here[1]}")


def _least_glibc(file: ReleaseFile) -> tuple[int, int] | None:
    """The oldest that a wheel says it runs with, None where it says none."""
    said = [(int(major), int(minor)) for major, minor in _MANYLINUX.findall(file.name.rpartition("-")[2])]
    return min(said, default=None)


def _glibc() -> tuple[int, int] | None:
    """The version of this system's; None for another C library."""
    try:
        said = os.confstr("CS_GNU_LIBC_VERSION") or ""
    except (OSError, ValueError):
        said = ""
    found = _GLIBC.match(said)
    return (int(found[1]), int(found[2])) if found else None


def needed_room(files: Sequence[ReleaseFile]) -> Bytes:
    """Bytes that an environment of these files takes, with what is left to others; their wheels are not counted."""
    return Bytes(UNPACKED * sum(file.size for file in files) + RESERVE)


async def refuse_without_room(release: Release, files: Sequence[ReleaseFile], into: Path) -> None:
    """Raise EnvironmentFault where the disk of `into` has not the room."""
    need, where = needed_room(files), nearest(into.parent)
    free = (await aside(room, where))[1]
    if free < need:
        fact = f"its packages take about {size_up(need - RESERVE)} unpacked and {size(RESERVE)} is left to others"
        way_out = f"{size(free)} is free at {where}; make {size_up(need - free)} of room there"
        raise EnvironmentFault(f"{release.engine} {release.version}: {fact}, {way_out}", full=True)
