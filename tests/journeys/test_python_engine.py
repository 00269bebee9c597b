"""A Python engine from an operator's lock to a token: its packages from an index of this machine, a fresh environment.

Its program is a stand-in for vLLM, which is gigabytes, and so is its torch; what it serves with is llama.cpp out of a
real wheel.
"""

import asyncio
import os
import platform
import socket
import sys
from contextlib import AsyncExitStack
from pathlib import Path

import aiohttp
import pytest

from llmgw.core.events import EventKind
from tests.index import SERVING, Index, repacked, served, torch, vllm
from tests.journeys.world import ctl, event, plan, reload, running
from tests.tiny import tiny_gguf

pytestmark = [pytest.mark.journey, pytest.mark.long]


async def test_what_is_locked_is_installed_into_a_fresh_environment_and_serves(tmp_path: Path) -> None:
    wheels = tmp_path / "wheels"
    wheels.mkdir()
    torch(wheels, "2.13.0")
    repacked(wheels, "xllamacpp")
    vllm(wheels, "0.33.0", main=SERVING, requires=["xllamacpp"])
    with served(Index(wheels)) as index:
        wish = {"version": "0.33.0", "source": index.url, "python": f"3.{sys.version_info.minor}"}
        async with running(plan(tmp_path, nodes=1, replicas=0)) as cluster:
            reload(cluster, lambda said: said["engines"].update(vllm=wish | {"packages": {"cpu": "vllm"}}))
            await event(cluster, lambda one: one.kind is EventKind.ENGINE_WANTED)
            (wanted,) = (await ctl(cluster, "engines"))["wanted"]
            assert "llmgw ctl engine lock vllm==0.33.0" in wanted["problem"]

            await ctl(cluster, "engine", "lock", "vllm==0.33.0", "--arch", platform.machine())
            installed = await event(cluster, lambda one: one.kind is EventKind.ENGINE_INSTALLED)
            assert installed.subject == "node01/vllm/0.33.0"
            found = {one["engine"]: one for one in (await ctl(cluster, "engines"))["engines"]}
            assert (found["vllm"]["step"], found["vllm"]["variant"], found["vllm"]["problem"]) == ("ready", "cpu", "")
            assert found["llama.cpp"]["by_hand"]
            assert await _tokens(Path(found["vllm"]["path"])) >= 1


async def _tokens(program: Path) -> int:
    """How many tokens the engine makes for a prompt."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    async with AsyncExitStack() as stack:
        engine = await asyncio.create_subprocess_exec(
            program, "serve", tiny_gguf(), str(port), env={"PATH": os.environ["PATH"]}, stderr=asyncio.subprocess.PIPE
        )
        stack.push_async_callback(engine.wait)
        stack.callback(engine.kill)
        assert engine.stderr is not None
        async with asyncio.timeout(30):
            while b"listening" not in (line := await engine.stderr.readline()):
                assert line, "it ended before it listened"
            session = await stack.enter_async_context(aiohttp.ClientSession())
            url = f"http://127.0.0.1:{port}/v1/completions"
            async with session.post(url, json={"prompt": "hello", "max_tokens": 4}) as answer:
                said = await answer.json()
    return int(said["usage"]["completion_tokens"])
