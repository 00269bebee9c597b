"""What the disk, the kernel or a tool fails to do ends neither the agent nor an engine."""

import asyncio
import contextlib
import logging
import os
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from llmgw.agent import node as node_module
from llmgw.agent import patience
from llmgw.agent.engines import llamacpp
from llmgw.agent.launch import log, pids
from llmgw.agent.launch.launcher import Owner, Task
from llmgw.agent.launch.session import SessionLauncher
from llmgw.agent.news import News
from llmgw.agent.node import Node
from llmgw.agent.records import Records
from llmgw.agent.start import Started
from llmgw.agent.watch import Watch
from llmgw.core.converge import Launch
from llmgw.core.facts import ShardReport, Want
from llmgw.core.link import Desired
from llmgw.core.local_shard import Ended, Process
from llmgw.core.names import NodeName, ShardId
from llmgw.core.shard import ShardState
from llmgw.host.machine import boot_id
from tests.agent.control import desired, order
from tests.agent.test_ask import Alive, Told

FIRST, SECOND = ShardId("tiny/0.0"), ShardId("tiny/1.0")
S = ShardState


class Rig:
    """A node with a real disk and real processes; its engines are `sleep`, which are never ready, and are started
    whether the disk takes their record or not."""

    def __init__(self, state: Path) -> None:
        self.records, self.news, self.engines = Records(state), News(), News()
        self._launcher = SessionLauncher(Owner("demo", NodeName("node01"), f"t{os.getpid()}"), boot_id())
        self.node = Node("demo", 600.0, self.records, self, self._launcher, self.news)  # type: ignore[arg-type]

    async def start(self, step: Launch, *_: object) -> Started:
        directory = self.records.directory(step.order.shard)
        record = ShardReport(
            shard=step.order.shard,
            state=S.STARTING,
            since=1.0,
            launch=step.launch,
            host="127.0.0.1",
            port=1,
            order=step.order,
        )
        with contextlib.suppress(OSError):
            self.records.save(record)
        task = Task(
            shard=step.order.shard,
            launch=step.launch,
            argv=("/bin/sleep", "100"),
            environment={},
            directory=directory,
            log=directory / "engine.log",
        )
        alive = await self._launcher.start(task)
        return Started(alive, Process(pid=alive.pid, host="127.0.0.1", port=1))

    def state(self, shard: ShardId = FIRST) -> ShardState | None:
        return next((report.state for report in self.node.reports() if report.shard == shard), None)

    def pid(self, shard: ShardId = FIRST) -> int | None:
        return next((report.pid for report in self.node.reports() if report.shard == shard), None)

    async def until(self, holds: Callable[[], bool]) -> None:
        async with asyncio.timeout(10):
            while True:
                seen = self.news.count
                if holds():
                    return
                await self.news.after(seen)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        await self.node.open()
        async with asyncio.TaskGroup() as group:
            task = group.create_task(self.node.run())
            try:
                yield
            finally:
                task.cancel()

    async def end(self) -> None:
        await asyncio.gather(*(self._launcher.clear(name, self.records.directory(name)) for name in (FIRST, SECOND)))


@pytest.fixture
async def rig(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Rig]:
    for module in (patience, node_module):
        monkeypatch.setattr(module, "PAUSE", 0.05)
    rig = Rig(tmp_path)
    yield rig
    await rig.end()


@asynccontextmanager
async def logged(logger: str, words: str) -> AsyncIterator[None]:
    """Leave the block when the log has held `words` since it was entered."""
    said, handler = asyncio.Event(), logging.Handler()
    handler.emit = lambda record: said.set() if words in record.getMessage() else None  # type: ignore[method-assign]
    logging.getLogger(logger).addHandler(handler)
    logging.getLogger(logger).setLevel(logging.INFO)
    try:
        yield
        async with asyncio.timeout(10):
            await said.wait()
    finally:
        logging.getLogger(logger).removeHandler(handler)


NODE = "llmgw.agent.node"


# --- the disk ---------------------------------------------------------------------------------------------------


async def test_what_to_run_is_done_when_the_disk_takes_it(rig: Rig, tmp_path: Path, caplog: pytest.LogCaptureFixture):
    """A directory where the new file should be written: the disk says no to this file and to nothing else."""
    async with rig.running():
        (tmp_path / ".desired.json.new").mkdir()
        async with logged(NODE, "what to run cannot be kept"):
            rig.node.receive(desired(order("/w"), epoch=3))
        assert rig.state() is None
        (tmp_path / ".desired.json.new").rmdir()
        await rig.until(lambda: rig.state() is S.STARTING)
    assert caplog.text.count("is a directory; tried again") == 1


