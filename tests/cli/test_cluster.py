"""A local cluster's bring-up when a part of it does not play along: the parts here are small scripts."""

import asyncio
from pathlib import Path

import pytest

from llmgw.cli.local import children
from llmgw.cli.local import cluster as local
from llmgw.cli.local.children import Children
from llmgw.cli.local.cluster import Seen, running
from llmgw.cli.local.layout import Plan
from llmgw.core.errors import ClusterCannot, Rejected
from llmgw.core.facts import Failure, FailureKind
from llmgw.core.names import ModelName, NodeName, ReplicaId, ShardId
from llmgw.core.presence import NodeState
from llmgw.core.shard import ShardState
from llmgw.core.views import Gone, NodeView, Noun, Page, ReplicaView, Revision, ShardView
from tests.tiny import tiny_gguf

PART = """\
import os, signal, socket, sys
if {dies}:
    sys.exit("no luck")
with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as out:
    out.sendto(b"READY=1", "\\0" + os.environ["NOTIFY_SOCKET"][1:])
signal.pause()
"""


@pytest.fixture
def plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Plan:
    """A cluster whose processes do nothing; agents die where a file `dies` is in the directory."""
    (tmp_path / "part_for_test.py").write_text(PART.format(dies="os.path.exists('dies') and 'agent' in sys.argv[2]"))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    start = Children.start

    async def part(self: Children, name: str, module: str, config: Path, *, kept: bool = False):
        return await start(self, name, "part_for_test", config, kept=kept)

    monkeypatch.setattr(Children, "start", part)
    return Plan(directory=tmp_path / "demo", weights=tiny_gguf(), nodes=1)


async def test_it_is_yielded_once_all_run_and_none_is_left_behind(plan: Plan) -> None:
    said: list[str] = []
    async with running(plan, said.append) as cluster:
        processes = [cluster.children[name].process for name in (local.CONTROL, local.ROUTER, "node01")]
        assert [process.returncode for process in processes] == [None] * 3
    assert all(process.returncode is not None for process in processes)
    assert said[1:] == [
        f"llmgwd listens on {cluster.made.control}",
        f"the router listens on {cluster.made.gateway}",
    ]


async def test_a_part_that_dies_while_it_comes_up_is_the_error(plan: Plan, monkeypatch: pytest.MonkeyPatch) -> None:
    make = local.make

    def made(plan: Plan):
        result = make(plan)
        (plan.directory / "dies").touch()
        return result

    monkeypatch.setattr(local, "make", made)
    with pytest.raises(ClusterCannot, match="node01 ended with status 1"):
        async with running(plan):
            raise AssertionError("it must not come up")


async def test_an_agent_that_dies_is_told_and_started_again(plan: Plan, monkeypatch: pytest.MonkeyPatch) -> None:
    """The others go on meanwhile: that is what a cluster is for."""
    monkeypatch.setattr(children, "AGAIN", 0.05)
    said: asyncio.Queue[str] = asyncio.Queue()
    async with asyncio.timeout(20), running(plan, said.put_nowait) as cluster:
        first = cluster.children["node01"]
        first.process.kill()
        while "was ended by signal 9" not in (word := await said.get()):
            pass
        assert word.startswith("node01 ") and "\n" not in word and "its node shows as unreachable" in word
        while await said.get() != "node01 runs again":
            pass
        second = cluster.children["node01"].process
        assert second.pid != first.pid and cluster.children[local.CONTROL].process.returncode is None
    assert second.returncode is not None


async def test_an_end_does_not_wait_for_an_agent_to_come_again(plan: Plan) -> None:
    said: asyncio.Queue[str] = asyncio.Queue()
    async with asyncio.timeout(children.AGAIN / 2), running(plan, said.put_nowait) as cluster:
        cluster.children["node01"].process.kill()
        while "was ended by signal 9" not in await said.get():
            pass


async def test_the_router_that_dies_ends_everything(plan: Plan) -> None:
    with pytest.raises(ClusterCannot, match="router was ended by signal 9"):
        async with asyncio.timeout(20), running(plan) as cluster:
            cluster.children[local.ROUTER].process.kill()
            await asyncio.Event().wait()


async def test_an_error_of_the_body_is_raised_as_it_is(plan: Plan) -> None:
    with pytest.raises(Rejected, match="this"):
        async with running(plan), asyncio.TaskGroup():
            raise Rejected("this")


async def test_being_cancelled_ends_everything(plan: Plan) -> None:
    up, processes = asyncio.Event(), []

    async def hold() -> None:
        async with running(plan) as cluster:
            processes.append(cluster.children["node01"].process)
            up.set()
            await asyncio.Event().wait()

    async with asyncio.timeout(20), asyncio.TaskGroup() as group:
        task = group.create_task(hold())
        await up.wait()
        task.cancel()
    assert processes[0].returncode is not None


def page(*items: object, first: bool = False) -> Page:
    return Page(revision=Revision(epoch=1, seq=1), now=0.0, snapshot=first, first=first, complete=first, items=items)  # type: ignore[arg-type]


def node(name: str, state: NodeState) -> NodeView:
    return NodeView(name=NodeName(name), state=state, since=0.0, promised=0)  # type: ignore[arg-type]


def replica(state: ShardState, failure: str = "") -> ReplicaView:
    failed = Failure(kind=FailureKind.EXITED, text=failure, at=0.0) if failure else None
    shard = ShardView(
        shard=ShardId("m/0.0"), node=NodeName("a"), rank=0, state=state, since=0.0, failure=failed
    )  # fmt: skip
    return ReplicaView(id=ReplicaId("m/0"), model=ModelName("m"), state=state, since=0.0, shards=(shard,))


def test_what_was_seen_follows_the_stream() -> None:
    seen = Seen()
    seen.take(page(node("a", NodeState.READY), node("b", NodeState.LOST), replica(ShardState.READY), first=True))
    assert (seen.nodes_ready, seen.replicas_ready) == (1, 1)
    seen.take(page(Gone(noun=Noun.REPLICAS, name="m/0"), node("b", NodeState.READY)))
    assert (seen.nodes_ready, seen.replicas_ready) == (2, 0)
    seen.take(page(node("a", NodeState.UNREACHABLE), first=True))
    assert seen.lines() == ["a is unreachable"]


def test_what_engines_say_reaches_the_terminal_as_text() -> None:
    seen = Seen()
    seen.take(page(replica(ShardState.FAILED, "no \x1b[31mluck"), first=True))
    assert "\x1b" not in "".join(seen.lines())
