"""How long an archive takes from a server on this machine to a tree on its disk, against curl, sha256sum and tar.

Ours also brings every byte to the disk; they do not. Both are measured in turn, and the median of each is told.
"""

import asyncio
import contextlib
import hashlib
import shutil
import statistics
import sys
import sysconfig
import tarfile
import tempfile
import time
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil
from isal import igzip

from bench.figure import Figure
from llmgw.agent.engines.unpack import unpack
from llmgw.agent.transfer.download import download
from llmgw.agent.transfer.http import UrlSource
from llmgw.core.engines.orders import ReleaseFile
from llmgw.core.errors import ClusterCannot
from llmgw.core.units import MIB, Bytes

SIZE = 200 * 10**6
"""Bytes of the archive, as builds for GPUs come to."""
ROUNDS = 3

TIME, MEMORY, GAP = 1.3, 64, 2.0
"""Goals: times the peer's, MiB above idle (the child counted whole), seconds without a heartbeat."""

_SAMPLED = 0.05


async def figures() -> AsyncIterator[Figure]:
    with tempfile.TemporaryDirectory(prefix="llmgw-bench-") as name:
        root = Path(name)
        archive = root / "served" / "engine.tar.gz"
        await asyncio.to_thread(_make, archive)
        file = ReleaseFile(name=archive.name, size=Bytes(archive.stat().st_size), digest=_digest(archive))
        async with _served(archive.parent) as address:
            url = f"{address}/{archive.name}"
            ours, theirs = list[float](), list[float]()
            watch = _Watch()
            for turn in range(ROUNDS):
                theirs.append(await _theirs(url, root / f"theirs-{turn}"))
                async with watch.on():
                    ours.append(await _ours(url, file, root / f"ours-{turn}"))
    peer = "curl | tee >(sha256sum) | tar xz"
    took = statistics.median(ours)
    yield Figure(name="install.time", value=took, unit="s", goal=TIME, peer=peer, peer_value=statistics.median(theirs))
    yield Figure(name="install.memory", value=watch.memory / MIB, unit="MiB", goal=MEMORY)
    yield Figure(name="install.gap", value=watch.gap, unit="s", goal=GAP)


async def _ours(url: str, file: ReleaseFile, into: Path) -> float:
    await asyncio.to_thread(into.mkdir)
    started = time.monotonic()
    await download(file, [UrlSource(url)], into / file.name, tell=lambda _: None, verifying=lambda: None, limit=None)
    await unpack(into / file.name, into / "tree", tell=lambda *_: None)
    took = time.monotonic() - started
    await asyncio.to_thread(shutil.rmtree, into)
    return took


async def _theirs(url: str, into: Path) -> float:
    await asyncio.to_thread(into.mkdir)
    line = f"set -o pipefail; curl -sf {url} | tee >(sha256sum >sum) | tar xz"
    started = time.monotonic()
    process = await asyncio.create_subprocess_exec("bash", "-c", line, cwd=into)
    if await process.wait():
        raise ClusterCannot(f"curl and tar ended with status {process.returncode}")
    took = time.monotonic() - started
    await asyncio.to_thread(shutil.rmtree, into)
    return took


@dataclass(slots=True)
class _Watch:
    """What the event loop and the memory are like meanwhile, at their worst."""

    gap: float = 0.0
    memory: int = 0

    @asynccontextmanager
    async def on(self) -> AsyncIterator[None]:
        idle = psutil.Process().memory_info().rss
        task = asyncio.create_task(self._sample(idle), name="watch")
        try:
            yield
        finally:
            task.cancel()
            await asyncio.wait([task])

    async def _sample(self, idle: int) -> None:
        ours = psutil.Process()
        while True:
            before = time.monotonic()
            await asyncio.sleep(_SAMPLED)
            self.gap = max(self.gap, time.monotonic() - before)
            self.memory = max(self.memory, ours.memory_info().rss - idle + sum(map(_used, _children(ours))))


def _children(of: psutil.Process) -> Iterator[psutil.Process]:
    with contextlib.suppress(psutil.NoSuchProcess):
        yield from (child for child in of.children() if "llmgw.agent.engines.unpack.child" in child.cmdline())


def _used(process: psutil.Process) -> int:
    with contextlib.suppress(psutil.NoSuchProcess):
        return process.memory_info().rss
    return 0


@asynccontextmanager
async def _served(directory: Path) -> AsyncIterator[str]:
    """A web server of another process, on a port that is free."""
    argv = (sys.executable, "-u", "-m", "http.server", "0", "--bind", "127.0.0.1", "--directory", str(directory))
    process = await asyncio.create_subprocess_exec(*argv, stdout=PIPE, stderr=asyncio.subprocess.DEVNULL)
    try:
        assert process.stdout is not None
        said = (await asyncio.wait_for(process.stdout.readline(), 30)).decode()
        yield "http://127.0.0.1:" + said.split(" port ")[1].split()[0]
    finally:
        process.kill()
        await process.wait()


def _make(archive: Path) -> None:
    """Pack this environment's own libraries, which are what an engine is made of, until it is large enough."""
    archive.parent.mkdir()
    libraries = sorted(Path(sysconfig.get_path("platlib")).rglob("*.so*"))
    with igzip.open(archive, "wb", compresslevel=3) as packed, tarfile.open(fileobj=packed, mode="w|") as tar:
        for turn in range(100):
            for library in libraries:
                if archive.stat().st_size >= SIZE:
                    return
                if library.is_file() and not library.is_symlink():
                    tar.add(library, f"engine/{turn}/{library.parent.name}/{library.name}")


def _digest(archive: Path) -> str:
    with open(archive, "rb") as content:
        return f"sha256:{hashlib.file_digest(content, 'sha256').hexdigest()}"
