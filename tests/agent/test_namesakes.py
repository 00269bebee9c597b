"""Engines that a lost state left behind are named, and nobody touches them."""

import asyncio
import os

from llmgw.agent.launch.launcher import MARK, Owner
from llmgw.agent.launch.namesakes import namesakes, warning
from llmgw.core.names import NodeName, ShardId

OURS = Owner("test-namesakes", NodeName("node01"), f"{os.getpid()}a")
LOST = Owner("test-namesakes", NodeName("node01"), f"{os.getpid()}b")


async def test_an_engine_of_a_lost_state_is_named_with_its_pid_and_ours_is_not() -> None:
    assert warning(OURS) == ""
    engines = []
    for owner in (OURS, LOST):
        environment = {MARK: owner.mark(ShardId("m/0.0"), 1)}
        engines.append(await asyncio.create_subprocess_exec("/bin/cat", stdin=asyncio.subprocess.PIPE, env=environment))
    try:
        assert namesakes(OURS) == {engines[1].pid: "m/0.0"}
        assert f"m/0.0 (pid {engines[1].pid})" in warning(OURS)
    finally:
        for engine in engines:
            assert engine.stdin is not None
            engine.stdin.close()
            assert await engine.wait() == 0, "nobody touched it"
