"""Whose engine a process is."""

import asyncio
import os
from collections.abc import AsyncIterator

import pytest

from llmgw.agent.launch.launcher import MARK, Owner
from llmgw.agent.launch.marks import runs
from llmgw.core.names import NodeName, ShardId

OWNER = Owner("demo", NodeName("node01"), "0a1b2c")


@pytest.fixture
async def engine() -> AsyncIterator[int]:
    """A process with the mark of an engine of ours, that started another one."""
    environment = os.environ | {MARK: OWNER.mark(ShardId("gemma/0.0"), 1)}
    process = await asyncio.create_subprocess_exec(
        "/bin/sh",
        "-c",
        "sleep 600 & echo $!; wait",
        env=environment,
        stdout=asyncio.subprocess.PIPE,
        start_new_session=True,
    )
    assert process.stdout is not None
    try:
        yield int(await process.stdout.readline())
    finally:
        os.killpg(process.pid, 9)
        await process.wait()


async def test_what_an_engine_of_ours_starts_is_ours(engine: int):
    assert runs(OWNER, engine)


async def test_an_engine_of_another_node_or_state_is_not_ours(engine: int):
    assert not runs(Owner("demo", NodeName("node02"), "0a1b2c"), engine)
    assert not runs(Owner("demo", NodeName("node01"), "ffffff"), engine)


def test_a_process_without_a_mark_or_that_is_gone_is_not_ours():
    assert not runs(OWNER, os.getpid())
    assert not runs(OWNER, 1 << 30)
