"""The console as a process of its own in a terminal of its own, on a real watch."""

import asyncio
import fcntl
import os
import pty
import re
import signal
import struct
import sys
import termios
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests import worlds
from tests.tui.served import Operators, served

LEAVES_THE_SCREEN = "\x1b[?1049l"
SHOWS_THE_CURSOR = "\x1b[?25h"


class Terminal:
    """One end of a pseudo terminal of 80 by 24."""

    def __init__(self, master: int) -> None:
        self.master = master
        self.raw = ""
        self._came = asyncio.Event()
        asyncio.get_running_loop().add_reader(master, self._read)

    def _read(self) -> None:
        try:
            self.raw += os.read(self.master, 65536).decode("utf-8", "replace")
        except OSError:  # Linux says so when the other end is closed
            asyncio.get_running_loop().remove_reader(self.master)
        self._came.set()

    def press(self, keys: str) -> None:
        os.write(self.master, keys.encode())

    async def shows(self, text: str) -> None:
        """Wait until it was written, whatever stands between its words."""
        async with asyncio.timeout(8):
            while text not in re.sub(r"\x1b\[[\d;?]*[A-Za-z]", "", self.raw):
                self._came.clear()
                await self._came.wait()

    def close(self) -> None:
        if self.master >= 0:
            asyncio.get_running_loop().remove_reader(self.master)
            os.close(self.master)
            self.master = -1


@asynccontextmanager
async def console(path: Path, **env: str) -> AsyncIterator[tuple[Terminal, asyncio.subprocess.Process]]:
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.tui.in_terminal", str(path),
        stdin=slave, stdout=slave, stderr=slave, start_new_session=True,
        preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        env={**os.environ, "TERM": "xterm-256color", **env},
    )  # fmt: skip
    os.close(slave)
    terminal = Terminal(master)
    try:
        yield terminal, process
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
        terminal.close()


async def test_keys_steer_it_and_leaving_gives_the_terminal_back(tmp_path: Path) -> None:
    operators = Operators(worlds.nothing_fits())
    async with served(operators, tmp_path / "s"), console(tmp_path / "s", LLMGW_ASCII="1") as (terminal, process):
        await terminal.shows("node04")
        terminal.press(":why llama4\r")
        await terminal.shows("memory: needs 6 GiB, 4 GiB of 8 GiB free")
        assert operators.watching == 1
        assert re.sub(r"\x1b\[[^A-Za-z]*[A-Za-z]|\x1b[=>]", "", terminal.raw).isascii()
        terminal.press(":q\r")
        async with asyncio.timeout(2):
            assert await process.wait() == 0
        assert LEAVES_THE_SCREEN in terminal.raw
        assert SHOWS_THE_CURSOR in terminal.raw[terminal.raw.rindex(LEAVES_THE_SCREEN) - 200 :]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
async def test_a_signal_ends_it_soon_and_gives_the_terminal_back(tmp_path: Path, number: signal.Signals) -> None:
    async with served(Operators(worlds.three_nodes()), tmp_path / "s"), console(tmp_path / "s") as (terminal, process):
        await terminal.shows("node03")
        process.send_signal(number)
        async with asyncio.timeout(2):
            assert await process.wait() == 128 + number
        assert LEAVES_THE_SCREEN in terminal.raw


async def test_a_closed_terminal_ends_it(tmp_path: Path) -> None:
    """The SSH connection is cut: no process stays behind, spinning on a terminal that is no more."""
    async with served(Operators(worlds.three_nodes()), tmp_path / "s"), console(tmp_path / "s") as (terminal, process):
        await terminal.shows("node03")
        terminal.close()
        async with asyncio.timeout(2):
            assert await process.wait() == 128 + signal.SIGHUP
