"""A real cluster for a journey: the demo's parts on the tiny model, with what a journey looks at and does to it."""

import asyncio
import contextlib
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from llmgw.cli.local import leftovers
from llmgw.cli.local.cluster import CONTROL, LocalCluster, Seen, running
from llmgw.cli.local.http import Answer, ask
from llmgw.cli.local.layout import Plan
from llmgw.client import ControlClient
from llmgw.core.events import Event, EventKind
from llmgw.core.views import Noun, ReplicaView, ShardView
from tests.tiny import tiny_gguf

CHAT = "/v1/chat/completions"
PATIENCE = 30.0
"""Seconds that anything in a journey may take on a busy machine."""


def plan(directory: Path, **changes: Any) -> Plan:
    """Fast timings, one replica a node, one thread an engine."""
    usual = {"heartbeat": "200ms", "lost_after": "1500ms", "settle": "500ms", "context": 256, "threads": 1}
    return Plan(directory=directory / "d", **{"weights": tiny_gguf(), "model": "tiny"} | usual | changes)


@asynccontextmanager
async def serving(what: Plan) -> AsyncIterator[LocalCluster]:
    """The cluster once its replicas serve."""
    async with running(what) as cluster:
        await cluster.until_ready()
        await cluster.until_routed()
        yield cluster


async def chat(cluster: LocalCluster, **more: object) -> dict[str, Any]:
    """One plain request through the gateway; returns the answer, whose status was 200."""
    async with asyncio.timeout(PATIENCE), ask(cluster.made.gateway, CHAT, request(cluster, **more)) as answer:
        text = await answer.text()
        assert answer.status == 200, text
        return dict(json.loads(text))


def request(cluster: LocalCluster, **more: object) -> dict[str, object]:
    return {"model": cluster.plan.model, "messages": [{"role": "user", "content": "hi"}], "max_tokens": 4} | more


@dataclass
class Stream:
    """A token stream that is being read."""

    answer: Answer
    text: str = ""
    _pieces: AsyncIterator[bytes] = field(init=False)

    def __post_init__(self) -> None:
        self._pieces = aiter(self.answer)

    @property
    def done(self) -> bool:
        return self.text.endswith("data: [DONE]\n\n")

    async def piece(self) -> None:
        self.text += (await anext(self._pieces)).decode("utf-8", "replace")

    async def rest(self) -> None:
        async for piece in self._pieces:
            self.text += piece.decode("utf-8", "replace")


@asynccontextmanager
async def stream(cluster: LocalCluster, tokens: int) -> AsyncIterator[Stream]:
    body = request(cluster, stream=True, max_tokens=tokens, ignore_eos=True, stream_options={"include_usage": True})
    async with ask(cluster.made.gateway, CHAT, body) as answer:
        assert answer.status == 200
        yield Stream(answer)


async def ctl(cluster: LocalCluster, *words: str) -> dict[str, Any]:
    """What `llmgw ctl … --json` says; its exit status was 0."""
    argv = ["-m", "llmgw.cli.main", "ctl", *words, "--dir", str(cluster.plan.directory), "--json"]
    process = await asyncio.create_subprocess_exec(sys.executable, *argv, stdout=-1, stderr=-1)
    out, words_of_it = await process.communicate()
    assert process.returncode == 0, words_of_it.decode()
    return dict(json.loads(out))


def reload(cluster: LocalCluster, edit: Callable[[dict[str, Any]], None]) -> None:
    """As an operator does: edit server.yaml, and let llmgwd read it again."""
    file = cluster.plan.directory / "server.yaml"
    said = yaml.safe_load(file.read_text())
    edit(said)
    file.write_text(yaml.safe_dump(said))
    cluster.children[CONTROL].process.send_signal(signal.SIGHUP)


async def until(cluster: LocalCluster, true: Callable[[Seen], bool]) -> Seen:
    return await cluster.until(true, timeout=PATIENCE)


async def events(cluster: LocalCluster, *kinds: EventKind) -> list[Event]:
    """What happened so far, of these kinds, oldest first."""
    found: list[Event] = []
    async with ControlClient.open(cluster.client) as client:
        pages = client.watch((Noun.EVENTS,), follow=False, events=1000)
        async with contextlib.aclosing(pages):
            async for page in pages:
                found += [item for item in page.items if isinstance(item, Event)]
    return [event for event in found if event.kind in kinds]


async def event(cluster: LocalCluster, true: Callable[[Event], bool]) -> Event:
    """The first event that `true` holds for, past or to come."""
    async with asyncio.timeout(PATIENCE), ControlClient.open(cluster.client) as client:
        pages = client.watch((Noun.EVENTS,), follow=True, events=1000)
        async with contextlib.aclosing(pages):
            async for page in pages:
                for item in page.items:
                    if isinstance(item, Event) and true(item):
                        return item
    raise AssertionError("the watch ended")


def shard(replica: ReplicaView) -> ShardView:
    (only,) = replica.shards
    return only


def on(seen: Seen, node: str) -> list[ReplicaView]:
    """The replicas on a node."""
    return [replica for replica in seen.replicas.values() if shard(replica).node == node]


def pids(cluster: LocalCluster) -> set[int]:
    """Of the engines that run."""
    return set(leftovers.engines(cluster.plan.directory))


async def kill(cluster: LocalCluster, name: str) -> None:
    """`kill -9` of one of our processes."""
    assert await cluster.children.end(name, signal.SIGKILL) == -signal.SIGKILL


def log(cluster: LocalCluster, name: str) -> str:
    return (cluster.plan.directory / "logs" / f"{name}.log").read_text()


async def logged(cluster: LocalCluster, name: str, words: str) -> None:
    """Wait until one of our processes has written `words`; a file tells nobody when it grows."""
    async with asyncio.timeout(PATIENCE):
        while words not in log(cluster, name):  # noqa: ASYNC110
            await asyncio.sleep(0.02)


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
