"""The order in which inputs are taken, and what is made of time in which nobody looked."""

import asyncio

import pytest

from llmgw.core.inputs import AgentTurnedAway, Input, Overslept, Tick
from llmgw.core.names import NodeName
from llmgw.daemon.inbox import BATCH, Inbox, Waiting
from tests.daemon.world import Clock, turns


def said(text: str) -> Input:
    return AgentTurnedAway(node=NodeName("node01"), holder="node02", text=text)


def words(taken: list[Waiting]) -> list[str]:
    return [getattr(one.happened, "text", type(one.happened).__name__) for one in taken]


async def test_what_came_in_before_a_deadline_is_taken_before_time_passes() -> None:
    clock = Clock()
    inbox = Inbox(clock.now, beat=100.0)
    for index in range(BATCH + 2):
        inbox.put(said(str(index)))
    due = clock.now() + 1.0
    clock.pass_by(2.0)
    inbox.put(said("after it"))
    first, second = await inbox.take(due), await inbox.take(due)
    assert words(first) == [str(index) for index in range(BATCH)]
    assert words(second) == [str(BATCH), str(BATCH + 1), "after it", "Tick"]
    assert second[0].at < due < second[2].at <= second[3].at, "each has the time at which it came in"


async def test_a_crowd_of_inputs_does_not_put_off_a_deadline_that_came_before_them() -> None:
    clock = Clock()
    inbox = Inbox(clock.now, beat=100.0)
    due = clock.now()
    clock.pass_by(1.0)
    for index in range(3 * BATCH):
        inbox.put(said(str(index)))
    assert words(await inbox.take(due))[-1] == "Tick"


@pytest.mark.parametrize("waits", [True, False])
async def test_a_reader_that_did_not_look_for_longer_than_a_beat_overslept(waits: bool) -> None:
    """Whether something waits by then or not: signs of life may lie in sockets."""
    clock = Clock()
    inbox = Inbox(clock.now, beat=10.0)
    inbox.put(said("first"))
    assert words(await inbox.take(None)) == ["first"], "a look within a beat is not late"
    if waits:
        inbox.put(said("second"))
    due = clock.now() + 1.0
    clock.pass_by(30.0)
    taken = await inbox.take(due)
    assert words(taken) == ["Overslept", *["second"] * waits, "Tick"]
    assert isinstance(taken[0].happened, Overslept)
    assert taken[0].happened.seconds == pytest.approx(30.0, abs=1.0)
    inbox.put(said("third"))
    assert words(await inbox.take(None)) == ["third"], "it is told once"


async def test_a_reader_with_nothing_to_do_looks_often_enough_to_notice_that_it_was_stopped() -> None:
    clock = Clock()
    inbox = Inbox(clock.now, beat=0.02)
    taking = asyncio.ensure_future(inbox.take(None))
    await turns()
    assert not taking.done()
    clock.pass_by(60.0)
    async with asyncio.timeout(5):
        assert words(await taking) == ["Overslept"]


async def test_a_deadline_wakes_a_reader_that_waits() -> None:
    clock = Clock()
    inbox = Inbox(clock.now, beat=100.0)
    async with asyncio.timeout(5):
        (tick,) = await inbox.take(clock.now() + 0.01)
    assert isinstance(tick.happened, Tick)


async def test_a_closed_inbox_is_emptied_and_then_returns_nothing() -> None:
    inbox = Inbox(Clock().now, beat=100.0)
    inbox.put(said("last"))
    inbox.close()
    assert words(await inbox.take(None)) == ["last"]
    assert await inbox.take(None) == []
