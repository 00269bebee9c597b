"""The one writer: stored before told, acts all or nothing, and reports that go on without a disk."""

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from llmgw.core import placing
from llmgw.core.cluster import Cluster
from llmgw.core.effects import Persist, SaveNode, SendDesired
from llmgw.core.errors import ControlFault, UnknownModel, Unreachable
from llmgw.core.events import EventKind
from llmgw.core.facts import ShardReport, Want
from llmgw.core.inputs import AgentBeat, AgentGone, AgentReported, AgentTurnedAway, ScaleModel, Tick
from llmgw.core.inventory import Usage
from llmgw.core.link import Accepted, Desired, Heartbeat, Report
from llmgw.core.names import NodeName
from llmgw.core.routes import Routes
from llmgw.core.shard import ShardState
from llmgw.core.units import GIB
from llmgw.core.views import ModelView, Noun, Page
from llmgw.daemon.store import NotStored
from llmgw.wire.convert import decode, from_wire
from llmgw.wire.operator import v1
from tests.core.stage import model
from tests.daemon.world import SETTINGS, World, running, turns

FULL = NotStored("llmgw.db takes nothing: database or disk is full; nothing was changed; make room and ask again")


def scale(replicas: int, name: str = "gemma") -> ScaleModel:
    return ScaleModel(model=name, replicas=replicas, by="operator ana")


def wanted(world: World) -> int:
    view = world.cluster.view(Noun.MODELS, "gemma")
    assert isinstance(view, ModelView)
    return view.wanted


class Reader:
    """A router, or a watcher that looks once: what it was sent."""

    def __init__(self) -> None:
        self.sent: list[bytes] = []

    async def send(self, data: bytes) -> None:
        self.sent.append(data)


async def shown(world: World) -> ModelView:
    """What somebody who comes now is shown of the model."""
    reader = Reader()
    await world.hub.watch(frozenset({Noun.MODELS}), reader.send, follow=False)
    (view,) = [item for data in reader.sent for item in from_wire(decode(data, v1.Page), Page).items]
    assert isinstance(view, ModelView)
    return view


async def routed(world: World) -> list[str]:
    """The replicas in the table that a router gets which connects now."""
    reader = Reader()
    watching = asyncio.ensure_future(world.routes.watch(reader.send))
    await turns()
    watching.cancel()
    (table,) = [from_wire(decode(data, v1.Routes), Routes) for data in reader.sent]
    return [replica.id for route in table.routes for replica in route.replicas]


async def serving(world: World) -> None:
    """Let node01 join and its replica be ready."""
    await world.join("node01", 1)
    await world.hub.hears(EventKind.SETTLED)
    (order,) = world.cluster.desired(NodeName("node01")).shards
    ready = ShardReport(
        shard=order.shard, state=ShardState.READY, since=1.0, launch=1, host="127.0.0.1", port=21000, order=order
    )
    await world.brain.tell(AgentReported(session=1, node=NodeName("node01"), report=Report(shards=(ready,))))


@pytest.mark.parametrize("failing", [None, FULL])
async def test_an_act_is_on_disk_before_anybody_is_answered_shown_ordered_or_routed_by_it(
    failing: NotStored | None,
) -> None:
    """And one that does not get there reaches nobody: not who looks or connects meanwhile, and not afterwards."""
    async with running(model(replicas=1)) as world:
        await serving(world)
        before = (await shown(world), await routed(world), list(world.sessions.orders), len(world.hub.heard))
        assert before[0].wanted == 1
        assert before[1] == ["gemma/0"]
        world.store.failing = failing
        world.store.may_finish.clear()
        world.store.writing.clear()
        asked = asyncio.ensure_future(world.brain.ask(scale(0)))
        await world.store.writing.wait()
        await turns()
        now = (await shown(world), await routed(world), world.sessions.orders, len(world.hub.heard))
        assert now == before, "it is not on disk yet"
        assert not asked.done()
        world.store.may_finish.set()
        if failing is not None:
            with pytest.raises(NotStored, match="nothing was changed"):
                await asked
            now = (await shown(world), await routed(world), world.sessions.orders, len(world.hub.heard))
            assert now == before, "it was refused"
            return
        done = await asked
        assert (done.event.kind, done.event.by) == (EventKind.MODEL_SCALED, "operator ana")
        assert done.revision == world.cluster.revision
        assert "SaveOverlay" in world.store.kinds()[-1]
        assert (await shown(world)).wanted == 0
        assert await routed(world) == []
        assert [order.want for order in world.sessions.orders[-1][1].shards] == [Want.DRAIN]