async def test_a_record_that_the_disk_does_not_take_is_kept_later(rig: Rig, caplog: pytest.LogCaptureFixture):
    obstacle = rig.records.directory(FIRST) / ".shard.json.new"
    obstacle.mkdir(parents=True)
    async with rig.running():
        async with logged(NODE, "what is known of the shards cannot be kept"):
            rig.node.receive(desired(order("/w")))
        await rig.until(lambda: rig.state() is S.STARTING)
        rig.node.receive(desired(order("/w", want=Want.STOP), revision=2))
        await rig.until(lambda: rig.state() is S.STOPPED)
        assert list(rig.records.shards()) == []
        async with logged(NODE, "what is known of the shards cannot be kept: in order again"):
            obstacle.rmdir()
        assert [record.state for record in rig.records.shards()] == [S.STOPPED]
    assert caplog.text.count("is a directory; tried again") == 1, "each cause once"


async def test_a_shard_that_cannot_be_removed_is_told_until_it_is_and_holds_up_nobody(rig: Rig):
    async with rig.running():
        rig.node.receive(desired(order("/w")))
        await rig.until(lambda: rig.state() is S.STARTING)
        rig.node.receive(desired(order("/w", want=Want.STOP), revision=2))
        await rig.until(lambda: rig.state() is S.STOPPED)
        process_file = rig.records.directory(FIRST) / "process.json"
        process_file.unlink()
        process_file.mkdir()
        async with logged(NODE, "shard tiny/0.0: what is left of it cannot be removed"):
            rig.node.receive(desired(order("/w", "tiny/1.0"), revision=3))
        await rig.until(lambda: rig.state(SECOND) is S.STARTING)
        assert rig.state() is S.STOPPED
        process_file.rmdir()
        await rig.until(lambda: rig.state() is None)
        assert not rig.records.directory(FIRST).exists()


async def test_an_engine_is_not_gone_because_its_file_cannot_be_read(rig: Rig, tmp_path: Path):
    async with rig.running():
        rig.node.receive(desired(order("/w")))
        await rig.until(lambda: rig.state() is S.STARTING)
        pid = rig.pid()
    process_file = rig.records.directory(FIRST) / "process.json"
    process_file.rename(process_file.with_name("aside"))
    process_file.mkdir()
    again = Rig(tmp_path)
    async with asyncio.TaskGroup() as group:
        async with logged(NODE, "shard tiny/0.0: whether its engine runs is not known"):
            opening = group.create_task(again.node.open())
        assert not opening.done(), "a registration now would say that nothing runs"
        process_file.rmdir()
        process_file.with_name("aside").rename(process_file)
    assert (again.state(), again.pid()) == (S.STARTING, pid)


async def test_an_engine_whose_file_is_lost_is_found_by_its_mark(rig: Rig, tmp_path: Path):
    async with rig.running():
        rig.node.receive(desired(order("/w")))
        await rig.until(lambda: rig.state() is S.STARTING)
        pid = rig.pid()
    (rig.records.directory(FIRST) / "process.json").write_bytes(b"\0\0")
    again = Rig(tmp_path)
    await again.node.open()
    assert again.pid() == pid


async def test_the_highest_epoch_outlives_a_damaged_list_of_what_to_run(rig: Rig, tmp_path: Path):
    """Else a leader that was long replaced would be obeyed by exactly the node whose disk failed."""
    async with rig.running():
        rig.node.receive(desired(order("/w"), epoch=7))
        await rig.until(lambda: rig.state() is S.STARTING)
    (tmp_path / "desired.json").write_bytes(b"\0" * 40)
    again = Rig(tmp_path)
    async with again.running():
        assert (again.node.epoch, again.node.obeyed) == (7, None)
        async with logged(NODE, "it is of epoch 6, epoch 7 was obeyed before"):
            again.node.receive(desired(epoch=6, revision=9))
        assert again.state() is S.STARTING
        again.node.receive(desired(epoch=7, revision=9))
        await again.until(lambda: again.state() is None)


async def test_a_damaged_epoch_is_that_of_what_was_obeyed_last(rig: Rig, tmp_path: Path):
    async with rig.running():
        rig.node.receive(desired(order("/w"), epoch=7))
        await rig.until(lambda: rig.state() is S.STARTING)
    (tmp_path / "epoch").write_bytes(b"9")
    again = Rig(tmp_path)
    await again.node.open()
    assert again.node.epoch == 7
    assert isinstance(again.node.obeyed, Desired)


