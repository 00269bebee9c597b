"""The agent's side of the link: every end has its cause, and only an accepted registration resets the backoff."""

import asyncio
import logging
import random
from collections.abc import Callable
from itertools import pairwise

import pytest

from llmgw.agent import link as link_module
from llmgw.agent.backoff import Backoff
from llmgw.agent.link import Link, Who
from llmgw.agent.news import News
from llmgw.config.address import Address
from llmgw.config.tls import TlsFiles
from llmgw.core.engines.terms import Install, InstallStep
from llmgw.core.facts import Engines, Exposure
from llmgw.core.identity import Identity, Role
from llmgw.core.inventory import Cpu, Inventory, Usage
from llmgw.core.link import Accepted, Desired, Listening, Refused, Registration, TryAddress
from llmgw.core.names import NodeName
from llmgw.core.units import GIB, Bytes
from tests.agent.control import Control, Session, desired

INVENTORY = Inventory(os="Debian", kernel="6", arch="x86_64", cpu=Cpu(cores=2), memory=GIB)


class Node:
    """What a link needs of a node."""

    epoch = 0

    def __init__(self) -> None:
        self.received = asyncio.Queue[Desired]()

    def receive(self, desired: Desired) -> None:
        self.received.put_nowait(desired)

    def reports(self) -> tuple:
        return ()


class Survey:
    def __init__(self) -> None:
        self.inventory, self.engines = INVENTORY, None

    def usage(self) -> Usage:
        return Usage(memory_available=GIB)


class Installing:
    def __init__(self) -> None:
        self.now: tuple[Install, ...] = ()

    def installs(self) -> tuple[Install, ...]:
        return self.now


class Listener:
    """What a link needs of a listener: it answers at once."""

    def __init__(self, news: News) -> None:
        self.news, self.said = news, list[Listening]()

    def ask(self, question: TryAddress) -> None:
        self.said.append(Listening(token=question.token, host="127.0.0.1", port=21000))
        self.news.ring()

    def answer(self) -> Listening | None:
        return self.said.pop() if self.said else None


class Rig:
    def __init__(self, files: TlsFiles, ports: list[int]) -> None:
        self.stop, self.node, self.survey, self.news = asyncio.Event(), Node(), Survey(), News()
        own = Who(
            node=NodeName("node01"),
            machine="0" * 32,
            boot="b",
            identity=Identity("demo", Role.AGENT, "node01"),
            address=None,
        )
        control = [Address("127.0.0.1", port) for port in ports]
        self.listener, self.installing = Listener(self.news), Installing()
        about = (self.node, self.survey, self.installing, self.listener, self.news, self.stop)
        self.link = Link(own, control, files, *about, lambda: 21001)  # type: ignore[arg-type]


@pytest.fixture
def linked(tls: Callable[..., TlsFiles], control: Control, caplog: pytest.LogCaptureFixture):
    """Run a link until a line of its log holds `words`; returns the whole log."""
    caplog.set_level(logging.INFO, logger="llmgw.agent.link")

    async def run(words: str, rig: Rig | None = None) -> str:
        rig = rig or Rig(tls("node01"), [control.port])
        said, handler = asyncio.Event(), logging.Handler()
        handler.emit = lambda record: said.set() if words in record.getMessage() else None  # type: ignore[method-assign]
        logger = logging.getLogger("llmgw.agent.link")
        logger.addHandler(handler)
        try:
            async with asyncio.timeout(10), asyncio.TaskGroup() as group:
                group.create_task(rig.link.run())
                await said.wait()
                rig.stop.set()
        finally:
            logger.removeHandler(handler)
        return caplog.text

    return run


# --- each kind of end -------------------------------------------------------------------------------------------


async def test_an_end_without_an_answer_is_told(linked, control: Control):
    control.answer = lambda _: None
    await linked("it ended the stream without an answer to the registration")


async def test_an_end_in_order_is_not_clean_when_we_did_not_ask(linked, control: Control):
    async def end(_: Session) -> bool:
        return False

    control.after = end
    text = await linked("it ended the stream without a reason")
    assert "WARNING" in text


async def test_a_refusal_names_the_certificate_and_the_claim(linked, control: Control):
    control.answer = lambda _: Refused(code="machine", text="node01 is another machine")
    text = await linked("refused (machine): node01 is another machine")
    assert "our certificate is for agent node01, we say that we are node node01" in text
    assert "ERROR" in text


async def test_a_session_that_is_taken_over_is_told_as_refused(linked, control: Control):
    async def replace(session: Session) -> bool:
        await session.send(Refused(code="replaced", text="a newer session"))
        return True

    control.after = replace
    await linked("refused (replaced): a newer session")


async def test_a_fault_of_the_control_plane_is_told(linked, control: Control):
    async def fault(_: Session) -> bool:
        raise RuntimeError("boom")

    control.after = fault
    await linked("Link met a fault; the log of llmgwd says which")