async def test_orders_are_what_was_stored_when_they_were_made() -> None:
    """An agent that reads slowly takes them while the next act is being written."""
    async with running(model(replicas=1)) as world:
        await serving(world)
        _, desired = world.sessions.orders[-1]
        world.store.may_finish.clear()
        world.store.writing.clear()
        asked = asyncio.ensure_future(world.brain.ask(scale(0)))
        await world.store.writing.wait()
        assert world.sessions.orders[-1][1] == desired
        assert [order.want for order in desired.shards] == [Want.RUN]
        world.store.may_finish.set()
        await asked


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
            world.clock.pass_by(1.0)  # what is said again and again in ten minutes is one event
            await world.brain.tell(AgentTurnedAway(node=NodeName("node01"), holder=f"host{index}", text=f"try {index}"))
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


async def test_a_fault_of_ours_harms_only_who_triggered_it(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with running(model(replicas=1)) as world:
        handle = Cluster._handle

        def poisoned(self: Cluster, happened: Any) -> None:
            handle(self, happened)
            if isinstance(happened, AgentTurnedAway | ScaleModel):
                raise ZeroDivisionError("boom")

        monkeypatch.setattr(Cluster, "_handle", poisoned)
        with caplog.at_level(logging.ERROR), pytest.raises(ControlFault, match="ZeroDivisionError"):
            await world.brain.tell(AgentTurnedAway(node=NodeName("node01"), holder="node02", text="x"))
        assert "boom" in caplog.text
        with pytest.raises(ControlFault):
            await world.brain.ask(scale(3))
        assert wanted(world) == 1, "a half-done act was left behind"
        await world.join("node02", 2)
        assert world.cluster.names(Noun.NODES) == ["node02"]


async def test_what_was_done_before_a_fault_is_stored_and_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the node would run what the store does not know of."""
    async with running(model(replicas=1)) as world:
        await world.hub.hears(EventKind.SETTLED)
        reconcile = placing.reconcile

        def boom(ledger: Any, name: Any) -> None:
            reconcile(ledger, name)
            monkeypatch.undo()
            raise ZeroDivisionError

        monkeypatch.setattr(placing, "reconcile", boom)
        with pytest.raises(ControlFault):
            await world.join("node01", 1)
        assert world.cluster.names(Noun.REPLICAS) == ["gemma/0"]
        stored = {kind for kinds in world.store.kinds() for kind in kinds}
        assert {"SaveNode", "SaveAssignment"} <= stored
        assert [order.shard for order in world.sessions.orders[-1][1].shards] == ["gemma/0.0"]


async def test_orders_that_cannot_be_made_are_kept_back_and_the_others_go_out(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with running(model(replicas=2)) as world:
        await serving_two(world)
        world.sessions.orders.clear()
        desired = Cluster.desired

        def poisoned(self: Cluster, node: NodeName) -> Desired:
            if node == "node01" and self is world.cluster:
                raise ZeroDivisionError("boom")
            return desired(self, node)

        monkeypatch.setattr(Cluster, "desired", poisoned)
        monkeypatch.setattr(Cluster, "_send_desired", lambda self, name: self._ledger.do(SendDesired(name)))
        await world.brain.ask(scale(0))
        assert world.sessions.ordered == ["node02"]
        assert "the orders of node01 could not be made" in caplog.text


async def serving_two(world: World) -> None:
    for number in (1, 2):
        await world.join(f"node0{number}", number)
    await world.hub.hears(EventKind.SETTLED)
    await world.brain.tell(Tick())


# --- time ---------------------------------------------------------------------------------------------------------

SHORT = replace(SETTINGS, heartbeat=0.1, lost_after=0.5)
AWAY = (EventKind.NODE_UNREACHABLE, EventKind.NODE_LOST)


def beat(number: int) -> AgentBeat:
    heartbeat = Heartbeat(at=1.0, usage=Usage(memory_available=GIB))
    return AgentBeat(session=number, node=NodeName(f"node0{number}"), heartbeat=heartbeat)


async def test_a_slow_disk_calls_nobody_away() -> None:
    """The write takes longer than a node may be silent before it is lost. All beat on, but only one beat of each waits
    in the queue: the others lie in its socket."""
    async with running(model(replicas=2), settings=SHORT) as world:
        for number in (1, 2, 3):
            await world.join(f"node0{number}", number)
        await world.hub.hears(EventKind.SETTLED)
        replicas = world.cluster.names(Noun.REPLICAS)
        world.store.may_finish.clear()
        world.store.writing.clear()
        asked = asyncio.ensure_future(world.brain.ask(scale(2)))
        await world.store.writing.wait()
        beats = [asyncio.ensure_future(world.brain.tell(beat(number))) for number in (1, 2)]
        await turns()
        world.clock.pass_by(1.2)
        world.store.may_finish.set()
        await asyncio.gather(asked, *beats)
        await world.brain.tell(beat(3))
        assert [event.text for event in world.hub.heard if event.kind in AWAY] == []
        assert world.cluster.names(Noun.REPLICAS) == replicas
        lost = await world.hub.hears(EventKind.NODE_LOST)  # a node that is silent indeed
        assert lost.subject in ("node01", "node02", "node03")


async def test_a_process_that_was_stopped_calls_nobody_away() -> None:
    async with running(model(replicas=1), settings=SHORT) as world:
        await world.join("node01", 1)
        await turns()
        world.clock.pass_by(30.0)
        await world.brain.tell(beat(1))
        assert [event.text for event in world.hub.heard if event.kind in AWAY] == []


async def test_a_beat_that_waits_in_the_queue_counts_before_its_node_is_called_silent() -> None:
    """Here the delay is shorter than a beat: nothing is forgiven, the order alone decides."""
    settings = replace(SETTINGS, heartbeat=2.0, lost_after=60.0)
    async with running(model(replicas=1), settings=settings) as world:
        await world.join("node01", 1)
        for _ in range(4):  # looks within each beat, as the brain does by itself
            world.clock.pass_by(1.4)
            await world.brain.tell(AgentTurnedAway(node=NodeName("other"), holder="node02", text="x"))
        told = [asyncio.ensure_future(world.brain.tell(beat(1)))]
        world.clock.pass_by(1.0)
        await asyncio.gather(*told)
        await world.brain.tell(Tick())
        assert [event.text for event in world.hub.heard if event.kind in AWAY] == []
        for _ in range(5):
            world.clock.pass_by(1.4)
            await world.brain.tell(AgentTurnedAway(node=NodeName("other"), holder="node02", text="x"))
        await world.brain.tell(Tick())
        assert [event.kind for event in world.hub.heard if event.kind in AWAY] == [EventKind.NODE_UNREACHABLE]


async def test_what_is_queued_is_done_before_it_stops_and_later_asks_are_refused() -> None:
    async with running(model(replicas=1)) as world:
        asked = [asyncio.ensure_future(world.brain.ask(scale(count))) for count in (2, 3)]
        await asyncio.sleep(0)  # they ask
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


async def test_a_row_that_no_store_can_hold_is_left_out_and_all_others_are_stored() -> None:
    """One agent's words must not end the control plane of all the others, nor keep their orders back."""
    async with running(model(replicas=1)) as world:
        await world.hub.hears(EventKind.SETTLED)
        save = world.store.save

        async def refusing(effects: Sequence[Persist]) -> None:
            if bad := [effect for effect in effects if isinstance(effect, SaveNode) and effect.node == "node01"]:
                raise NotStored("SaveNode cannot be stored: Python int too large", unwritable=bad[0])
            await save(effects)

        world.store.save = refusing  # type: ignore[method-assign]
        await world.join("node01", 1)
        await world.join("node02", 2)
        assert world.brain.problem == ""
        assert {effect.node for saved in world.store.saved for effect in saved if isinstance(effect, SaveNode)} == {
            "node02"
        }
        assert world.sessions.ordered == ["node01", "node02"]
