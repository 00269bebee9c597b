"""The demo's engine: llama.cpp's server behind llama-server's flags, as a real process on the tiny model."""

import asyncio
import signal
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest

from llmgw.cli.llamacpp import FLAGS, script
from tests.tiny import Shape, tiny_gguf, write

CHAT = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 4}


@pytest.fixture
def engine(tmp_path: Path) -> Path:
    return script(tmp_path / "llama-server")


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


async def run(engine: Path, *arguments: str) -> tuple[int, str, str]:
    """Status, stdout and stderr of an engine that ends by itself."""
    process = await asyncio.create_subprocess_exec(engine, *arguments, stdout=-1, stderr=-1)
    try:
        async with asyncio.timeout(20):
            out, words = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert process.returncode is not None
    return process.returncode, out.decode(), words.decode()


@asynccontextmanager
async def serving(engine: Path, *arguments: str) -> AsyncIterator[tuple[asyncio.subprocess.Process, str]]:
    """A running engine and its URL, once it says that it listens."""
    port = str(free_port())
    argv = ["--host", "127.0.0.1", "--port", port, "--cache-ram", "0", "-fit", "off", "-ngl", "0", *arguments]
    process = await asyncio.create_subprocess_exec(engine, *argv, stderr=asyncio.subprocess.PIPE)
    assert process.stderr is not None
    try:
        async with asyncio.timeout(20):
            async for line in process.stderr:
                if b"listening on" in line:
                    break
        async with asyncio.TaskGroup() as group:
            reader = group.create_task(process.stderr.read())
            yield process, f"http://127.0.0.1:{port}"
            if process.returncode is None:
                process.terminate()
            await reader
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def test_it_serves_as_llama_server_does(engine: Path, tmp_path: Path) -> None:
    (tmp_path / "keys").write_text("# of the test\nsesame\n")
    flags = ["-m", str(tiny_gguf()), "-c", "512", "-np", "2", "-a", "tiny,other", "--metrics", "-t", "1"]
    async with (
        serving(engine, *flags, "--api-key-file", str(tmp_path / "keys"), "-fa", "off") as (_, url),
        aiohttp.ClientSession(url) as http,
    ):
        async with http.get("/health") as answer:
            assert (answer.status, await answer.json()) == (200, {"status": "ok"})
        async with http.post("/v1/chat/completions", json=CHAT) as answer:
            assert answer.status == 401
        http.headers["Authorization"] = "Bearer # of the test"
        async with http.post("/v1/chat/completions", json=CHAT) as answer:
            assert answer.status == 401
        http.headers["Authorization"] = "Bearer sesame"
        async with http.post("/v1/chat/completions", json=CHAT) as answer:
            assert (await answer.json())["usage"]["completion_tokens"] == 4
        async with http.get("/v1/models") as answer:
            (model,) = (await answer.json())["data"]
            assert {model["id"], *model["aliases"]} == {"tiny", "other"}
        async with http.get("/slots") as answer:
            assert [slot["n_ctx"] for slot in await answer.json()] == [256, 256]
        async with http.get("/metrics") as answer:
            assert "llamacpp:requests_processing 0" in await answer.text()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_it_ends_at_once_with_a_stream_open(engine: Path, tmp_path: Path, number: signal.Signals) -> None:
    long = tmp_path / "long.gguf"
    write(long, Shape(context=1 << 17))
    endless = CHAT | {"stream": True, "max_tokens": -1, "ignore_eos": True}
    async with (
        serving(engine, "-m", str(long), "-c", str(1 << 17), "-np", "1") as (process, url),
        aiohttp.ClientSession(url) as http,
        http.post("/v1/chat/completions", json=endless) as answer,
    ):
        assert (await answer.content.readline()).startswith(b"data: ")
        process.send_signal(number)
        async with asyncio.timeout(2):
            assert await process.wait() == 0


async def test_it_says_its_version_on_stderr(engine: Path) -> None:
    status, out, words = await run(engine, "--version")
    assert (status, out) == (0, "")
    assert words.startswith("version: ")
    assert "\nbuilt with " in words


async def test_it_lists_its_flags_and_devices(engine: Path) -> None:
    status, out, words = await run(engine, "--help")
    assert (status, words) == (0, "")
    assert all(name in out for flag in FLAGS for name in flag.names)
    assert (await run(engine, "--list-devices"))[1].startswith("Available devices:\n")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--nosuchflag"], "error: invalid argument: --nosuchflag\n"),
        (["-m"], 'error while handling argument "-m": expected value for argument\n'),
        (["-c", "many"], 'error while handling argument "-c": stoi\n'),
        (["-c", str(1 << 40)], 'error while handling argument "-c": stoi\n'),
        (["-fa"], 'error while handling argument "-fa": expected value for argument\n'),
        (["-fa", "yes"], "error while handling argument \"-fa\": unknown value: 'yes', must be one of on, off, auto\n"),
        (
            ["--api-key-file", "/none"],
            "error while handling argument \"--api-key-file\": failed to open file '/none'\n",
        ),
    ],
)
async def test_a_wrong_flag_ends_it_with_status_1_and_its_words(engine: Path, arguments: list[str], words: str) -> None:
    status, out, said = await run(engine, *arguments)
    assert (status, out) == (1, "")
    assert said.startswith(words)


def _nothing(_: Path) -> None:
    """The file is missing."""


def _text(path: Path) -> None:
    path.write_bytes(b"not a model at all")


def _cut(path: Path) -> None:
    path.write_bytes(tiny_gguf().read_bytes()[:2000])


@pytest.mark.parametrize(
    ("make", "words"),
    [(_nothing, "failed to open GGUF file"), (_text, "invalid magic characters"), (_cut, "failed to load model")],
)
async def test_weights_that_cannot_be_loaded_end_it_with_status_1(
    engine: Path, tmp_path: Path, make: Callable[[Path], None], words: str
) -> None:
    make(tmp_path / "it.gguf")
    status, out, said = await run(engine, "-m", str(tmp_path / "it.gguf"), "--port", str(free_port()))
    assert (status, out) == (1, "")
    assert words in said
    assert "exiting due to model loading error" in said


async def test_a_port_in_use_ends_it_with_status_1(engine: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as holder:
        port = holder.getsockname()[1]
        status, _, words = await run(engine, "-m", str(tiny_gguf()), "--port", str(port))
    assert status == 1
    assert f"couldn't bind HTTP server socket, hostname: 127.0.0.1, port: {port}" in words


@pytest.fixture
def hidden_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """For processes that are started now, xllamacpp is not installed."""
    (tmp_path / "sitecustomize.py").write_text("import sys; sys.modules['xllamacpp'] = None")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))


@pytest.mark.usefixtures("hidden_package")
async def test_without_the_package_it_ends_with_status_1_and_the_way_out(engine: Path) -> None:
    status, out, words = await run(engine, "--version")
    assert (status, out) == (1, "")
    assert words == "error: the engine is not installed: there is no package xllamacpp; pip install 'llmgw[demo]'\n"