async def test_a_lost_connection_is_told(linked, control: Control):
    async def cut(session: Session) -> bool:
        session.stream._bounds.transport.abort()
        return True

    control.after = cut
    text = await linked(f"control plane 127.0.0.1:{control.port}: ")
    assert "lost" in text or "closed the connection" in text


async def test_a_message_that_no_control_plane_sends_is_told(linked, control: Control):
    async def twice(session: Session) -> bool:
        await session.send(Accepted(cluster="demo", epoch=1, heartbeat=1.0))
        return True

    control.after = twice
    await linked("it accepted the registration a second time")


async def test_a_desired_in_place_of_an_answer_is_told(linked, control: Control):
    control.answer = lambda _: desired()
    await linked("it answered the registration with Desired")


async def test_no_answer_at_all_is_told(linked, control: Control, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(link_module, "_ANSWER_TIME", 0.2)
    never = asyncio.Event()

    async def wait(_: Session) -> bool:
        await never.wait()
        return False

    answered = control._answered
    control._answered = wait  # type: ignore[method-assign]
    try:
        await linked("no answer to the registration within")
    finally:
        control._answered = answered  # type: ignore[method-assign]


async def test_nobody_there_is_told_once_and_tried_again(linked, tls, control: Control):
    """The second of two control planes answers; the first refuses connections."""
    rig = Rig(tls("node01"), [1, control.port])
    text = await linked("registered", rig)
    assert text.count("control plane 127.0.0.1:1: connection refused") == 1


async def test_a_control_plane_without_the_role_is_not_trusted(linked, tls):
    async with Control(tls("node09", Role.AGENT)).listening() as other:
        await linked("127.0.0.1", Rig(tls("node01"), [other.port]))
        assert not other.sessions


async def test_leaving_is_said_and_only_that_is_clean(linked, control: Control):
    text = await linked("registered")
    await control.until(lambda: control.session.over)
    assert control.session.left
    assert ": left, as asked" in text
    assert "WARNING" not in text


# --- what travels -----------------------------------------------------------------------------------------------


async def test_it_beats_at_the_interval_that_it_was_given(tls, control: Control):
    rig = Rig(tls("node01"), [control.port])
    async with asyncio.TaskGroup() as group:
        group.create_task(rig.link.run())
        session = await control.registered()
        begun = asyncio.get_running_loop().time()
        await control.until(lambda: session.beats >= 4)
        assert asyncio.get_running_loop().time() - begun > 0.5
        assert not session.reports
        rig.stop.set()


async def test_news_are_told_at_once_and_desired_is_heard(tls, control: Control):
    control.answer = lambda _: Accepted(cluster="demo", epoch=1, heartbeat=0.5)
    rig = Rig(tls("node01"), [control.port])
    async with asyncio.TaskGroup() as group:
        group.create_task(rig.link.run())
        session = await control.registered()
        await control.want(desired(revision=5))
        assert (await rig.node.received.get()).revision == 5
        rig.survey.engines = Engines(probed_at=1.0)
        rig.news.ring()
        await control.until(lambda: session.reports)
        assert not session.beats
        assert session.reports[0].inventory is None
        await control.until(lambda: session.beats)
        assert len(session.reports) == 1
        rig.stop.set()


async def test_a_question_about_its_address_is_answered_and_nothing_else_is_told(tls, control: Control):
    control.answer = lambda _: Accepted(cluster="demo", epoch=1, heartbeat=0.2)
    rig = Rig(tls("node01"), [control.port])
    async with asyncio.TaskGroup() as group:
        group.create_task(rig.link.run())
        session = await control.registered()
        await session.send(TryAddress(token="1-7", exposure=Exposure.LOOPBACK, seconds=15.0))
        await control.until(lambda: session.listenings)
        assert session.listenings == [Listening(token="1-7", host="127.0.0.1", port=21000)]
        await control.until(lambda: session.beats)
        assert not session.reports
        rig.stop.set()


async def test_what_changed_while_the_registration_was_under_way_is_told(tls, control: Control):
    """A probe that ends between the registration and its answer is in neither, unless somebody looks."""
    rig = Rig(tls("node01"), [control.port])

    def answer(_: Registration) -> Accepted:
        rig.survey.engines = Engines(probed_at=1.0)
        rig.news.ring()
        return Accepted(cluster="demo", epoch=1, heartbeat=60.0)

    control.answer = answer
    async with asyncio.TaskGroup() as group:
        group.create_task(rig.link.run())
        session = await control.registered()
        assert session.registration.engines is None
        await control.until(lambda: session.reports)
        assert session.reports[0].engines == Engines(probed_at=1.0)
        rig.stop.set()


async def test_one_session_at_a_time(tls, control: Control):
    """A session's tasks have ended before the next one dials."""
    open_at_registration = list[int]()

    def answer(_: Registration) -> Accepted:
        open_at_registration.append(sum(not session.over for session in control.sessions))
        return Accepted(cluster="demo", epoch=1, heartbeat=0.2)

    async def end(_: Session) -> bool:
        return False

    control.answer, control.after = answer, end
    rig = Rig(tls("node01"), [control.port])
    async with asyncio.TaskGroup() as group:
        group.create_task(rig.link.run())
        await control.registered(3)
        rig.stop.set()
    assert open_at_registration[:3] == [1, 1, 1]


async def test_stopping_while_nobody_answers_takes_no_time(tls):
    """A server that takes the connection and says nothing."""

    dialled = asyncio.Event()

    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        assert await reader.read(1)  # the first byte of its TLS greeting: from here on it waits for ours
        dialled.set()
        await reader.read()
        writer.close()

    server = await asyncio.start_server(silent, "127.0.0.1", 0)
    rig = Rig(tls("node01"), [server.sockets[0].getsockname()[1]])
    async with server, asyncio.TaskGroup() as group:
        group.create_task(rig.link.run())
        await dialled.wait()
        begun = asyncio.get_running_loop().time()
        rig.stop.set()
    assert asyncio.get_running_loop().time() - begun < 1.5


# --- backoff ----------------------------------------------------------------------------------------------------


class Dice(random.Random):
    """Throws the highest, so that a wait shows its length."""

    def uniform(self, a: float, b: float) -> float:
        return b


def test_waits_double_to_five_seconds():
    backoff = Backoff(Dice())
    assert [backoff.next() for _ in range(7)] == pytest.approx([0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0])


def test_a_thousand_agents_do_not_come_back_in_step():
    waits = []
    for seed in range(1000):
        backoff = Backoff(random.Random(seed))
        waits.append([backoff.next() for _ in range(8)][-1])
    for second in range(5):
        assert 150 < sum(second <= wait < second + 1 for wait in waits) < 250


def test_a_refused_agent_waits_some_seconds_at_least():
    assert 2.5 <= Backoff().next(least=5.0) <= 5.0


def test_after_a_long_session_the_first_dials_come_fast_again_and_after_a_short_one_not():
    """A control plane that takes every agent and drops it must not have them all back at once."""
    backoff = Backoff(Dice())
    for _ in range(4):
        backoff.next()
    backoff.was_registered(59.0)
    assert backoff.next() == pytest.approx(3.2)
    backoff.was_registered(60.0)
    assert backoff.next() == pytest.approx(0.2)


async def test_only_an_accepted_registration_counts_for_the_backoff(linked, control: Control, monkeypatch):
    counted = list[float]()
    monkeypatch.setattr(Backoff, "was_registered", lambda self, seconds: counted.append(seconds))
    control.answer = lambda _: None
    await linked("without an answer")
    control.answer = lambda _: Refused(code="no", text="no")
    await linked("refused")
    assert not counted
    control.answer = lambda _: Accepted(cluster="demo", epoch=1, heartbeat=1.0)
    await linked("registered")
    assert len(counted) == 1
    assert 0.0 <= counted[0] < 5.0


# --- installs ---------------------------------------------------------------------------------------------------


def installing(done: int, step: InstallStep = InstallStep.DOWNLOAD) -> tuple[Install, ...]:
    return (Install(engine="llama.cpp", version="b1", step=step, since=1.0, done=Bytes(done), total=Bytes(1000)),)


async def test_a_registration_says_what_is_installed_and_where_files_are_given(
    tls: Callable[..., TlsFiles], control: Control
):
    rig = Rig(tls("node01"), [control.port])
    rig.installing.now = installing(7)
    async with asyncio.TaskGroup() as group:
        group.create_task(rig.link.run())
        session = await control.registered()
        rig.stop.set()
    assert (session.registration.installs, session.registration.files_port) == (installing(7), 21001)


async def test_installs_are_told_twice_a_second_at_most_and_their_last_state_always(
    tls: Callable[..., TlsFiles], control: Control
):
    rig = Rig(tls("node01"), [control.port])
    loop = asyncio.get_running_loop()
    async with asyncio.TaskGroup() as group:
        group.create_task(rig.link.run())
        session = await control.registered()
        began = loop.time()
        for done in range(200):  # as a fast download does
            rig.installing.now = installing(done)
            rig.news.ring()
            await asyncio.sleep(0.005)
        rig.installing.now = installing(0, InstallStep.READY)
        rig.news.ring()
        await control.until(lambda: session.installs and session.installs[-1][1] == installing(0, InstallStep.READY))
        took = loop.time() - began
        rig.stop.set()
    assert 2 <= len(session.installs) <= 1 + took / 0.5
    assert all(later - sooner > 0.45 for (sooner, _), (later, _) in pairwise(session.installs))
    assert session.reports == [], "bytes are no reason to tell of shards"


async def test_installs_that_do_not_change_are_not_told(tls: Callable[..., TlsFiles], control: Control):
    rig = Rig(tls("node01"), [control.port])
    rig.installing.now = installing(7)
    async with asyncio.TaskGroup() as group:
        group.create_task(rig.link.run())
        session = await control.registered()
        rig.news.ring()
        await control.until(lambda: session.beats >= 4)
        rig.stop.set()
    assert session.installs == []
