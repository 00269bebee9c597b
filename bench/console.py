"""How long the console takes from its command line to a frame, and from there to rows; beside the toolkit's import."""

import asyncio
import fcntl
import os
import pty
import re
import struct
import sys
import termios
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass

from bench.cluster import serving
from bench.figure import Figure

PEER = "import textual.app"
RUNS = 9
PATIENCE = 20.0


@dataclass(frozen=True, slots=True)
class Shown:
    """Seconds from the start of the process."""

    frame: float
    rows: float


async def figures() -> AsyncIterator[Figure]:
    async with serving(nodes=1) as cluster:
        where = ("--server", cluster.made.control, "--tls", str(cluster.plan.directory / "tls"))
        shown, peer = [], []
        for _ in range(RUNS):  # by turns, so that a machine that gets slower meanwhile changes both alike
            shown.append(await _shown(where, cluster.plan.names[0]))
            peer.append(await _imported())
    frame = min(one.frame for one in shown)
    yield Figure(name="console.frame", value=frame, unit="s", goal=1.5, peer=PEER, peer_value=min(peer))
    yield Figure(name="console.rows", value=min(one.rows - one.frame for one in shown), unit="s", goal=0.4)


def _environment() -> dict[str, str]:
    # As an operator has it: compiled once.
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return kept | {"TERM": "xterm-256color"}


async def _imported() -> float:
    started = time.monotonic()
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", PEER, env=_environment())
    await process.wait()
    return time.monotonic() - started


async def _shown(where: Sequence[str], row: str) -> Shown:
    """Start a console in a terminal of 80 by 24 and wait for its frame, then for a node's row."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    read, came = bytearray(), asyncio.Event()

    def take() -> None:
        read.extend(os.read(master, 65536))
        came.set()

    loop = asyncio.get_running_loop()
    loop.add_reader(master, take)
    started = time.monotonic()
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "llmgw.cli.main", "console", *where),
        stdin=slave, stdout=slave, stderr=slave, env=_environment(), start_new_session=True,
    )  # fmt: skip
    try:
        times = []
        for text in ("waiting for", row):
            async with asyncio.timeout(PATIENCE):
                while text not in _plain(read):
                    came.clear()
                    await came.wait()
            times.append(time.monotonic() - started)
        return Shown(*times)
    finally:
        loop.remove_reader(master)
        process.kill()
        await process.wait()
        os.close(slave)
        os.close(master)


def _plain(read: bytearray) -> str:
    return re.sub(r"\x1b\[[\d;?]*[A-Za-z]", "", read.decode("utf-8", "replace"))
