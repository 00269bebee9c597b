"""How much RAM is there, and how much is left? A limit set on our control group counts as the machine's size."""

from pathlib import Path

import psutil

from llmgw.core.units import Bytes

CGROUPS = Path("/sys/fs/cgroup")
_OWN = Path("/proc/self/cgroup")
_UNLIMITED = 1 << 60
"""The first hierarchy says "no limit" as a number near 2^63."""


def total() -> Bytes:
    """RAM that processes started here may use in all."""
    limit = cgroup_limit(_text(_OWN), CGROUPS)
    memory = int(psutil.virtual_memory().total)
    return Bytes(memory if limit is None else min(limit, memory))


def available() -> Bytes:
    """RAM that can be had without swapping: free, and what the kernel gives back when asked."""
    return Bytes(int(psutil.virtual_memory().available))


def cgroup_limit(own: str, root: Path) -> Bytes | None:
    """Return the tightest memory limit on the groups that `own` (the text of /proc/self/cgroup) names, or None."""
    limits = list[int]()
    for line in own.splitlines():
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if controllers == "":
            limits += _limits(root, path, "memory.max")
        elif "memory" in controllers.split(","):
            limits += _limits(root / "memory", path, "memory.limit_in_bytes")
    return Bytes(min(limits)) if limits else None


def _limits(root: Path, path: str, file: str) -> list[int]:
    """What the group and each of those around it allows."""
    group = root / path.lstrip("/")
    around = [group, *group.parents]
    said = [_text(place / file).strip() for place in around[: around.index(root) + 1]] if root in around else []
    return [int(text) for text in said if text.isdecimal() and 0 < int(text) < _UNLIMITED]


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""
