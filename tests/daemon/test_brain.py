"""The one writer: stored before told, acts all or nothing, and reports that go on without a disk."""

import asyncio
import logging
from dataclasses import replace
from typing import Any

import pytest

from llmgw.core.cluster import Cluster
from llmgw.core.errors import ControlFault, UnknownModel, Unreachable
from llmgw.core.events import EventKind
from llmgw.core.facts import Accepted, Heartbeat, Usage
from llmgw.core.inputs import AgentBeat, AgentGone, AgentTurnedAway, ScaleModel
from llmgw.core.names import NodeName
from llmgw.core.units import GIB
from llmgw.core.views import ModelView, Noun
from llmgw.daemon.store import NotStored
from tests.core.stage import model
from tests.daemon.world import SETTINGS, World, running

FULL = NotStored("llmgw.db takes nothing: database or disk is full; nothing was changed; make room and ask again")


def scale(replicas: int, name: str = "gemma") -> ScaleModel:
    return ScaleModel(model=name, replicas=replicas, by="operator ana")


def wanted(world: World) -> int:
    view = world.cluster.view(Noun.MODELS, "gemma")
    assert isinstance(view, ModelView)
    return view.wanted


async def test_an_act_is_on_disk_before_it_is_answered_or_shown() -> None:
    async with running(model(replicas=1)) as world:
        world.store.may_finish.clear()
        world.store.writing.clear()
        asked = asyncio.ensure_future(world.brain.ask(scale(3)))
        await world.store.writing.wait()
        assert not asked.done()
        assert not world.hub.steady.is_set()
        world.store.may_finish.set()
        done = await asked
        assert world.hub.steady.is_set()
        assert (done.event.kind, done.event.by) == (EventKind.MODEL_SCALED, "operator ana")
        assert done.revision == world.cluster.revision
        assert "SaveOverlay" in world.store.kinds()[-1]


async def test_an_act_that_cannot_be_stored_never_happened() -> None:
    """Not even later, when there is room again: who asked was told that nothing was changed."""
    async with running(model(replicas=1)) as world:
        await world.join("node01", 1)
        await world.hub.hears(EventKind.SETTLED)
        revision, replicas = world.cluster.revision, world.cluster.names(Noun.REPLICAS)
        world.store.failing = FULL
        with pytest.raises(NotStored, match="nothing was changed"):
            await world.brain.ask(scale(3))
        assert (wanted(world), world.cluster.revision) == (1, revision)
        assert world.cluster.names(Noun.REPLICAS) == replicas
        world.cluster.check()
        world.store.failing = None
        done = await world.brain.ask(scale(2))
        assert wanted(world) == 2
        seqs = [effect.event.seq for saved in world.store.saved for effect in saved if hasattr(effect, "event")]
        assert seqs == list(range(1, len(seqs) + 1)), "an event's seq was lost with the act that was taken back"
        assert done.event.seq in seqs


async def test_reports_go_on_while_the_disk_is_full_and_are_stored_when_there_is_room() -> None:
    async with running(model(replicas=1)) as world:
        await world.hub.hears(EventKind.SETTLED)
        world.store.failing = FULL
        await world.join("node01", 1)
        assert isinstance(world.sessions.answers[1], Accepted)
        assert world.cluster.names(Noun.NODES) == ["node01"]
        assert world.cluster.names(Noun.REPLICAS) == ["gemma/0"], "it was placed"
        assert world.sessions.ordered == [], "no node is given orders that a restart would not know of"
        with pytest.raises(NotStored):
            await world.brain.ask(scale(3))
        assert wanted(world) == 1
        world.store.failing = None
        async with asyncio.timeout(5):
            await world.sessions.told.wait()
        assert world.sessions.ordered == ["node01"]
        assert {"SaveNode", "SaveAssignment", "SaveOrdinal"} <= set(world.store.kinds()[-1])
        assert world.brain.problem == ""


async def test_a_broken_disk_is_not_tried_again() -> None:
    async with running(model(replicas=1)) as world:
        world.store.failing = NotStored("llmgw.db cannot be written: disk I/O error", lasting=True)
        await world.join("node01", 1)
        world.store.writing.clear()
        assert world.brain._retry_at is None
        with pytest.raises(NotStored, match="disk I/O error"):
            await world.brain.ask(scale(3))
        assert world.cluster.names(Noun.NODES) == ["node01"]


