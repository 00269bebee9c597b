"""Which wheel of a package fits what an engine is locked for? By the tags in its name, in the standards' order."""

from collections.abc import Iterable
from dataclasses import dataclass

from packaging.tags import Tag, compatible_tags, cpython_tags
from packaging.utils import InvalidWheelFilename, parse_wheel_filename

OLDEST_GLIBC = (2, 5)
"""manylinux1; no wheel asks for an older one."""
_LEGACY = {(2, 17): "manylinux2014", (2, 12): "manylinux2010", (2, 5): "manylinux1"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """What a wheel must run on."""

    python: tuple[int, int]
    arch: str
    glibc: tuple[int, int]

    def __str__(self) -> str:
        return f"Python {self.python[0]}.{self.python[1]} on {self.arch} with glibc {self.glibc[0]}.{self.glibc[1]}"


def tags(target: Target) -> tuple[Tag, ...]:
    """All tags that run on the target, the most specific first."""
    platforms = _platforms(target)
    interpreter = f"cp{target.python[0]}{target.python[1]}"
    own = cpython_tags(python_version=target.python, abis=[interpreter], platforms=platforms)
    return (*own, *compatible_tags(python_version=target.python, interpreter=interpreter, platforms=platforms))


def _platforms(target: Target) -> list[str]:
    major, newest = target.glibc
    found = []
    for minor in range(newest, OLDEST_GLIBC[1] - 1, -1):
        found.append(f"manylinux_{major}_{minor}_{target.arch}")
        if (major, minor) in _LEGACY:
            found.append(f"{_LEGACY[major, minor]}_{target.arch}")
    return [*found, f"linux_{target.arch}"]


def best(names: Iterable[str], target: Target) -> str | None:
    """The one wheel among file names that fits the target best, None when none does. Of equals the highest build."""
    order = {tag: place for place, tag in enumerate(tags(target))}
    ranked = []
    for name in names:
        try:
            _, _, build, of_wheel = parse_wheel_filename(name)
        except InvalidWheelFilename:
            continue
        places = [order[tag] for tag in of_wheel if tag in order]
        if places:
            ranked.append((-min(places), build or (), name))
    return max(ranked)[-1] if ranked else None
