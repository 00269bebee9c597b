"""`llmgw mirror add` against a place where releases are published, and what nodes make of what it wrote."""

import asyncio
import hashlib
import json
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from aiohttp import web

from llmgw.cli.mirror import CannotMirror, main
from llmgw.core.engines import releases
from llmgw.core.errors import LlmgwError, Rejected
from tests.daemon.releases import Api, published

CPU, CUDA = "llama-b10991-bin-ubuntu-x64.tar.gz", "llama-b10991-bin-ubuntu-cuda-13.3-x64.tar.gz"
CONTENT = {CPU: b"the cpu build" * 9_000, CUDA: b"the gpu build" * 9_000}


@pytest.fixture
async def api() -> AsyncIterator[Api]:
    async with published() as api:
        digests = {name: f"sha256:{hashlib.sha256(content).hexdigest()}" for name, content in CONTENT.items()}
        assets = [api.asset(name, size=len(CONTENT[name]), digest=digests[name]) for name in CONTENT]
        api.release("b10991", *assets)
        for name, content in CONTENT.items():
            api.answers[f"/download/{name}"] = file(content)
        yield api


def file(content: bytes):
    async def answer(_: web.Request) -> web.Response:
        return web.Response(body=content)

    return answer


async def mirror(*words: str) -> tuple[int, str, str]:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "llmgw.cli.main", "mirror", *words), stdout=-1, stderr=-1
    )
    async with asyncio.timeout(30):
        out, err = await process.communicate()
    assert process.returncode is not None
    return process.returncode, out.decode(), err.decode()


async def test_it_holds_the_files_and_says_how_to_serve_them(api: Api, tmp_path: Path) -> None:
    status, out, err = await mirror("add", "llama.cpp", "b10991", "--to", str(tmp_path / "m"), "--source", api.source)
    assert status == 0, err
    place = tmp_path / "m" / "llama.cpp" / "b10991"
    assert {path.name for path in place.iterdir()} == {CPU, CUDA, "release.json"}
    assert all((place / name).read_bytes() == content for name, content in CONTENT.items())
    index = releases.read((place / "release.json").read_bytes())
    assert [file.name for file in index.files] == [CPU, CUDA]
    assert all(path.stat().st_mode & 0o777 == 0o644 for path in place.iterdir())
    assert f"mirror: {tmp_path / 'm'}" in out
    assert "version: b10991" in out


async def test_only_what_matches_is_taken_and_a_version_that_leads_on_is_there_under_both_names(
    api: Api, tmp_path: Path
) -> None:
    api.release("v0.4.1", api.asset("nightly-tag.txt"))
    api.says("/download/nightly-tag.txt", "b10991\n")
    words = ("add", "llama.cpp", "v0.4.1", "--to", str(tmp_path), "--source", api.source, "--match", "*-ubuntu-x64*")
    status, out, err = await mirror(*words, "--json")
    assert status == 0, err
    assert json.loads(out)["bytes"] == len(CONTENT[CPU])
    found = tmp_path / "llama.cpp"
    assert (found / "v0.4.1" / "release.json").read_bytes() == (found / "b10991" / "release.json").read_bytes()
    assert not (found / "b10991" / CUDA).exists()
    # Another pattern adds to what is there.
    words = ("add", "llama.cpp", "b10991", "--to", str(tmp_path), "--source", api.source, "--match", "*cuda*")
    assert await asyncio.to_thread(main, words) == 0
    index = releases.read((found / "b10991" / "release.json").read_bytes())
    assert [file.name for file in index.files] == [CPU, CUDA]


async def test_what_came_before_a_fault_is_not_fetched_again(api: Api, tmp_path: Path) -> None:
    words = ("add", "llama.cpp", "b10991", "--to", str(tmp_path), "--source", api.source)
    del api.answers[f"/download/{CUDA}"]
    status, _, err = await mirror(*words)
    assert status == 4
    assert err.splitlines()[-1].endswith("run it again to go on"), err
    assert not (tmp_path / "llama.cpp" / "b10991" / "release.json").exists()
    api.answers[f"/download/{CUDA}"] = file(CONTENT[CUDA])
    assert await asyncio.to_thread(main, words) == 0
    assert api.asked.count(f"/download/{CPU}") == 1


@pytest.mark.parametrize(
    ("words", "kind", "said"),
    [
        (("b1",), CannotMirror, "has no release b1"),
        (("latest",), CannotMirror, "is not a build (b10991) or a release (v0.4.1)"),
        (("b10991", "--match", "*windows*"), Rejected, "no file of llama.cpp b10991 matches *windows*; it has"),
        (("../x",), Rejected, "'../x' is not a name for a version"),
        (("b10991", "--variant", "cpu"), Rejected, "--variant is for Python engines; use --match"),
    ],
)
async def test_what_cannot_be_is_one_line(
    api: Api, tmp_path: Path, words: tuple[str, ...], kind: type[LlmgwError], said: str
) -> None:
    asked = ("add", "llama.cpp", *words, "--to", str(tmp_path / "m"), "--source", api.source)
    with pytest.raises(kind) as error:
        await asyncio.to_thread(main, asked)
    assert said in str(error.value) and "\n" not in str(error.value)
    assert not (tmp_path / "m").exists()


async def test_an_engine_that_is_not_known_is_a_status_of_its_own(tmp_path: Path) -> None:
    status, _, err = await mirror("add", "ollama", "1", "--to", str(tmp_path / "m"))
    assert (status, err.count("\n")) == (2, 1), err
    assert "engine 'ollama' is unknown; known: llama.cpp, vllm, sglang" in err