async def test_what_waits_for_the_disk_is_bounded() -> None:
    async with running() as world:
        world.store.failing = FULL
        for index in range(1_200):
            await world.brain.tell(AgentTurnedAway(node=NodeName("node01"), text=f"try {index}"))
        waiting = list(world.brain._unsaved.values())
        assert len(waiting) == 1_000
        assert waiting[-1].event.text == "try 1199"  # type: ignore[union-attr]
        world.store.failing = None


async def test_inputs_that_wait_together_are_one_transaction() -> None:
    async with running() as world:
        before = len(world.store.saved)
        async with asyncio.TaskGroup() as group:
            for index in range(20):
                group.create_task(world.join(f"node{index:02}", index + 1))
        assert len(world.store.saved) - before <= 2
        assert len(world.sessions.answers) == 20


async def test_a_heartbeat_that_changes_nothing_costs_no_write() -> None:
    async with running() as world:
        await world.join("node01", 1)
        beat = Heartbeat(at=1.0, usage=Usage(memory_available=GIB))
        await world.brain.tell(AgentBeat(session=1, node=NodeName("node01"), heartbeat=beat))
        before = len(world.store.saved)
        for _ in range(50):
            await world.brain.tell(AgentBeat(session=1, node=NodeName("node01"), heartbeat=beat))
        assert len(world.store.saved) == before


async def test_a_silent_node_becomes_unreachable_without_any_input() -> None:
    async with running(settings=replace(SETTINGS, heartbeat=0.05, lost_after=0.3)) as world:
        await world.join("node01", 1)
        event = await world.hub.hears(EventKind.NODE_LOST)
        assert event.subject == "node01"


async def test_an_unknown_model_is_refused_and_nothing_is_stored() -> None:
    async with running(model()) as world:
        before = len(world.store.saved)
        with pytest.raises(UnknownModel, match="gemma"):
            await world.brain.ask(scale(1, "gemini"))
        assert len(world.store.saved) == before
        assert world.hub.steady.is_set()


async def test_a_fault_of_ours_harms_only_who_triggered_it(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with running(model(replicas=1)) as world:
        apply = Cluster.apply

        def poisoned(self: Cluster, happened: Any, now: float) -> Any:
            if isinstance(happened, AgentTurnedAway | ScaleModel):
                apply(self, happened, now)
                raise ZeroDivisionError("boom")
            return apply(self, happened, now)

        monkeypatch.setattr(Cluster, "apply", poisoned)
        with caplog.at_level(logging.ERROR), pytest.raises(ControlFault, match="ZeroDivisionError"):
            await world.brain.tell(AgentTurnedAway(node=NodeName("node01"), text="x"))
        with pytest.raises(ControlFault):
            await world.brain.ask(scale(3))
        assert wanted(world) == 1, "a half-done act was left behind"
        assert "boom" in caplog.text
        await world.join("node02", 2)
        assert world.cluster.names(Noun.NODES) == ["node02"]


async def test_what_is_queued_is_done_before_it_stops_and_later_asks_are_refused() -> None:
    async with running(model(replicas=1)) as world:
        asked = [asyncio.ensure_future(world.brain.ask(scale(count))) for count in (2, 3)]
        await asyncio.sleep(0)
        world.brain.stop()
        assert [(await one).event.kind for one in asked] == [EventKind.MODEL_SCALED] * 2
        with pytest.raises(Unreachable, match="is stopping"):
            await world.brain.ask(scale(4))
        world.brain.note(AgentGone(session=1, node=NodeName("node01"), reason="x"))
        assert wanted(world) == 3


async def test_who_asked_may_leave_before_the_answer() -> None:
    async with running(model(replicas=1)) as world:
        world.store.may_finish.clear()
        world.store.writing.clear()
        asked = asyncio.ensure_future(world.brain.ask(scale(3)))
        await world.store.writing.wait()
        asked.cancel()
        await asyncio.wait([asked])
        world.store.may_finish.set()
        await world.join("node01", 1)
        assert wanted(world) == 3, "accepted and stored: it holds, heard or not"
