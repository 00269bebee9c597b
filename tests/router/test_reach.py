"""A router says whether it reaches a node: with real sockets, and with a control plane that a test speaks for."""

import asyncio
import contextlib
import errno
import logging
import socket
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from typing import Self

import pytest
import uvloop

from llmgw.core.errors import ControlUnreachable, Rejected
from llmgw.core.names import NodeName
from llmgw.core.routes import Attempt, Noted, Tried
from llmgw.router import reach as reach_module
from llmgw.router.reach import AT_ONCE, ELSEWHERE, Reaching, reach
from tests.router.rig import HERE, Rig, chat, replica

OTHER = "another program answers there"


def attempt(port: int, **more: object) -> Attempt:
    about = {"token": "7-1", "node": NodeName("node01"), "machine": HERE, "host": "127.0.0.1", "port": port}
    return Attempt(**(about | more))  # type: ignore[arg-type]


@asynccontextmanager
async def saying(*pieces: bytes, hang_up: bool = True, host: str = "127.0.0.1") -> AsyncIterator[int]:
    """Something that listens and says this to everybody; gives its port."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for piece in pieces:
            writer.write(piece)
            await writer.drain()
        if not hang_up:
            await reader.read()
        writer.close()

    async with await asyncio.start_server(serve, host, 0) as server:
        yield server.sockets[0].getsockname()[1]


@pytest.fixture
def closed() -> int:
    """A port that nobody listens on."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        return int(held.getsockname()[1])


# --- one attempt ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
async def test_who_says_the_token_is_reached(host: str):
    async with saying(b"llmgw-re", b"ach 7-1\n", host=host) as port:
        assert await reach(attempt(port, host=host), HERE) == ""


def test_uvloops_sockets_tell_the_same(closed: int):
    async def both() -> list[str]:
        async with saying(b"llmgw-reach 7-1\n") as port:
            return [await reach(attempt(port), HERE), await reach(attempt(closed), HERE)]

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        assert runner.run(both()) == ["", "connection refused"]


@pytest.mark.parametrize(
    "said",
    [
        b"llmgw-reach 7-2\n",
        b"HTTP/1.1 400 Bad Request\r\n\r\n",
        b"llmgw-reach 7-1",
        b"",
        b"\xff\x00\n",
        b"x" * 100_000,
    ],
)
async def test_whoever_says_something_else_is_another_program(said: bytes):
    async with saying(said) as port:
        assert await reach(attempt(port), HERE) == OTHER


async def test_a_port_that_nobody_listens_on_is_refused(closed: int):
    assert await reach(attempt(closed), HERE) == "connection refused"


