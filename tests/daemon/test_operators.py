"""What operators and routers ask, over TLS and over the Unix socket: who may, and what they get."""

import asyncio
import os
import stat

import pytest

from llmgw import __version__
from llmgw.core.errors import BadMessage, ClusterCannot, NotAllowed, PeerNotTrusted, TooMany, UnknownModel
from llmgw.core.events import Event, EventKind
from llmgw.core.facts import Secret, ShardReport
from llmgw.core.link import Desired
from llmgw.core.refusals import NodeAway
from llmgw.core.routes import Routes
from llmgw.core.shard import ShardState
from llmgw.core.views import ModelView, NodeView, Noun
from llmgw.daemon import store as store_module
from llmgw.daemon.store import NotStored
from llmgw.wire.channel import Channel
from llmgw.wire.operator import v1
from tests.daemon.conftest import Control, Start

ALL = tuple(Noun)


async def once(control: Control, *nouns: Noun, events: int = 100) -> list[object]:
    async with control.client() as client:
        pages = [page async for page in client.watch(nouns, follow=False, events=events)]
    assert (pages[0].first, pages[-1].complete) == (True, True)
    return [item for page in pages for item in page.items]


async def test_about_says_who_answers(start: Start) -> None:
    async with start() as control, control.client() as client:
        about = await client.about()
        assert (about.cluster, about.version, about.exposure) == ("demo", __version__, "loopback")
        assert about.now >= about.started


async def test_scale_is_answered_with_its_event_and_seen_by_who_watches(start: Start) -> None:
    async with start() as control, control.client() as client:
        pages = client.watch([Noun.MODELS, Noun.EVENTS], follow=True)
        await anext(pages)
        done = await client.scale_model("gemma-270m", 3)
        assert (done.event.kind, done.event.subject, done.event.by) == (
            EventKind.MODEL_SCALED,
            "gemma",
            "operator operator",
        )
        seen: list[object] = []
        async with asyncio.timeout(5):
            while done.event not in seen:
                page = await anext(pages)
                seen += page.items
        assert page.revision.epoch == done.revision.epoch
        model = next(item for item in seen if isinstance(item, ModelView))
        assert (model.wanted, model.declared) == (3, 1)
        await pages.aclose()  # type: ignore[attr-defined]


async def test_why_names_each_node_and_its_reason(start: Start) -> None:
    async with start(lost_after="1500ms") as control, control.client() as client:
        assert (await client.why_model("gemma")).refusals == ()
        async with control.agent("node01") as node:
            await node.register()
        async with asyncio.timeout(5):
            async for page in client.watch([Noun.EVENTS], follow=True, events=100):
                if any(isinstance(item, Event) and item.kind is EventKind.NODE_UNREACHABLE for item in page.items):
                    break
        why = await client.why_model("gemma-270m")
        assert [type(refusal) for refusal in why.refusals] == [NodeAway]
        assert why.model == "gemma"


async def test_errors_arrive_as_what_they_are(start: Start) -> None:
    async with start() as control, control.client() as client:
        with pytest.raises(UnknownModel, match="known: gemma"):
            await client.scale_model("gemini", 1)
        with pytest.raises(UnknownModel):
            await client.why_model("\x1b[2J")
        with pytest.raises(TooMany):
            await client.scale_model("gemma", 1_000_000)
        for nouns in ([], [0], [99]):
            with pytest.raises(BadMessage):
                channel = Channel("127.0.0.1", control.port, control.certificates.of("operator"))
                async with channel:
                    request = v1.WatchRequest(nouns=nouns)
                    async for _ in channel.stream("/operator.v1.Operator/Watch", request, v1.Page):
                        pass


async def test_a_viewer_looks_and_does_not_act(start: Start) -> None:
    async with start() as control, control.client("viewer") as client:
        assert (await client.about()).cluster == "demo"
        with pytest.raises(NotAllowed, match="viewer viewer may not call ScaleModel; it takes the role operator"):
            await client.scale_model("gemma", 2)
    async with start() as control, control.client() as client:
        assert (await client.why_model("gemma")).wanted == 1


