"""ctl as a process: what is written while it runs, and how it ends when it is stopped or nobody reads on."""

import asyncio
import fcntl
import json
import os
import signal
import sys
import termios
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from llmgw.core.events import Event, EventKind
from tests.ctl.fixture import NOW, Operators, change, node

PATIENCE = 20.0

ENVIRONMENT = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
"""As a shell gives it. Unbuffered, Python drops the rest of a write that a signal broke off."""


@asynccontextmanager
async def running(
    directory: Path, *words: str, stdout: int = asyncio.subprocess.PIPE
) -> AsyncIterator[asyncio.subprocess.Process]:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "llmgw.ctl.main", "--dir", str(directory), *words,
        stdin=asyncio.subprocess.DEVNULL, stdout=stdout, stderr=asyncio.subprocess.PIPE, env=ENVIRONMENT,
    )  # fmt: skip
    try:
        async with asyncio.timeout(PATIENCE):
            yield process
            await process.wait()
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


async def said(process: asyncio.subprocess.Process) -> str:
    assert process.stderr is not None
    return (await process.stderr.read()).decode()


async def full(pipe: int) -> None:
    """Return when one long write has filled the pipe. The kernel has no event for that, hence the asking."""
    capacity = fcntl.fcntl(pipe, fcntl.F_GETPIPE_SZ)
    while held(pipe) <= capacity - 8192:  # noqa: ASYNC110 # see above
        await asyncio.sleep(0.01)


def held(pipe: int) -> int:
    return int.from_bytes(fcntl.ioctl(pipe, termios.FIONREAD, b"\0" * 4), sys.byteorder)


def happened(seq: int, text: str = "") -> Event:
    return Event(seq=seq, at=NOW, kind=EventKind.NODE_READY, subject="node01", text=text or f"event {seq}")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
async def test_following_prints_events_as_they_come_and_ends_well_when_stopped(
    number: int, directory: Path, operators: Operators
) -> None:
    async with running(directory, "events", "--follow", "--json", "--last", "1") as process:
        assert process.stdout is not None
        assert json.loads(await process.stdout.readline())["seq"] == 41
        for seq in (50, 51):
            operators.then.put_nowait(change(happened(seq), seq=seq))
            assert json.loads(await process.stdout.readline())["seq"] == seq
        process.send_signal(number)
        assert await process.wait() == 0
        assert await said(process) == ""


async def test_a_new_snapshot_repeats_no_event(directory: Path, operators: Operators) -> None:
    """A reader that was too slow gets one; it holds events that were printed already."""
    async with running(directory, "events", "--follow", "-o", "name") as process:
        assert process.stdout is not None
        assert [await process.stdout.readline() for _ in range(2)] == [b"40\n", b"41\n"]
        again = change(*operators.events, happened(52), seq=52)
        operators.then.put_nowait(type(again)(
            revision=again.revision, now=NOW, snapshot=True, first=True, complete=True, items=again.items
        ))  # fmt: skip
        assert await process.stdout.readline() == b"52\n"
        process.terminate()


async def test_a_reader_that_goes_away_ends_it_without_a_word(directory: Path, operators: Operators) -> None:
    reader, writer = os.pipe()
    async with running(directory, "events", "--follow", stdout=writer) as process:
        os.close(writer)
        await operators.watching.wait()
        os.close(reader)
        operators.then.put_nowait(change(happened(50)))
        assert await process.wait() == 0
        assert await said(process) == ""


async def test_a_reader_that_does_not_read_cannot_hold_it(directory: Path, operators: Operators) -> None:
    """The pipe is full and the write blocks: a signal ends it all the same."""
    reader, writer = os.pipe()
    try:
        async with running(directory, "events", "--follow", "--json", stdout=writer) as process:
            os.close(writer)
            await operators.watching.wait()
            operators.then.put_nowait(change(happened(50, "x" * 200_000)))
            await full(reader)
            process.terminate()
            assert await process.wait() == 0
            assert await said(process) == ""
    finally:
        os.close(reader)


async def test_watching_prints_the_whole_again_after_a_change(directory: Path, operators: Operators) -> None:
    async with running(directory, "nodes", "--watch", "--json") as process:
        assert process.stdout is not None
        assert len(json.loads(await process.stdout.readline())["nodes"]) == 3
        operators.then.put_nowait(change(node("node04")))
        assert len(json.loads(await process.stdout.readline())["nodes"]) == 4
        process.send_signal(signal.SIGINT)
        assert await process.wait() == 0


async def test_an_act_that_is_stopped_while_it_waits_says_so_by_its_status(
    directory: Path, operators: Operators
) -> None:
    async with running(directory, "scale", "gemma", "2", "--wait") as process:
        await operators.watching.wait()
        process.send_signal(signal.SIGINT)
        assert await process.wait() == 130
        assert operators.scaled == [("gemma", 2)]


async def test_a_control_plane_that_ends_the_stream_is_unreachable(directory: Path, operators: Operators) -> None:
    async with running(directory, "nodes", "--watch") as process:
        await operators.watching.wait()
        (directory / "s.sock").unlink()
        operators.stop = True
        operators.then.put_nowait(change())
        assert await process.wait() == 3
        assert (await said(process)).startswith("llmgw: control plane ")


async def loaded(code: str, *names: str) -> list[str]:
    """Those of the modules `names` that a fresh interpreter has after `code`."""
    code = f"import sys\n{code}\nprint(*[name for name in {names} if name in sys.modules])"
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", code, stdout=asyncio.subprocess.PIPE)
    out, _ = await process.communicate()
    assert process.returncode == 0
    return out.decode().splitlines()[-1].split()


async def test_help_and_mistakes_load_no_client() -> None:
    code = "from llmgw.ctl.main import main\ntry: main(['--help'])\nexcept SystemExit: pass"
    assert await loaded(code, "grpclib", "ssl", "betterproto2", "pydantic", "textual", "yaml") == []


async def test_a_look_loads_neither_the_console_nor_what_reads_yaml() -> None:
    assert await loaded("import llmgw.ctl.run", "textual", "rich", "yaml", "sqlalchemy", "cryptography") == []
