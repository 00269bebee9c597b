"""How much room is there where we keep things? A directory whose storage does not answer is said to be one."""

import asyncio
import contextlib
import stat
import threading
import time
from concurrent.futures import Future
from dataclasses import dataclass, replace
from pathlib import Path

from llmgw.agent.discovery.root import Root
from llmgw.config.agent import AgentConfig
from llmgw.core.inventory import Disk
from llmgw.core.units import NONE, Bytes
from llmgw.host.room import nearest, room

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

_asked = dict[tuple[Path, bool], tuple[Future[_Seen], float]]()
"""Questions without an answer yet, and when they were asked. Storage that hangs is asked once, however often its room
is wanted: each question holds a thread until it is answered."""


async def _look(path: Path, made: bool, limit: float) -> _Seen:
    question, since = _asked.get((path, made)) or _ask(path, made)
    left = since + limit - time.monotonic()
    if left > 0:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(left):
                return await asyncio.wrap_future(question)
    return _Seen(problem=f"its storage did not answer within {limit:g} s")


def _ask(path: Path, made: bool) -> tuple[Future[_Seen], float]:
    question = Future[_Seen]()
    question.set_running_or_notify_cancel()  # who stops waiting takes the answer from nobody

    def work() -> None:
        seen = _seen(path, made)
        _asked.pop((path, made), None)
        question.set_result(seen)

    asked = _asked[path, made] = question, time.monotonic()
    threading.Thread(target=work, name=f"room of {path}", daemon=True).start()
    return asked


def _seen(path: Path, made: bool) -> _Seen:
    try:
        at = nearest(path) if made else path
        status = at.stat()
        if not stat.S_ISDIR(status.st_mode):
            return _Seen(problem="is no directory")
        total, free = room(at)
    except FileNotFoundError:
        return _Seen(problem=_ABSENT)
    except (OSError, ValueError) as error:
        words = error.strerror if isinstance(error, OSError) else str(error)
        return _Seen(problem=f"cannot be looked at: {(words or type(error).__name__).lower()}")
    return _Seen(device=status.st_dev, total=total, free=free)
