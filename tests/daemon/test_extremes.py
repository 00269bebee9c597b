"""Numbers that no machine has, in every field that an agent sends, up to what the wire holds: llmgwd lives."""

import itertools
import typing
from collections.abc import Iterator
from dataclasses import fields, is_dataclass, replace
from typing import Any

import pytest

from llmgw.core.engines.terms import Install, Installs, InstallStep
from llmgw.core.errors import BadMessage
from llmgw.core.facts import Failure, FailureKind, ShardOrder, ShardReport, Want
from llmgw.core.inventory import (
    Cpu,
    Disk,
    FabricAdapter,
    Gpu,
    GpuHolder,
    LinkLayer,
    NumaNode,
    PortState,
    Usage,
)
from llmgw.core.link import AgentMessage, Heartbeat, Leaving, Listening, Registration, Report
from llmgw.core.names import ModelName, NodeName, ShardId
from llmgw.core.shard import ShardState
from llmgw.core.units import GIB, Bytes
from llmgw.core.views import NodeView, Noun, ReplicaView
from llmgw.daemon.intake import bounded
from llmgw.daemon.spans import spans
from llmgw.wire.agent import v1
from llmgw.wire.convert import to_wire
from llmgw.wire.facts import v1 as wire
from tests.core.stage import LLAMA, inventory, profile
from tests.daemon.conftest import NODES, Control, Start
from tests.daemon.world import registration

SHARD = ShardReport(
    shard=ShardId("mystery/0.0"),
    state=ShardState.READY,
    since=1.0,
    launch=1,
    pid=1,
    host="127.0.0.1",
    port=21000,
    attempts=1,
    retry_at=1.0,
    failure=Failure(kind=FailureKind.EXITED, text="exit 1", exit_status=1, signal=1, at=1.0),
    order=ShardOrder(
        shard=ShardId("mystery/0.0"), model=ModelName("mystery"), want=Want.RUN, profile=profile(), drain=1.0
    ),
)
INVENTORY = replace(
    inventory(),
    cpu=Cpu(cores=2, quota=1.0),
    numa=(NumaNode(index=0, cores=1, memory=GIB),),
    memory_limit=GIB,
    disks=(Disk(directory="/d", total=GIB, free=GIB),),
    gpus=(Gpu(index=0, uuid="GPU-0", memory=GIB, numa=0),),
    gpu_holders=(GpuHolder(gpu="GPU-0", pid=1, memory=GIB),),
    adapters=(FabricAdapter(name="mlx5_0", port=1, link_layer=LinkLayer.INFINIBAND, state=PortState.ACTIVE, numa=0),),
    certificate_ends=1.0,
)
INSTALL = Install(
    engine="llama.cpp",
    version="b10991",
    step=InstallStep.DOWNLOAD,
    since=1.0,
    done=Bytes(1),
    total=Bytes(2),
    rate=1.0,
    attempts=1,
    retry_at=1.0,
    checked_at=1.0,
)
MESSAGES: tuple[Any, ...] = (
    registration(
        "node01",
        inventory=INVENTORY,
        engines=LLAMA,
        shards=(SHARD,),
        epoch=1,
        installs=(INSTALL,),
        files_port=1,
    ),
    Heartbeat(at=1.0, usage=Usage(memory_available=GIB, load_average=1.0, gpu_used=(GIB,))),
    Report(shards=(SHARD,), engines=LLAMA, inventory=INVENTORY),
    Listening(token="1-1", host="127.0.0.1", port=21000),
    Installs(installs=(INSTALL,)),
)
"""Every message with a number in it, and every number that may be missing there."""

LIMITS: dict[str, tuple[float, ...]] = {
    "uint32": (2**32 - 1,),
    "uint64": (2**63 - 1, 2**64 - 1),
    "int32": (-(2**31), 2**31 - 1),
    "double": (-1.7e308, 1.7e308),
}


def numbers(value: Any, message: Any) -> Iterator[tuple[str, str, Any]]:
    """Each number in `value`: its field, its type on the wire, and a function that puts another in its place."""
    about = message._betterproto
    for field in fields(value):
        there, meta = getattr(value, field.name), about.meta_by_field_name[field.name]
        one = there[0] if isinstance(there, tuple) and there else there

        def put(new: Any, name: str = field.name, many: bool = isinstance(there, tuple)) -> Any:
            return replace(value, **{name: (new,) if many else new})

        if is_dataclass(one):
            for name, kind, inner in numbers(one, about.cls_by_field[field.name]):
                yield name, kind, lambda new, put=put, inner=inner: put(inner(new))
        elif isinstance(one, int | float) and not isinstance(one, bool):
            yield field.name, meta.proto_type, put


def on_the_wire(value: Any) -> Any:
    """The message of the same name."""
    name = type(value).__name__
    return getattr(v1, name, None) or getattr(wire, name)


FOUND = [(message, *found) for message in MESSAGES for found in numbers(message, on_the_wire(message))]


def test_no_field_with_a_number_is_left_out_of_the_walk() -> None:
    """Not by the walk, and not by the spans: whatever the wire holds as a number is in both."""
    for message in MESSAGES:
        expected = set(numeric(on_the_wire(message)))
        walked = [name for owner, name, _, _ in FOUND if owner is message]
        assert set(walked) == expected
        for value in parts(message):
            there = set(numeric(on_the_wire(value), deep=False))
            assert spans(type(value)).keys() == there, type(value)
    assert {type(message) for message in MESSAGES} == set(typing.get_args(AgentMessage)) - {Leaving}


