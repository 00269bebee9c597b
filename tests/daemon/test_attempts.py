"""Whether routers reach a node, through a control plane on real sockets: who is asked, who may ask, what is shown."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing

import pytest

from llmgw.client import ControlClient
from llmgw.core.errors import BadMessage, NotAllowed
from llmgw.core.events import Event, EventKind
from llmgw.core.facts import Exposure
from llmgw.core.link import Desired, Listening, TryAddress
from llmgw.core.names import NodeName
from llmgw.core.refusals import UnreachableAddress
from llmgw.core.routes import Attempt, Tried
from llmgw.core.views import NodeView, Noun
from llmgw.daemon.agents import Mailbox, Mailboxes
from llmgw.daemon.attempts import AttemptFeed
from llmgw.daemon.operators import MOST_WORDS
from llmgw.wire.channel import Channel
from llmgw.wire.convert import decode, from_wire
from llmgw.wire.operator import v1
from tests.daemon.conftest import Start
from tests.daemon.world import turns

QUESTION = TryAddress(token="1-1", exposure=Exposure.LOOPBACK, seconds=15.0)


def attempt(node: str, token: str) -> Attempt:
    return Attempt(token=token, node=NodeName(node), machine="m", host="127.0.0.1", port=21000)


def answer(attempt: Attempt, error: str = "") -> Tried:
    return Tried(token=attempt.token, error=error, stream=attempt.stream)


async def seen(client: ControlClient, kind: EventKind) -> Event:
    """The first event of this kind, past or to come."""
    async with asyncio.timeout(10), aclosing(client.watch([Noun.EVENTS], follow=True, events=100)) as pages:
        async for page in pages:
            for item in page.items:
                if isinstance(item, Event) and item.kind is kind:
                    return item
    raise AssertionError("the watch ended")


async def node(client: ControlClient, name: str = "node01") -> NodeView:
    pages = [page async for page in client.watch([Noun.NODES], follow=False)]
    (view,) = [item for page in pages for item in page.items if isinstance(item, NodeView) and item.name == name]
    return view


async def soon(attempts: AsyncGenerator[Attempt, None]) -> Attempt:
    async with asyncio.timeout(10):
        return await anext(attempts)


async def test_a_node_that_the_router_does_not_reach_is_refused_and_one_that_it_does_again_is_not(start: Start) -> None:
    async with start(exposure="direct") as control, control.client() as client, control.client("router") as router:
        async with aclosing(router.watch_attempts()) as attempts, control.agent("node01") as agent:
            asked = asyncio.ensure_future(soon(attempts))
            await agent.register(address="10.9.9.9")
            question = await agent.hear_after_others(TryAddress)
            assert (question.exposure, question.seconds) == (Exposure.DIRECT, 15.0)
            await agent.say(Listening(token=question.token, host="10.9.9.9", port=21007))
            one = await asked
            assert (one.token, one.node, one.host, one.port) == (question.token, "node01", "10.9.9.9", 21007)
            await router.report_attempt(answer(one, "no route to host"))
            event = await seen(client, EventKind.ADDRESS_UNREACHABLE)
            assert event.subject == "node01"
            assert event.text == "router router does not reach 10.9.9.9:21007: no route to host"
            (refusal,) = (await client.why_model("gemma")).refusals
            assert refusal == UnreachableAddress(
                node=NodeName("node01"), router="router", address="10.9.9.9", port=21007, error="no route to host"
            )
            (said,) = (await node(client)).reach
            assert (said.router, said.error) == ("router", "no route to host")
        async with aclosing(router.watch_attempts()) as attempts, control.agent("node01") as agent:
            asked = asyncio.ensure_future(soon(attempts))
            await agent.register(address="10.9.9.8")
            question = await agent.hear_after_others(TryAddress)
            await agent.say(Listening(token=question.token, host="10.9.9.8", port=21007))
            await router.report_attempt(answer(await asked))
            assert (await seen(client, EventKind.ADDRESS_REACHED)).subject == "node01"
            assert (await client.why_model("gemma")).refusals == ()


async def test_a_router_that_comes_later_is_asked_about_the_nodes_that_are_there(start: Start) -> None:
    async with start() as control, control.client("router") as router, control.agent("node01") as agent:
        await agent.register()
        while not (await agent.hear(Desired)).shards:
            pass
        async with aclosing(router.watch_attempts()) as attempts:
            asked = asyncio.ensure_future(soon(attempts))
            question = await agent.hear_after_others(TryAddress)
            await agent.say(Listening(token=question.token, host="127.0.0.1", port=21007))
            assert (await asked).node == "node01"


async def test_a_router_is_gone_with_its_stream(start: Start) -> None:
    async with start() as control, control.client() as client, control.client("router") as router:
        attempts = router.watch_attempts()
        asked = asyncio.ensure_future(soon(attempts))
        async with control.agent("node01") as agent:
            await agent.register()
            await agent.hear_after_others(TryAddress)
            asked.cancel()
            await asyncio.wait([asked])
            await attempts.aclose()
            async with asyncio.timeout(10):
                while (await client.why_model("gemma")).refusals:  # noqa: ASYNC110 # nobody tells when
                    await asyncio.sleep(0.02)


async def test_of_two_routers_with_one_certificate_each_answers_for_itself_alone(start: Start) -> None:
    """With the other's token, and with the name of no stream or of the other's, nobody speaks for another."""
    async with (
        start() as control,
        control.client() as client,
        control.client("router") as honest,
        control.client("router") as copied,
    ):
        one, other = honest.watch_attempts(), copied.watch_attempts()
        async with aclosing(one), aclosing(other), control.agent("node01") as agent:
            asked = asyncio.ensure_future(soon(one)), asyncio.ensure_future(soon(other))
            await agent.register()
            question = await agent.hear_after_others(TryAddress)
            await agent.say(Listening(token=question.token, host="127.0.0.1", port=21007))
            first, second = [await attempt for attempt in asked]
            assert first.token == second.token
            assert first.stream != second.stream
            await copied.report_attempt(answer(second, "connection refused"))
            await copied.report_attempt(Tried(token=first.token, error="connection refused"))
            await copied.report_attempt(answer(second, "connection refused"))
            await honest.report_attempt(answer(first))
            event = await seen(client, EventKind.ROUTER_TWICE)
            assert event.subject == "router"
            assert [(said.router, said.error) for said in (await node(client)).reach] == [("router", "")]
            assert (await client.why_model("gemma")).refusals == ()


async def test_only_routers_are_asked_and_answer(start: Start) -> None:
    async with start() as control:
        for other in ("operator", "viewer", "node01"):
            async with control.client(other) as client:
                with pytest.raises(NotAllowed):
                    await anext(client.watch_attempts())
                with pytest.raises(NotAllowed):
                    await client.report_attempt(Tried(token="1-1"))


async def test_an_answer_without_anything_in_it_is_refused_and_a_long_one_is_cut(start: Start) -> None:
    async with start() as control, control.client() as client, control.client("router") as router:
        async with Channel("127.0.0.1", control.port, control.certificates.of("router")) as channel:
            with pytest.raises(BadMessage, match="tried is missing"):
                await channel.call("/operator.v1.Operator/ReportAttempt", v1.ReportAttemptRequest(), v1.Noted)
        await router.report_attempt(Tried(token="nobody asked for that"))
        async with aclosing(router.watch_attempts()) as attempts, control.agent("node01") as agent:
            asked = asyncio.ensure_future(soon(attempts))
            await agent.register()
            question = await agent.hear_after_others(TryAddress)
            await agent.say(Listening(token=question.token, host="127.0.0.1", port=21007))
            await router.report_attempt(answer(await asked, "x" * 5000))
            (said,) = (await node(client)).reach
            assert len(said.error) == MOST_WORDS


# --- what waits for whom ----------------------------------------------------------------------------------------


async def test_a_session_is_asked_the_newest_question_before_it_gets_its_orders() -> None:
    box = Mailbox(NodeName("node01"))
    box.ask(QUESTION)
    newer = TryAddress(token="1-2", exposure=Exposure.LOOPBACK, seconds=15.0)
    box.ask(newer)
    assert await box.next() == newer
    waits = asyncio.ensure_future(box.next())
    await turns()
    assert not waits.done(), "it is asked once"
    box.ask(QUESTION)
    assert await waits == QUESTION


def test_a_node_without_a_session_is_not_asked() -> None:
    Mailboxes().ask(NodeName("node01"), QUESTION)


async def test_each_router_gets_each_attempt_and_a_slow_one_only_the_newest_of_a_node() -> None:
    feed, got = AttemptFeed(), {"fast": list[str](), "slow": list[str]()}
    may_go = asyncio.Event()

    async def fast(data: bytes) -> None:
        got["fast"].append(from_wire(decode(data, v1.Attempt), Attempt).token)

    async def slow(data: bytes) -> None:
        await may_go.wait()
        got["slow"].append(from_wire(decode(data, v1.Attempt), Attempt).token)

    with feed.reading() as one, feed.reading() as other:
        tasks = [asyncio.create_task(one.send_each(fast)), asyncio.create_task(other.send_each(slow))]
        for name, token in (("node01", "1"), ("node02", "2"), ("node01", "3"), ("node02", "4")):
            feed.publish(attempt(name, token))
            await turns()
        may_go.set()
        await turns()
        for task in tasks:
            task.cancel()
    assert got == {"fast": ["1", "2", "3", "4"], "slow": ["1", "3", "4"]}
    feed.publish(attempt("node01", "5"))
    await turns()
    assert got["fast"][-1] == "4"
