"""What an engine may answer, and what it may not do to the agent with it."""

import asyncio
from collections.abc import Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from llmgw.agent import watch as watch_module
from llmgw.agent.engines import ask, llamacpp
from llmgw.agent.engines.adapter import Ready
from llmgw.agent.launch.launcher import Exit
from llmgw.agent.watch import Watch
from llmgw.core.facts import Secret
from llmgw.core.local_shard import Ended, Healthy, Idle, Outcome, Process, Unhealthy
from llmgw.core.shard import ShardState

OK = b"HTTP/1.0 200 OK\r\n\r\n"


@asynccontextmanager
async def answering(answer: Callable[[str, str], bytes | None]):
    """An engine whose answer to (path, key) is what `answer` returns; None keeps the connection and says nothing."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        path = head.split()[1]
        key = head.partition("Bearer ")[2].split("\r")[0]
        said = answer(path, key)
        if said is None:
            await reader.read()
        else:
            writer.write(said)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        yield Process(pid=1, host="127.0.0.1", port=port, key=Secret("right"))


@pytest.mark.parametrize(
    ("answer", "status"),
    [
        (b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", 200),
        (b"HTTP/1.0 503 Service Unavailable\r\n\r\n", 503),
        (b"HTTP/1.1 200\r\n\r\n", 200),
        (b"", 0),
        (b"SSH-2.0-OpenSSH_9\r\n", 0),
        (b"HTTP/2 200 OK\r\n\r\n", 0),
        (b"HTTP/1.1 2000 OK\r\n\r\n", 0),
        (b"\x16\x03\x01\x00" * 100, 0),
    ],
)
async def test_an_answer_is_its_status_or_none(answer: bytes, status: int):
    async with answering(lambda path, key: answer) as process:
        assert (await ask.get(process, "/health")).status == status


async def test_an_endless_answer_is_cut():
    async with answering(lambda path, key: OK + b"x" * (3 << 20)) as process:
        assert len((await ask.get(process, "/metrics")).body) <= (1 << 20) + 65536


async def test_silence_ends_in_time():
    async with answering(lambda path, key: None) as process:
        begun = asyncio.get_running_loop().time()
        assert (await ask.get(process, "/health", timeout=0.2)).status == 0
        assert asyncio.get_running_loop().time() - begun < 1


async def test_nobody_there_is_no_answer():
    assert await ask.ready(llamacpp, Process(pid=1, host="127.0.0.1", port=1)) is None


async def test_an_engine_with_another_key_is_not_ours():
    """Another program may hold the port: its 200 on /health says nothing about our engine."""

    def other(path: str, key: str) -> bytes:
        return OK if path == "/health" or key == "other" else b"HTTP/1.0 401 no\r\n\r\n"

    async with answering(other) as process:
        assert await ask.ready(llamacpp, process) is Ready.READY
        assert not await ask.ours(llamacpp, process)
        assert not await made(process).ready()


def metrics(busy: int) -> bytes:
    return OK + f"llamacpp:requests_processing {busy}\nllamacpp:requests_deferred 0\n".encode()


async def test_idle_is_said_by_the_metrics():
    for body, idle in ((metrics(0), True), (metrics(2), False), (OK, False), (b"HTTP/1.0 404 no\r\n\r\n", False)):
        async with answering(lambda path, key, body=body: body) as process:
            assert await ask.idle(llamacpp, process) is idle


# --- the watch --------------------------------------------------------------------------------------------------


class Alive:
    pid = 1

    def __init__(self) -> None:
        self.gone = asyncio.Event()

    async def ended(self) -> Exit:
        await self.gone.wait()
        return Exit(status=3)

    async def stop(self, grace: float) -> None:
        self.gone.set()


class Told:
    """Outcomes as they come."""

    def __init__(self) -> None:
        self.outcomes = asyncio.Queue[Outcome]()

    async def next(self) -> Outcome:
        async with asyncio.timeout(5):
            return await self.outcomes.get()


def made(process: Process, told: Told | None = None, alive: Alive | None = None, log: Path = Path("/none")) -> Watch:
    told = told or Told()
    return Watch(1, alive or Alive(), process, llamacpp, log, told.outcomes.put_nowait)


async def test_a_watch_follows_an_engine_through_its_life(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setattr(watch_module, "STARTING", 0.01)
    monkeypatch.setattr(watch_module, "READY", 0.01)
    monkeypatch.setattr(watch_module, "DRAINING", 0.01)
    (tmp_path / "log").write_text("its last words\n")
    loading, busy = True, 1

    def answer(path: str, key: str) -> bytes:
        if path == "/metrics":
            return metrics(busy)
        return b"HTTP/1.0 503 loading\r\n\r\n" if loading else OK

    async with answering(answer) as process:
        told, alive = Told(), Alive()
        watch = made(process, told, alive, tmp_path / "log")
        async with asyncio.TaskGroup() as group:
            group.create_task(watch.run(0.0))
            loading = False
            assert await told.next() == Healthy(launch=1)
            watch.turn(ShardState.READY)
            loading = True
            assert await told.next() == Unhealthy(launch=1)
            watch.turn(ShardState.STARTING)
            loading = False
            assert await told.next() == Healthy(launch=1)
            watch.turn(ShardState.DRAINING)
            busy = 0
            while not isinstance(outcome := await told.next(), Idle):
                assert isinstance(outcome, Healthy)  # asked before it was told to drain
            alive.gone.set()
            while not isinstance(outcome := await told.next(), Ended):
                assert isinstance(outcome, Idle)
            assert outcome == Ended(launch=1, exit_status=3, last_lines=("its last words",))


async def test_one_missed_answer_is_no_illness_and_three_are(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(watch_module, "READY", 0.01)
    answers = [b"", b"", OK, b"", b"", b""]
    asked: list[bytes] = []

    def answer(path: str, key: str) -> bytes:
        said = answers[len(asked)] if len(asked) < len(answers) else OK
        asked.append(said)
        return said

    async with answering(answer) as process:
        told, alive = Told(), Alive()
        watch = made(process, told, alive)
        watch.turn(ShardState.READY)
        async with asyncio.TaskGroup() as group:
            group.create_task(watch.run(0.0))
            assert await told.next() == Unhealthy(launch=1)
            assert asked == answers
            alive.gone.set()
