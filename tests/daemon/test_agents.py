"""The agent link on real sockets with real certificates: who may register, what is sent, and why a stream ended."""

import asyncio
import logging
from dataclasses import replace
from types import SimpleNamespace

import pytest

from llmgw.core.errors import BadMessage, ControlUnreachable, LlmgwError, NotAllowed
from llmgw.core.events import Event, EventKind
from llmgw.core.facts import Exposure, ShardReport, Want
from llmgw.core.link import Accepted, Desired, Leaving, Refused
from llmgw.core.names import NodeName
from llmgw.core.presence import NodeState
from llmgw.core.shard import ShardState
from llmgw.core.units import NONE
from llmgw.core.views import NodeView, Noun, Page
from llmgw.daemon import agents
from llmgw.daemon.agents import AgentLinks, Mailboxes
from tests.daemon.conftest import Control, Start
from tests.daemon.world import registration, turns


class Story:
    """What an operator sees, collected by a task that follows the watch."""

    def __init__(self) -> None:
        self.items: list[object] = []
        self._more = asyncio.Event()

    def take(self, page: Page) -> None:
        self.items += page.items
        self._more.set()

    async def event(self, kind: EventKind, subject: str = "") -> Event:
        async with asyncio.timeout(10):
            while True:
                for item in self.items:
                    if isinstance(item, Event) and item.kind is kind and subject in ("", item.subject):
                        return item
                self._more.clear()
                await self._more.wait()

    def node(self, name: str) -> NodeView:
        return [item for item in self.items if isinstance(item, NodeView) and item.name == name][-1]


@pytest.fixture
async def story(start: Start):  # type: ignore[no-untyped-def]
    """A control plane, and its story as it unfolds."""
    async with start() as control, asyncio.TaskGroup() as group:
        told = Story()

        async def follow() -> None:
            async with control.client() as client:
                async for page in client.watch([Noun.NODES, Noun.EVENTS], follow=True, events=100):
                    told.take(page)

        task = group.create_task(follow())
        yield control, told
        task.cancel()


Told = tuple[Control, Story]


async def test_a_registered_agent_is_told_what_to_run(story: Told) -> None:
    control, told = story
    async with control.agent("node01") as node:
        accepted = await node.register()
        assert (accepted.cluster, accepted.heartbeat) == ("demo", 0.5)
        desired = await node.hear(Desired)
        assert (desired.cluster, desired.epoch) == ("demo", accepted.epoch)
        while not desired.shards:
            desired = await node.hear(Desired)
        assert [(order.shard, order.want) for order in desired.shards] == [("gemma/0.0", Want.RUN)]
        shard = ShardReport(
            shard=desired.shards[0].shard, state=ShardState.READY, since=1.0, port=21000, host="127.0.0.1"
        )
        await node.report(shard)
        assert (await told.event(EventKind.SHARD_READY)).subject == "gemma/0.0"


async def test_a_certificate_for_another_node_is_refused_with_both_names(
    story: Told, caplog: pytest.LogCaptureFixture
) -> None:
    control, told = story
    with caplog.at_level(logging.INFO, "llmgw.daemon"):
        for _ in range(2):
            async with control.agent("node03", certificate="node02") as node:
                await node.say(registration("node03"))
                refused = await node.hear(Refused)
                assert refused.code == "wrong_name"
                assert refused.text.startswith("certificate is for node02, the agent says it is node03; ")
                await node.ends()
    event = await told.event(EventKind.NODE_REFUSED)
    assert event.subject == "node03"
    assert "certificate is for node02, the agent says it is node03" in event.text
    assert caplog.text.count("refused: certificate is for node02, the agent says it is node03") == 2
    async with control.client() as client:
        pages = [page async for page in client.watch([Noun.EVENTS, Noun.NODES], follow=False, events=100)]
    events = [item for page in pages for item in page.items if isinstance(item, Event)]
    assert [event.kind for event in events].count(EventKind.NODE_REFUSED) == 1, "an event for each try"
    assert not [item for page in pages for item in page.items if isinstance(item, NodeView)]


async def test_only_an_agents_certificate_opens_the_link(start: Start) -> None:
    async with start() as control:
        for other in ("operator", "router", "viewer"):
            async with control.agent("node01", certificate=other) as node:
                with pytest.raises(NotAllowed, match="Link"):
                    await node.ends()


async def test_a_second_machine_of_one_name_is_refused_and_the_first_stays(story: Told) -> None:
    control, told = story
    async with control.agent("node01") as first, control.agent("node01") as second:
        await first.register()
        await second.say(registration("node01", machine="another"))
        assert (await second.hear(Refused)).code == "name_taken"
        await second.ends()
        await first.beat()
        assert (await told.event(EventKind.NODE_REFUSED)).subject == "node01"
    assert told.node("node01").name == "node01"


