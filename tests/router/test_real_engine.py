"""Against llama.cpp itself, with a tiny model: what the stubs say is what an engine says."""

import asyncio
import contextlib
import socket
from collections.abc import AsyncGenerator
from pathlib import Path

import msgspec
import pytest

from llmgw.cli import llamacpp
from llmgw.core.facts import Secret
from tests.router.rig import Rig, chat, replica
from tests.tiny import SLOW, tiny_gguf

pytest.importorskip("xllamacpp", reason="llama.cpp's server is not installed: pip install 'llmgw[demo]'")


@contextlib.asynccontextmanager
async def _llama(path: Path) -> AsyncGenerator[tuple[int, asyncio.subprocess.Process], None]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    (path / "key").write_text("engine-key\n")
    process = await asyncio.create_subprocess_exec(
        llamacpp.script(path / "llama-server"),
        *("-m", str(tiny_gguf(SLOW)), "--host", "127.0.0.1", "--port", str(port), "-c", "16384", "-np", "2", "-a", "m"),
        *("-t", "1", "--api-key-file", str(path / "key"), "--metrics"),
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        yield port, process
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()


async def _serving(rig: Rig) -> None:
    """Until the engine has loaded; before, the router says that it cannot be asked."""
    async with asyncio.timeout(30):
        while (await rig.ask(_ask(max_tokens=1)))[0] in (502, 503):
            pass


def _ask(**more: object) -> bytes:
    body = {"model": "m", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 8, "seed": 1, **more}
    return chat(msgspec.json.encode(body), b"Authorization: Bearer the-clients-own")


async def test_llama_cpp_answers_through_the_router_plain_streamed_and_cut_short(rig, tmp_path):
    async with _llama(tmp_path) as (port, process):
        await rig.routes(replica(0, port, key=Secret("engine-key")))
        await _serving(rig)

        status, fields, body = await rig.ask(_ask())
        assert (status, fields[b"content-type"]) == (200, b"application/json; charset=utf-8")
        assert msgspec.json.decode(body)["usage"]["completion_tokens"] > 0

        wire = await rig.connect()
        for _ in range(2):
            wire.send(_ask(stream=True, ignore_eos=True))
            head, _, said = (await wire.until(b"0\r\n\r\n")).partition(b"\r\n\r\n")
            assert b"text/event-stream" in head
            assert said.count(b"data: ") > 5
            assert b"data: [DONE]" in said

        wire.send(_ask(stream=True, max_tokens=8000, ignore_eos=True))
        await wire.until(b"data: ")
        process.kill()
        cut = await wire.rest()
        assert b'"code":"engine_died"' in cut
        assert b"[DONE]" not in cut
        await process.wait()
        status, _, body = await rig.ask(_ask())
        assert (status, msgspec.json.decode(body)["error"]["code"]) == (502, "engine_unreachable")
