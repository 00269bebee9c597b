"""Who unpacks? A child process; here it is started, watched and cleaned up after."""

import asyncio
import contextlib
import json
import os
import sys
import threading
from asyncio.subprocess import PIPE, STDOUT, Process
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, ParamSpec

from llmgw.agent.engines.unpack.bad import BadArchive
from llmgw.agent.engines.unpack.keep import remove, take
from llmgw.agent.engines.unpack.names import shown
from llmgw.host.threads import aside

P = ParamSpec("P")

USER = 65533
"""The child's user and group where we are root: a number that no system gives to anybody."""
SILENCE = 60.0
"""Seconds without progress after which the child is given up."""

_LINE = 64 << 10
"""Bytes of one line that the child says."""
_DYING = 2.0
"""Seconds in which a killed child is gone, unless the kernel holds it."""


async def unpacked(
    archive: Path, into: Path, *, tell: Callable[[int, int], None], case_pairs: bool, silence: float = SILENCE
) -> None:
    """As `unpack`."""
    made, unwanted = threading.Event(), threading.Event()

    def make() -> None:
        into.mkdir(mode=0o700)
        made.set()

    try:
        with _opened(archive, 0) as source:
            await _ended(make)
            with _opened(into, os.O_DIRECTORY | os.O_NOFOLLOW) as tree:
                async with _child(source, tree, case_pairs=case_pairs) as child:
                    await _Heard(child, os.fstat(source).st_size, tell, silence).end()
                await _ended(_take, os.dup(tree), unwanted.is_set)
    except BaseException:
        unwanted.set()
        if made.is_set():
            await aside(remove, into)
        raise


def _take(tree: int, stopped: Callable[[], bool]) -> None:
    try:
        take(tree, stopped)
    finally:
        os.close(tree)


@asynccontextmanager
async def _child(source: int, tree: int, *, case_pairs: bool) -> AsyncIterator[Process]:
    root = os.geteuid() == 0
    if root:
        os.fchown(tree, USER, USER)
    words = (str(source), str(tree), str(USER) if root else "-", str(os.getpid()), "pairs" if case_pairs else "-")
    child = await asyncio.create_subprocess_exec(
        *(sys.executable, "-P", "-m", "llmgw.agent.engines.unpack.child", *words),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=PIPE,
        stderr=STDOUT,
        pass_fds=(source, tree),
        start_new_session=True,
        limit=_LINE,
    )
    try:
        yield child
    finally:
        with contextlib.suppress(ProcessLookupError):
            child.kill()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(child.wait(), _DYING)


class _Heard:
    """What the child says, none of which is trusted."""

    def __init__(self, child: Process, total: int, tell: Callable[[int, int], None], silence: float) -> None:
        self._child, self._total, self._tell, self._silence = child, total, tell, silence
        self._best = 0
        self._words = ""
        """The last that was not ours to read: what Python says when it ends in an error."""

    async def end(self) -> None:
        """Listen to its end; raises as `unpack` does unless it says that all is done."""
        try:
            async with asyncio.timeout(self._silence) as waiting:
                while (said := await self._said()) is not None:
                    if self._whole(said):
                        self._tell(self._total, self._total)
                        return
                    if self._further(said.get("at")):
                        waiting.reschedule(asyncio.get_running_loop().time() + self._silence)
                status = await self._child.wait()
        except TimeoutError:
            raise OSError(f"the unpacking process made no progress for {self._silence:g}s") from None
        how = f"by signal {-status}" if status < 0 else f"with status {status}"
        raise OSError(f"the unpacking process ended {how}{self._words and ': ' + self._words}")

    async def _said(self) -> dict[str, Any] | None:
        """Return the next that it says, None at its end."""
        assert self._child.stdout is not None
        try:
            line = await self._child.stdout.readline()
        except ValueError:
            raise OSError(f"the unpacking process said a line of more than {_LINE} bytes") from None
        if not line:
            return None
        try:
            said = json.loads(line)
        except (ValueError, RecursionError):
            said = None
        if isinstance(said, dict):
            return said
        self._words = shown(line.strip()) or self._words
        return {}

    def _whole(self, said: dict[str, Any]) -> bool:
        match said:
            case {"whole": True}:
                return True
            case {"bad": [str(rule), str(entry), int(index)]}:
                raise BadArchive(shown(rule.encode()), shown(entry.encode()), index)
            case {"errno": int(code)}:
                raise OSError(code, os.strerror(code))
        return False

    def _further(self, at: object) -> bool:
        match at:
            case [int(taken), int(made)] if 0 <= taken <= self._total and taken + made > self._best:
                self._best = taken + made
                self._tell(taken, self._total)
                return True
        return False


async def _ended(work: Callable[P, None], *args: P.args, **kwargs: P.kwargs) -> None:
    """Do this work in a thread; whoever is cancelled meanwhile still waits for its end, unless the kernel holds it."""
    working = asyncio.create_task(aside(work, *args, **kwargs), name="unpack")
    try:
        await asyncio.shield(working)
    except asyncio.CancelledError:
        await asyncio.wait([working], timeout=_DYING)
        raise


@contextmanager
def _opened(path: Path, flags: int) -> Iterator[int]:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | flags)
    try:
        yield fd
    finally:
        os.close(fd)