async def test_the_newest_session_of_a_machine_wins(start: Start) -> None:
    async with start() as control, control.agent("node01") as first, control.agent("node01") as second:
        await first.register()
        await first.hear(Desired)
        await second.register()
        refused = None
        async with asyncio.timeout(5):
            while refused is None:
                try:
                    refused = await first.hear(Refused)
                except AssertionError:
                    continue
        assert refused.code == "superseded"
        await first.ends()
        await second.hear(Desired)


async def _closes(control: Control) -> str:
    async with control.agent("node01") as node:
        await node.register()
        await node.link.close()
    return "it closed the stream without saying that it leaves"


async def _leaves(control: Control) -> str:
    async with control.agent("node01") as node:
        await node.register()
        await node.say(Leaving(reason="told to stop (SIGTERM)"))
        await node.ends()
    return "told to stop (SIGTERM)"


async def _resets(control: Control) -> str:
    async with control.agent("node01") as node:
        await node.register()
    return "cut: "


async def _drops_the_connection(control: Control) -> str:
    async with control.agent("node01") as node:
        await node.register()
        node.link._stream._channel._protocol.connection._transport.abort()
        with pytest.raises(LlmgwError):
            await node.ends()
    return "cut: connection lost"


async def _falls_silent(control: Control) -> str:
    async with control.agent("node01") as node:
        await node.register()
        await node.ends()
    return "silent for "


async def _registers_twice(control: Control) -> str:
    async with control.agent("node01") as node:
        await node.register()
        await node.say(registration("node01"))
        with pytest.raises(BadMessage, match="first message of a stream"):
            await node.ends()
    return "message Registration: it is the first message of a stream, and the only one"


async def _talks_without_end(control: Control) -> str:
    async with control.agent("node01") as node:
        await node.register()
        reports = [ShardReport(shard="gemma/1.0", state=ShardState.READY, since=1.0)] * 1_001  # type: ignore[arg-type]
        await node.report(*reports)
        with pytest.raises(BadMessage, match="at most 1000, not 1001"):
            await node.ends()
    return "message Report: shards must hold at most 1000, not 1001"


@pytest.mark.parametrize(
    "act", [_closes, _leaves, _resets, _drops_the_connection, _falls_silent, _registers_twice, _talks_without_end]
)
async def test_every_end_of_a_stream_is_logged_and_told_with_its_cause(
    story: Told, caplog: pytest.LogCaptureFixture, act
) -> None:  # type: ignore[no-untyped-def]
    control, told = story
    with caplog.at_level(logging.INFO, "llmgw.daemon"):
        cause = await act(control)
        event = await told.event(EventKind.NODE_UNREACHABLE, "node01")
    assert cause in event.text
    assert told.node("node01").state in (NodeState.UNREACHABLE, NodeState.LOST)
    ends = [record for record in caplog.records if record.name == "llmgw.daemon.agents"]
    assert [cause in record.getMessage() for record in ends] == [True]
    assert (ends[0].levelno == logging.INFO) == (act is _leaves), "only an end that the agent asked for is clean"
    assert "node01" in ends[0].getMessage()


async def test_an_agent_has_some_seconds_for_its_registration(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agents, "FIRST", 0.1)
    async with start() as control, control.agent("node01") as node:
        assert (await node.hear(Refused)).text == "no registration within 0.1 s"
        await node.ends()


async def test_a_stream_must_begin_with_a_registration(start: Start) -> None:
    async with start() as control, control.agent("node01") as node:
        await node.beat()
        assert (await node.hear(Refused)).text == "began with a Heartbeat"
        await node.ends()


async def test_streams_end_at_once_when_the_control_plane_stops_and_no_node_is_called_away(start: Start) -> None:
    """Its own stop is no news about nodes: the next start must not find "node01 is unreachable" as the last event."""
    async with start() as control, control.agent("node01") as node:
        await node.register()
        await node.hear(Desired)
        control.stop.set()
        with pytest.raises(ControlUnreachable, match="stopping"):
            await node.ends()
    async with start() as control, control.client() as client:
        pages = [page async for page in client.watch([Noun.EVENTS], follow=False, events=1000)]
    kinds = [item.kind for page in pages for item in page.items if isinstance(item, Event)]
    assert EventKind.NODE_JOINED in kinds
    assert EventKind.NODE_UNREACHABLE not in kinds


async def test_words_of_a_node_are_cut_before_anybody_else_sees_them(story: Told) -> None:
    control, told = story
    async with control.agent("node01") as node:
        await node.register(agent_version="a" * 100_000)
        joined = await told.event(EventKind.NODE_JOINED, "node01")
        assert len(joined.text) < 5_000
        assert told.node("node01").agent_version.endswith("…")
        assert NodeName("node01") == told.node("node01").name