def numeric(message: Any, *, deep: bool = True) -> Iterator[str]:
    """The fields of a message that hold numbers."""
    about = message._betterproto
    for name, meta in about.meta_by_field_name.items():
        if meta.proto_type in LIMITS:
            yield name
        elif meta.proto_type == "message" and deep:
            yield from numeric(about.cls_by_field[name])


def parts(value: Any) -> Iterator[Any]:
    """The value and all records in it."""
    yield value
    for field in fields(value):
        there = getattr(value, field.name)
        for one in there if isinstance(there, tuple) else (there,):
            if is_dataclass(one):
                yield from parts(one)


def sendable(message: Any) -> Any:
    """The message, or None where the wire itself does not hold it."""
    try:
        to_wire(message, v1.AgentMessage)
    except BadMessage:
        return None
    return message


EXTREMES = [
    pytest.param(extreme, name, id=f"{type(message).__name__}-{name}-{limit:.3g}")
    for message, name, kind, put in FOUND
    for limit in LIMITS[kind]
    if (extreme := sendable(put(limit))) is not None
]


SPEAKERS = tuple(name for name in NODES if name != "node02")


async def say(control: Control, node: str, message: Any) -> None:
    """Let a node say it, after its registration where it is none, and leave."""
    async with control.agent(node) as agent:
        if isinstance(message, Registration):
            message = replace(message, node=NodeName(node))
        else:
            await agent.register()
        await agent.say(message)
        await agent.say(Leaving(reason="done"))
        await agent.ends()


@pytest.mark.long
async def test_what_the_wire_holds_at_most_is_refused_by_its_field_or_taken_and_llmgwd_lives(start: Start) -> None:
    """All through one control plane with a real store; after each another node is served, and a restart comes up."""
    # Several nodes, since one that says so much is read slowly.
    nodes = itertools.cycle(SPEAKERS)
    async with start(lost_after="1h", settle="1m") as control:
        for case in EXTREMES:
            message, name = case.values
            try:
                await say(control, next(nodes), message)
            except BadMessage as error:
                assert error.field == name, error
        async with control.client() as client, control.agent("node02") as agent:
            await agent.register()
            pages = [page async for page in client.watch(list(Noun), follow=False, events=10_000)]
            names = {item.name for page in pages for item in page.items if isinstance(item, NodeView)}
            assert names == {"node02", *SPEAKERS}
    async with start() as control, control.agent("node03") as agent:
        await agent.register()


def widest(value: Any, *, most: bool) -> Any:
    """The value with every number at an end of its span."""
    changes = dict[str, Any]()
    for field in fields(value):
        there, span = getattr(value, field.name), spans(type(value)).get(field.name)
        one = there[0] if isinstance(there, tuple) and there else there
        if span is not None:
            limit = span.most if most else span.least
            new = type(one)(limit)
        elif is_dataclass(one):
            new = widest(one, most=most)
        else:
            continue
        changes[field.name] = (new,) if isinstance(there, tuple) else new
    return replace(value, **changes)


@pytest.mark.parametrize("most", [True, False])
async def test_at_the_ends_of_all_spans_everything_is_taken_stored_shown_and_read_back(
    start: Start, most: bool
) -> None:
    widened = [widest(message, most=most) for message in MESSAGES]
    first = replace(widened[0], epoch=0)  # one that obeyed a later epoch is another story
    async with start(settle="1m") as control, control.client() as client:
        async with control.agent("node01") as agent:
            await agent.say(first)
            await agent.say(widened[1])
            await agent.say(widened[2])
            await agent.say(Leaving(reason="done"))
            await agent.ends()
        pages = [page async for page in client.watch(list(Noun), follow=False, events=100)]
        items = [item for page in pages for item in page.items]
        (node,) = [item for item in items if isinstance(item, NodeView)]
        assert node.inventory == widened[2].inventory
        adopted = [item.id for item in items if isinstance(item, ReplicaView) and item.adopted]
        assert adopted == ["mystery/0"]
    async with start() as control, control.client() as client:
        pages = [page async for page in client.watch([Noun.REPLICAS], follow=False)]
        assert "mystery/0" in {item.id for page in pages for item in page.items if isinstance(item, ReplicaView)}


async def test_a_node_with_a_thousand_giants_that_run_unasked_can_be_shown(start: Start) -> None:
    order = widest(SHARD, most=True).order
    strays = tuple(
        replace(SHARD, shard=ShardId(f"mystery/{n}.0"), order=replace(order, shard=ShardId(f"mystery/{n}.0")))
        for n in range(1_000)
    )
    report = Report(shards=strays)
    async with start(settle="10ms") as control, control.client() as client, control.agent("node01") as agent:
        await agent.register(inventory=replace(INVENTORY, memory=Bytes(1 << 60)))
        await agent.say(bounded(report))
        await agent.say(Leaving(reason="done"))
        await agent.ends()
        pages = [page async for page in client.watch([Noun.NODES], follow=False)]
        (node,) = [item for page in pages for item in page.items if isinstance(item, NodeView)]
        assert node.promised > 1 << 59
