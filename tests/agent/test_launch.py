"""Engines in sessions of their own: started, found again, ended with all that they started, and never mistaken."""

import asyncio
import errno
import json
import os
import signal
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest
import uvloop

from llmgw.agent.launch import pids
from llmgw.agent.launch.launcher import Exit, LaunchFailed, Owner, Task
from llmgw.agent.launch.session import SessionLauncher
from llmgw.core.names import NodeName, ShardId
from llmgw.host.machine import boot_id

SHARD = ShardId("tiny/0.0")
OWNER = Owner("demo", NodeName("node01"), f"i{os.getpid()}")
OTHERS = [
    replace(OWNER, node=NodeName("node02")),
    replace(OWNER, cluster="other"),
    replace(OWNER, instance=f"second{os.getpid()}"),
]


class Room:
    """A shard's directory and what was started in it."""

    def __init__(self, directory: Path) -> None:
        self.directory, self.sessions = directory, list[int]()
        self.launcher = SessionLauncher(OWNER, boot_id())

    def task(self, script: str, launch: int = 1) -> Task:
        return Task(
            shard=SHARD,
            launch=launch,
            argv=("/bin/sh", "-c", script),
            environment={"PATH": os.environ["PATH"]},
            directory=self.directory,
            log=self.directory / "engine.log",
        )

    async def start(self, script: str, launch: int = 1):
        alive = await self.launcher.start(self.task(script, launch))
        self.sessions.append(alive.pid)
        return alive

    async def find(self, launch: int = 1, owner: Owner = OWNER, boot: str = ""):
        return await SessionLauncher(owner, boot or boot_id()).find(SHARD, launch, self.directory)


@pytest.fixture
async def room(tmp_path: Path) -> AsyncIterator[Room]:
    room = Room(tmp_path)
    yield room
    for session in room.sessions:
        await pids.end_session(session, 0.0)


async def printed(room: Room, words: str) -> None:
    """The engine's output is a file, so this looks again and again."""
    async with asyncio.timeout(10):
        while words not in (room.directory / "engine.log").read_text():  # noqa: ASYNC110 - a file has no event
            await asyncio.sleep(0.01)


async def test_the_exit_status_is_kept_also_when_nobody_looked(room: Room):
    alive = await room.start("exit 7")
    assert await alive.ended() == Exit(status=7)
    assert await room.find() == Exit(status=7)


async def test_the_signal_is_kept(room: Room):
    alive = await room.start("kill -SEGV $$")
    assert await alive.ended() == Exit(signal=signal.SIGSEGV)


async def test_an_engine_is_found_again_by_another_agent(room: Room):
    alive = await room.start("sleep 100")
    again = await room.find()
    assert not isinstance(again, Exit)
    assert again is not None
    assert again.pid == alive.pid
    await again.stop(5)
    assert await alive.ended() == Exit(signal=signal.SIGTERM)


async def test_a_program_that_is_not_there_is_a_failure_in_words(room: Room):
    task = Task(
        shard=SHARD,
        launch=1,
        argv=("/no/such/engine",),
        environment={},
        directory=room.directory,
        log=room.directory / "log",
    )
    with pytest.raises(LaunchFailed, match="/no/such/engine: No such file or directory"):
        await room.launcher.start(task)
    assert await room.find() is None


def test_an_engine_holds_none_of_our_descriptors(tmp_path: Path):
    """The agent's sockets would stay open for as long as the engine lives: uvloop hands some of its own on."""

    async def look() -> None:
        room = Room(tmp_path)
        alive = await room.start("sleep 100")
        try:
            assert sorted(os.listdir(f"/proc/{alive.pid}/fd")) == ["0", "1", "2"]
            assert os.getsid(alive.pid) == alive.pid
        finally:
            await alive.stop(0.0)

    uvloop.run(look())


async def test_a_stubborn_engine_and_its_children_are_killed_after_the_grace(room: Room):
    alive = await room.start("trap '' TERM; sleep 300 & echo up; while :; do sleep 1; done")
    await printed(room, "up")
    assert len(pids.members(alive.pid)) >= 2
    await alive.stop(0.3)
    assert pids.members(alive.pid) == ()
    assert await alive.ended() == Exit(signal=signal.SIGKILL)


async def test_an_engine_has_ended_when_its_children_have(room: Room):
    """A child may hold the port or the memory."""
    alive = await room.start("sleep 300 & echo up; exit 3")
    assert await alive.ended() == Exit(status=3)
    assert pids.members(alive.pid) == ()


async def test_without_its_waiter_an_engine_is_watched_all_the_same(room: Room):
    alive = await room.start("sleep 100")
    waiter = json.loads((room.directory / "process.json").read_text())["waiter"]
    os.kill(waiter, signal.SIGKILL)
    os.kill(alive.pid, signal.SIGKILL)
    assert await alive.ended() == Exit()


async def test_the_waiter_is_not_ended_by_a_polite_signal(room: Room):
    alive = await room.start("sleep 100")
    waiter = json.loads((room.directory / "process.json").read_text())["waiter"]
    for sign in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        os.kill(waiter, sign)
    os.kill(alive.pid, signal.SIGKILL)
    assert await alive.ended() == Exit(signal=signal.SIGKILL)


async def test_an_engine_that_nobody_knows_of_any_more_ends_before_the_next_launch(room: Room):
    """And nobody else's does: two demos on one machine have clusters, nodes and shards of the same names."""
    stray = await room.start("sleep 100")
    (room.directory / "process.json").unlink()
    theirs = []
    for number, owner in enumerate(OTHERS):
        directory = room.directory / str(number)
        directory.mkdir()
        task = replace(room.task("sleep 100"), directory=directory)
        theirs.append((await SessionLauncher(owner, boot_id()).start(task)).pid)
    room.sessions += theirs
    alive = await room.start("sleep 100", launch=2)
    assert pids.started_at(stray.pid) is None
    assert pids.started_at(alive.pid) is not None
    assert all(pids.started_at(pid) is not None for pid in theirs)