async def test_a_full_disk_under_a_log_does_not_end_its_watch(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
):
    """/dev/full is a disk without room, and real."""
    monkeypatch.setattr("llmgw.agent.watch._LOG_EVERY", 1)
    monkeypatch.setattr("llmgw.agent.watch.STARTING", 0.01)
    file = tmp_path / "engine.log"
    file.write_bytes(b"line\n" * 2_000_000)
    log.previous(file).symlink_to("/dev/full")
    asked = asyncio.Queue[None]()

    async def refuse(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.put_nowait(None)
        writer.close()

    server = await asyncio.start_server(refuse, "127.0.0.1", 0)
    told, alive = Told(), Alive()
    process = Process(pid=1, host="127.0.0.1", port=server.sockets[0].getsockname()[1])
    watch = Watch(1, alive, process, llamacpp, file, told.outcomes.put_nowait)
    async with server, asyncio.timeout(10), asyncio.TaskGroup() as group:
        group.create_task(watch.run(0.0))
        for _ in range(5):
            await asked.get()
        alive.gone.set()
        assert isinstance(await told.next(), Ended)
    assert caplog.text.count(f"{file} cannot be kept short") == 1
    assert "no space left on device" in caplog.text


def test_a_log_that_fills_the_disk_is_emptied_even_where_no_copy_can_be_made(tmp_path: Path):
    file = tmp_path / "engine.log"
    log.previous(file).symlink_to("/dev/full")
    file.write_bytes(b"x" * 3000)
    with pytest.raises(OSError, match="No space"):
        log.bound(file, longest=1000, kept=300)
    assert file.stat().st_size == 3000
    file.write_bytes(b"x" * 5000)
    log.bound(file, longest=1000, kept=300)
    assert file.stat().st_size == 0


# --- the kernel -------------------------------------------------------------------------------------------------


def test_a_process_is_not_gone_because_the_agent_has_no_descriptor_left(monkeypatch: pytest.MonkeyPatch):
    def none_left(*_: object, **__: object) -> str:
        raise OSError(24, "Too many open files")

    assert pids.started_at(os.getpid()) is not None
    monkeypatch.setattr(Path, "read_text", none_left)
    with pytest.raises(OSError, match="Too many open files"):
        pids.started_at(os.getpid())


async def test_an_end_that_cannot_be_seen_is_waited_for(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setattr(patience, "PAUSE", 0.01)

    class Unseen(Alive):
        tries = 0

        async def ended(self):
            self.tries += 1
            if self.tries < 3:
                raise OSError(24, "Too many open files")
            return await super().ended()

    told, alive = Told(), Unseen()
    alive.gone.set()
    watch = Watch(
        1, alive, Process(pid=1, host="127.0.0.1", port=1), llamacpp, tmp_path / "l", told.outcomes.put_nowait
    )
    await watch.run(0.0)
    assert await told.next() == Ended(launch=1, exit_status=3)
    assert alive.tries == 3


# --- an engine that works and does not answer -------------------------------------------------------------------


async def test_an_engine_that_uses_the_processor_works_and_one_that_is_frozen_does_not(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    """Nothing answers; only what the kernel says of the process tells the two apart."""
    monkeypatch.setattr("llmgw.agent.watch.READY", 0.1)
    metrics = asyncio.Queue[None]()

    async def mute(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if b"/metrics" in await reader.readline():
            metrics.put_nowait(None)
        writer.close()

    server = await asyncio.start_server(mute, "127.0.0.1", 0)
    engine = await asyncio.create_subprocess_exec("/bin/sh", "-c", "while :; do :; done", start_new_session=True)
    told, alive = Told(), Alive()
    process = Process(pid=engine.pid, host="127.0.0.1", port=server.sockets[0].getsockname()[1])
    watch = Watch(1, alive, process, llamacpp, tmp_path / "log", told.outcomes.put_nowait)
    watch.turn(S.STARTING, was_ready=True)
    try:
        async with server, asyncio.timeout(20), asyncio.TaskGroup() as group:
            group.create_task(watch.run(0.0))
            await told.next()
            os.kill(engine.pid, signal.SIGSTOP)
            while not metrics.empty():
                metrics.get_nowait()
            # The first question may count what it did before; metrics are asked for where the processor says nothing.
            await metrics.get()
            while not told.outcomes.empty():
                told.outcomes.get_nowait()
            for _ in range(3):
                await metrics.get()
            assert told.outcomes.empty()
            os.kill(engine.pid, signal.SIGCONT)
            await told.next()
            alive.gone.set()
    finally:
        engine.kill()
        await engine.wait()