async def test_routes_are_for_routers_only_and_carry_the_key(start: Start) -> None:
    async with start() as control, control.agent("node01") as node:
        for other in ("operator", "viewer"):
            async with control.client(other) as client:
                with pytest.raises(NotAllowed):
                    await anext(client.watch_routes())
        await node.register()
        desired = await node.hear(Desired)
        while not desired.shards:
            desired = await node.hear(Desired)
        (order,) = desired.shards
        ready = ShardReport(
            shard=order.shard,
            state=ShardState.READY,
            since=1.0,
            launch=1,
            host="127.0.0.1",
            port=21000,
            key=Secret("hush"),
            order=order,
        )
        await node.report(ready)
        async with control.client("router") as router, asyncio.timeout(5):
            async for table in router.watch_routes():
                assert isinstance(table, Routes)
                if table.routes[0].replicas:
                    break
            assert table.routes[0].replicas[0].key == "hush"
        assert "hush" not in repr(await once(control, *ALL))


async def test_routers_wait_for_a_settled_cluster(start: Start) -> None:
    """A cluster that starts does not know yet what serves: routers keep the table they have."""
    async with start() as control, control.agent("node01") as node:
        await node.register()
        while not (await node.hear(Desired)).shards:
            pass
    async with start(settle="1h") as control, control.client("router") as router, control.client() as client:
        first = asyncio.ensure_future(anext(router.watch_routes()))
        await client.scale_model("gemma", 2)
        before = await client.about()
        assert not before.settled
        async with control.agent("node01") as node:
            await node.register()  # the only node that the store knows: nobody is waited for any more
            async with asyncio.timeout(5):
                table = await first
        assert table.revision.seq > before.revision.seq, "it was sent before the cluster was settled"


async def test_the_local_operator_needs_no_certificate(start: Start) -> None:
    async with start() as control, control.local_client() as client:
        mode = os.stat(control.socket)
        assert stat.S_IMODE(mode.st_mode) & 0o007 == 0
        done = await client.scale_model("gemma", 2)
        assert done.event.by == ("operator root" if os.geteuid() == 0 else f"operator uid-{os.geteuid()}")
    assert control.socket.name not in os.listdir(control.socket.parent)


async def test_an_agent_may_not_ask_what_operators_ask(start: Start) -> None:
    async with start() as control, control.client("node01") as client:
        with pytest.raises(NotAllowed):
            await client.why_model("gemma")
        with pytest.raises(NotAllowed):
            await client.scale_model("gemma", 0)


async def test_an_agent_may_ask_who_answers_and_what_time_it_is_there(start: Start) -> None:
    async with start() as control, control.client("node01") as client:
        about = await client.about()
        assert (about.cluster, about.now >= about.started) == ("demo", True)


async def test_a_certificate_of_another_authority_is_refused(start: Start) -> None:
    async with start() as control:
        stranger = control.certificates.of("lab/stranger")
        async with Channel("127.0.0.1", control.port, stranger) as channel:
            with pytest.raises(PeerNotTrusted):
                await channel.call("/operator.v1.Operator/About", v1.AboutRequest(), v1.AboutView)


async def test_without_room_on_the_disk_acts_are_refused_and_looking_goes_on(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def full(self: store_module.Store, effects: object) -> None:
        raise NotStored(f"{self.path.name} takes nothing: database or disk is full; nothing was changed")

    async with start() as control, control.client() as client, control.agent("node01") as node:
        with monkeypatch.context() as patched:
            patched.setattr(store_module.Store, "save", full)
            with pytest.raises(ClusterCannot, match="disk is full; nothing was changed"):
                await client.scale_model("gemma", 5)
            await node.register()
            models = [item for item in await once(control, Noun.MODELS) if isinstance(item, ModelView)]
            assert [model.wanted for model in models] == [1]
            nodes = [item for item in await once(control, Noun.NODES) if isinstance(item, NodeView)]
            assert [one.name for one in nodes] == ["node01"]
        async with asyncio.timeout(5):
            desired = await node.hear(Desired)
            while not desired.shards:
                desired = await node.hear(Desired)
        assert (await client.scale_model("gemma", 2)).event.text == "1 → 2 replicas"