async def test_a_stray_in_somebodys_session_ends_and_that_session_does_not(room: Room):
    """A person may have started something of the engine's from a shell, environment and all."""
    mark = f"LLMGW_ENGINE={OWNER.mark(SHARD, 1)}"
    almost = f"LLMGW_ENGINE={OWNER.mark(SHARD, 1)}x"
    script = f"{mark} sleep 100 & {almost} sleep 100 & echo $!; wait; sleep 100"
    shell = await asyncio.create_subprocess_exec(
        "/bin/sh", "-c", script, start_new_session=True, stdout=asyncio.subprocess.PIPE
    )
    try:
        assert shell.stdout is not None
        unlike = int(await shell.stdout.readline())
        async with asyncio.timeout(10):
            while len(pids.members(shell.pid)) < 3 or not (strays := pids.carrying(mark.__eq__)):  # noqa: ASYNC110
                await asyncio.sleep(0.01)  # an exec in another process has no event
        assert shell.pid not in strays
        await room.start("sleep 100", launch=2)
        assert all(pids.started_at(pid) is None for pid in strays)
        assert pids.started_at(shell.pid) is not None
        assert pids.started_at(unlike) is not None
    finally:
        await pids.end_session(shell.pid, 0.0)
        await shell.wait()


async def test_a_child_in_a_session_of_its_own_ends_with_the_engine(room: Room):
    """It holds the port or the memory all the same, and its mark says whose it is."""
    alive = await room.start("setsid sleep 300 & echo up; exec sleep 300")
    await printed(room, "up")
    marked = f"LLMGW_ENGINE={OWNER.mark(SHARD, 1)}".__eq__
    async with asyncio.timeout(10):
        while len(pids.carrying(marked)) < 2:  # noqa: ASYNC110 - an exec in another process has no event
            await asyncio.sleep(0.01)
    os.kill(alive.pid, signal.SIGKILL)
    assert await alive.ended() == Exit(signal=signal.SIGKILL)
    assert pids.carrying(marked) == ()


# --- never trust a pid alone ------------------------------------------------------------------------------------


async def test_a_launch_of_another_boot_is_unknown(room: Room):
    await room.start("sleep 100")
    assert await room.find(boot="another") is None


@pytest.mark.parametrize("owner", OTHERS)
async def test_another_owners_engine_is_unknown_and_not_cleared(room: Room, owner: Owner):
    await room.start("sleep 100")
    assert await room.find(owner=owner) is None
    await SessionLauncher(owner, boot_id()).clear(SHARD, room.directory)
    assert (room.directory / "process.json").exists()


async def test_an_earlier_launch_is_unknown(room: Room):
    await room.start("sleep 100", launch=2)
    assert await room.find(launch=1) is None


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"form": "session"}', '{"pid": true}', '{"pid": 0, "started": -1}', "\0"]
)
async def test_a_file_that_says_something_else_is_not_trusted(room: Room, text: str):
    mark = {"mark": OWNER.mark(SHARD, 1), "boot": boot_id(), "form": "session"}
    (room.directory / "process.json").write_text(text)
    assert await room.find() is None
    (room.directory / "process.json").write_text(json.dumps({**mark, "pid": 0, "started": None, "waiter": "x"}))
    assert await room.find() == Exit()


@pytest.mark.parametrize("session", [-1, 0, 1])
def test_nobodys_session_has_no_members(session: int):
    """In a namespace many processes show session 0: whoever ends "its members" ends the machine."""
    assert pids.members(session) == ()


async def test_a_pid_and_session_that_are_anothers_by_now_are_left_alone(room: Room):
    stranger = await asyncio.create_subprocess_exec("/bin/sleep", "100", start_new_session=True)
    try:
        mark = {"mark": OWNER.mark(SHARD, 1), "boot": boot_id(), "form": "session"}
        said = {**mark, "pid": stranger.pid, "started": 5, "waiter": 2, "waiter_started": 5}
        (room.directory / "process.json").write_text(json.dumps(said))
        assert await room.find() == Exit()
        assert pids.started_at(stranger.pid) is not None
    finally:
        stranger.kill()
        await stranger.wait()


async def test_a_name_with_brackets_and_spaces_is_read(tmp_path: Path):
    program = tmp_path / "a) S (b"
    program.symlink_to("/bin/sleep")
    process = await asyncio.create_subprocess_exec(str(program), "100")
    try:
        assert pids.started_at(process.pid) is not None
        assert pids.arguments(process.pid) == (str(program), "100")
    finally:
        process.kill()
        await process.wait()
    assert pids.started_at(process.pid) is None


async def test_waiting_for_what_is_gone_takes_no_time():
    async with asyncio.timeout(1):
        await pids.gone(1, 0)
        await pids.gone(2**22 - 3, 5)


async def test_the_end_is_seen_also_where_the_kernel_has_no_pidfd(room: Room, monkeypatch: pytest.MonkeyPatch):
    def without(pid: int) -> int:
        raise OSError(errno.ENOSYS, "Function not implemented")

    monkeypatch.setattr(os, "pidfd_open", without)
    alive = await room.start("sleep 100")
    os.kill(alive.pid, signal.SIGKILL)
    async with asyncio.timeout(5):
        assert await alive.ended() == Exit(signal=signal.SIGKILL)