async def test_an_agent_that_does_not_read_has_no_queue_only_its_newest_orders() -> None:
    boxes, node = Mailboxes(), NodeName("node01")
    box = boxes.open(1, node)
    boxes.send_desired(node, orders(1))  # not accepted yet: no orders
    boxes.answer(1, ACCEPTED)
    for revision in range(2, 1_000):
        boxes.send_desired(node, orders(revision))
    assert await box.next() == ACCEPTED
    assert await box.next() == orders(999)
    waiting = asyncio.ensure_future(box.next())
    await turns()
    assert not waiting.done(), "what was sent is sent again"
    boxes.send_desired(node, orders(1_000))
    assert await waiting == orders(1_000)
    newer = boxes.open(2, node)
    boxes.answer(2, ACCEPTED)
    boxes.close(1)
    boxes.send_desired(node, orders(1_001))
    assert await newer.next() == ACCEPTED
    assert await newer.next() == orders(1_001), "the end of the old session took the new one's orders"
    boxes.close(2)
    boxes.answer(2, Refused(code="x", text="x"))
    boxes.send_desired(node, orders(1_002))


ACCEPTED = Accepted(cluster="demo", epoch=7, heartbeat=2.0)


def orders(revision: int) -> Desired:
    return Desired(cluster="demo", epoch=7, revision=revision, settled=True, exposure=Exposure.LOOPBACK)


async def test_whoever_talks_too_fast_is_read_more_slowly(monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    pace = agents._Pace()
    monkeypatch.setattr(asyncio, "sleep", sleep)
    for _ in range(agents._BURST):
        await pace.keep()
    assert slept == [], "a burst is nothing unusual"
    for _ in range(10):
        await pace.keep()
    assert len(slept) == 10
    assert 0 < slept[0] < slept[-1] <= 10 * agents._PACE
    await pace.keep(50.0)
    assert slept[-1] > 50 * agents._PACE


async def test_what_a_node_says_of_itself_counts_as_several_messages_over_all_its_streams(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A node that opens one stream after the other is read as slowly as one that says the same on one."""
    paces = list[agents._Pace]()

    class Pace(agents._Pace):
        def __init__(self) -> None:
            super().__init__()
            self.weights = list[float]()
            paces.append(self)

        async def keep(self, weight: float = 1.0) -> None:
            self.weights.append(weight)
            await super().keep(weight)

    monkeypatch.setattr(agents, "_Pace", Pace)
    async with start() as control:
        for _ in range(2):
            async with control.agent("node01") as agent:
                await agent.register()
                await agent.beat()
                await agent.say(Leaving(reason="done"))
                await agent.ends()
        used = [pace.weights for pace in paces if pace.weights]
        assert len(used) == 1
        assert [weight > 10 for weight in used[0]] == [True, False, True, False]


async def test_a_silent_stream_is_ended_only_after_the_cluster_called_its_node_away() -> None:
    """The cluster knows what time we ourselves lost, and forgives it; a clock at the stream would not."""
    view = NodeView(name=NodeName("node01"), state=NodeState.READY, since=0.0, promised=NONE, usable=NONE)
    clock, asked = asyncio.get_running_loop().time, asyncio.Event()

    class Cluster:
        def view(self, noun: Noun, name: str) -> NodeView:
            asked.set()
            return view

    links = AgentLinks(SimpleNamespace(cluster=Cluster()), Mailboxes(), clock)  # type: ignore[arg-type]
    ending = asyncio.ensure_future(links._silence(NodeName("node01"), 0.01, agents._Pace()))
    async with asyncio.timeout(5):
        for _ in range(5):
            asked.clear()
            await asked.wait()
        assert not ending.done(), "the cluster holds it for ready"
        view = replace(view, state=NodeState.UNREACHABLE, since=clock())
        end = await ending
    assert end.text.startswith("silent for ")
    assert clock() - view.since >= 0.01


async def test_a_stream_that_was_opened_first_and_registers_last_is_superseded(start: Start) -> None:
    """An agent gives a stream up before it opens the next: what still comes in on it is old."""
    async with start() as control, control.agent("node01") as older, control.agent("node01") as newer:
        await newer.register()
        await older.say(registration("node01"))
        assert (await older.hear(Refused)).code == "superseded"
        await older.ends()
        await newer.hear(Desired)
        async with control.client() as client:
            pages = [page async for page in client.watch([Noun.NODES], follow=False)]
        (node,) = [item for page in pages for item in page.items if isinstance(item, NodeView)]
        assert node.state is NodeState.READY
