"""How much room is there where we keep things? A directory whose storage does not answer is said to be one."""

import asyncio
import stat
from dataclasses import dataclass, replace
from pathlib import Path

from llmgw.agent.discovery.root import Root
from llmgw.config.agent import AgentConfig
from llmgw.core.inventory import Disk
from llmgw.core.units import NONE, Bytes
from llmgw.host.reason import reason
from llmgw.host.room import nearest, room
from llmgw.host.threads import once

WEIGHTS = Path("/var/lib/llmgw-weights")
"""Looked at wherever it exists."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Seen:
    """What one directory's storage answered."""

    device: int | None = None
    """Tells filesystems apart."""
    total: Bytes = NONE
    free: Bytes = NONE
    problem: str = ""


async def disks(root: Root, config: AgentConfig, limit: float) -> tuple[Disk, ...]:
    """The filesystems under the agent's directories, one entry each; takes at most `limit` seconds.

    Of a recorded machine, what is told is the room of the filesystem that its tree lies on.
    """
    wanted = _wanted(config)
    seen = await asyncio.gather(*(_look(root.at(str(path)), made, limit) for path, _, made in wanted))
    found = dict[object, Disk]()
    for (path, uses, _), one in zip(wanted, seen, strict=True):
        if path == WEIGHTS and path not in config.weights and one.problem == _ABSENT:
            continue
        key = str(path) if one.device is None else one.device
        before = found.get(key)
        if before is not None:
            found[key] = replace(before, uses=tuple(dict.fromkeys((*before.uses, *uses))))
        else:
            found[key] = Disk(directory=str(path), uses=uses, total=one.total, free=one.free, problem=one.problem)
    return tuple(found.values())


def _wanted(config: AgentConfig) -> list[tuple[Path, tuple[str, ...], bool]]:
    """Each directory with its uses, and whether we make it ourselves."""
    weights = dict.fromkeys((*config.weights, WEIGHTS))
    return [(config.state, ("state", "engines"), True), *((path, ("weights",), False) for path in weights)]


# --- asking storage ---------------------------------------------------------------------------------------------

_ABSENT = "is not there"


async def _look(path: Path, made: bool, limit: float) -> _Seen:
    try:
        return await once(("room", path, made), limit, _seen, path, made)
    except TimeoutError as error:
        return _Seen(problem=f"its storage {error.strerror}")


def _seen(path: Path, made: bool) -> _Seen:
    try:
        at = nearest(path) if made else path
        status = at.stat()
        if not stat.S_ISDIR(status.st_mode):
            return _Seen(problem="is no directory")
        total, free = room(at)
    except FileNotFoundError:
        return _Seen(problem=_ABSENT)
    except OSError as error:
        return _Seen(problem=f"cannot be looked at: {reason(error)}")
    except ValueError as error:  # a NUL in its name
        return _Seen(problem=f"cannot be looked at: {error}")
    return _Seen(device=status.st_dev, total=total, free=free)