async def test_one_who_says_nothing_is_not_waited_for(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(reach_module, "LIMIT", 0.05)
    async with saying(hang_up=False) as port:
        assert await reach(attempt(port), HERE) == f"{OTHER}: it says nothing within 0.05 s"


async def test_a_host_that_takes_no_connection_is_not_waited_for(monkeypatch: pytest.MonkeyPatch):
    """A listener whose queue is full drops what comes, as a firewall does."""
    monkeypatch.setattr(reach_module, "LIMIT", 0.2)
    with contextlib.ExitStack() as stack:
        full = stack.enter_context(socket.create_server(("127.0.0.1", 0), backlog=0))
        for _ in range(4):
            filler = stack.enter_context(socket.socket())
            filler.setblocking(False)
            assert filler.connect_ex(full.getsockname()) in (0, errno.EINPROGRESS)
        assert await reach(attempt(full.getsockname()[1]), HERE) == "no answer within 0.2 s"


async def test_loopback_of_another_machine_is_not_even_tried():
    async with saying(b"llmgw-reach 7-1\n") as port:
        assert await reach(attempt(port, machine="b" * 32), HERE) == ELSEWHERE
        assert await reach(attempt(port, machine=""), "") == ELSEWHERE, "who does not know its machine is on none"


@pytest.mark.parametrize("host", ["", "-", "a b", "no\x00de", "x" * 300, "no.such.host.invalid"])
async def test_a_host_that_is_none_is_an_answer_too(host: str):
    answer = await reach(attempt(21000, host=host), HERE)
    assert answer
    assert len(answer) <= 300
    assert "\n" not in answer


# --- a control plane that asks ----------------------------------------------------------------------------------


class Asking:
    """The control plane, as a connection to it shows itself."""

    def __init__(self) -> None:
        self.asked: asyncio.Queue[Attempt | Exception | None] = asyncio.Queue()
        self.answers: asyncio.Queue[Tried] = asyncio.Queue()
        self.dialled = 0
        self.deaf = False
        self.unheard = asyncio.Event()

    def dial(self) -> Self:
        self.dialled += 1
        return self

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        pass

    async def watch_attempts(self) -> AsyncGenerator[Attempt, None]:
        while (said := await self.asked.get()) is not None:
            if isinstance(said, Exception):
                raise said
            yield said

    async def report_attempt(self, tried: Tried) -> Noted:
        if self.deaf:
            self.unheard.set()
            raise ControlUnreachable("control", "connection lost")
        self.answers.put_nowait(tried)
        return Noted()

    async def hears(self) -> Tried:
        async with asyncio.timeout(10):
            return await self.answers.get()


@pytest.fixture
async def asking() -> AsyncIterator[Asking]:
    control = Asking()
    task = asyncio.create_task(Reaching(HERE, control.dial).run())
    yield control
    task.cancel()
    await asyncio.wait([task])
    assert task.cancelled(), "nothing that a control plane says ends it"


async def test_what_is_asked_is_tried_and_told(asking: Asking, closed: int):
    async with saying(b"llmgw-reach 7-1\n") as port:
        asking.asked.put_nowait(attempt(port, stream="ours"))
        assert await asking.hears() == Tried(token="7-1", stream="ours")
        asking.asked.put_nowait(attempt(closed, token="7-2"))
        assert await asking.hears() == Tried(token="7-2", error="connection refused")


@pytest.mark.parametrize("end", [None, ControlUnreachable("control", "gone"), RuntimeError("a bug")])
async def test_after_every_end_it_is_there_again(asking: Asking, closed: int, end: Exception | None):
    asking.asked.put_nowait(end)
    asking.asked.put_nowait(attempt(closed))
    assert (await asking.hears()).error == "connection refused"
    assert asking.dialled == 2


async def test_an_answer_that_cannot_be_told_ends_nothing(asking: Asking, closed: int):
    asking.deaf = True
    asking.asked.put_nowait(attempt(closed))
    async with asyncio.timeout(10):
        await asking.unheard.wait()
    asking.deaf = False
    asking.asked.put_nowait(attempt(closed, token="7-2"))
    assert (await asking.hears()).token == "7-2"
    assert asking.dialled == 1


async def test_no_more_than_a_few_are_tried_at_once(asking: Asking, monkeypatch: pytest.MonkeyPatch):
    running, most, go, full = set[str](), 0, asyncio.Event(), asyncio.Event()

    async def slow(one: Attempt, machine: str) -> str:
        nonlocal most
        running.add(one.token)
        most = max(most, len(running))
        if len(running) == AT_ONCE:
            full.set()
        await go.wait()
        running.discard(one.token)
        return ""

    monkeypatch.setattr(reach_module, "reach", slow)
    for number in range(3 * AT_ONCE):
        asking.asked.put_nowait(attempt(1, token=str(number)))
    async with asyncio.timeout(10):
        await full.wait()
    for _ in range(50):
        await asyncio.sleep(0)
    go.set()
    assert {(await asking.hears()).token for _ in range(3 * AT_ONCE)} == {str(n) for n in range(3 * AT_ONCE)}
    assert most == AT_ONCE


async def pauses_of(end: Exception, count: int) -> tuple[list[float], Reaching]:
    """How long it waits between sessions that end so at once."""
    pauses: list[float] = []

    class Enough(Exception):
        pass

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == count:
            raise Enough

    control = Asking()
    for _ in range(count):
        control.asked.put_nowait(end)
    reaching = Reaching(HERE, control.dial, sleep)
    with pytest.raises(Enough):
        await reaching.run()
    return pauses, reaching


async def test_it_comes_back_ever_less_often():
    pauses, _ = await pauses_of(ControlUnreachable("control", "connection refused"), 9)
    assert 0.1 <= pauses[0] <= 0.2
    assert 5.0 <= pauses[8] <= 10.0


async def test_a_control_plane_that_does_not_know_the_call_is_told_of_once_and_left_alone(
    caplog: pytest.LogCaptureFixture,
):
    with caplog.at_level(logging.INFO, logger="llmgw.router.reach"):
        pauses, _ = await pauses_of(Rejected("control plane c:1 does not know this call; it is of another version"), 5)
    assert min(pauses) >= 600
    assert len(caplog.records) == 1
    assert "does not know this call" in caplog.text


async def test_requests_are_served_whatever_asks(tmp_path, engine):
    """A control plane that ends each stream with a fault, in a whole router."""
    control = Asking()
    for _ in range(3):
        control.asked.put_nowait(RuntimeError("a bug"))
    async with Rig(tmp_path, dial=control.dial) as rig:
        await rig.routes(replica(0, engine.port))
        async with asyncio.timeout(10), saying(b"llmgw-reach 7-1\n") as port:
            control.asked.put_nowait(attempt(port))
            assert await control.hears() == Tried(token="7-1")
            assert (await rig.ask(chat()))[0] == 200
