"""What a release is made of, by the words of a real HTTP server: what it is asked for, and what is believed."""

import asyncio
import json
import logging
import threading
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from aiohttp import web

from llmgw.core.engines import releases
from llmgw.core.engines.orders import EngineWish, Pin, Release, ReleaseFile
from llmgw.core.engines.terms import EngineKind
from llmgw.core.inputs import Input, ReleaseFound, ReleaseNotFound
from llmgw.core.units import Bytes
from llmgw.daemon.releases import api as api_module
from llmgw.daemon.releases import mirror
from llmgw.daemon.releases import web as web_module
from llmgw.daemon.releases.api import release
from llmgw.daemon.releases.found import NoRelease, pinned
from llmgw.daemon.releases.resolver import Resolver
from llmgw.daemon.releases.served import Served
from llmgw.daemon.releases.web import NoAnswer, Web
from llmgw.host.pause import wanted_pause
from tests.daemon.releases import DIGEST, FILES, OTHER, Api, drip, published, wish

LIMIT = 0.3
"""Seconds for what would take for ever."""


@pytest.fixture
async def api(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Api]:
    for name in ("http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    async with published() as made:
        yield made


async def found(api: Api, version: str = "b11057", *, limit: float = 10.0) -> Release:
    async with Web(limit=limit) as web_:
        return await release(web_, wish(version=version, source=api.source))


async def refused(api: Api, version: str = "b11057", *, limit: float = 10.0) -> NoRelease:
    with pytest.raises(NoRelease) as caught:
        await found(api, version, limit=limit)
    assert len(str(caught.value).splitlines()) == 1
    return caught.value


# --- the API ----------------------------------------------------------------------------------------------------


async def test_a_build_is_its_archives_for_linux_and_costs_one_request(api: Api) -> None:
    api.release("b11057")
    release = await found(api)
    assert (release.engine, release.version, release.kind) == ("llama.cpp", "b11057", EngineKind.ARCHIVE)
    assert [file.name for file in release.files] == [name.format("b11057") for name in FILES]
    first = release.files[0]
    assert (first.size, first.digest) == (16876121, DIGEST)
    assert first.url == f"{api.base}/download/{first.name}"
    assert api.asked == [api.tag("b11057")]


async def test_a_release_points_on_to_a_build_and_the_newest_is_never_asked_for(api: Api) -> None:
    api.release("v0.4.1", api.asset("nightly-tag.txt", size=7), prerelease=False)
    api.release("b10485")
    api.says("/download/nightly-tag.txt", "b10485\n")
    assert (await found(api, "v0.4.1")).version == "b10485"
    assert api.asked == [api.tag("v0.4.1"), "/download/nightly-tag.txt", api.tag("b10485")]


@pytest.mark.parametrize("content", ["", "latest", "v0.5.0", "b10485\nb2", "b1/../../x", "ｂ１", "b" + "1" * 10])
async def test_what_points_anywhere_but_to_a_build_is_refused(api: Api, content: str) -> None:
    api.release("v0.4.1", api.asset("nightly-tag.txt"))
    api.says("/download/nightly-tag.txt", content)
    assert "which is no build; name the build in server.yaml" in str(await refused(api, "v0.4.1"))
    assert len(api.asked) == 2


async def test_a_pointer_that_is_too_long_or_not_there_is_refused(api: Api) -> None:
    api.release("v0.4.1", api.asset("nightly-tag.txt"))
    api.says("/download/nightly-tag.txt", "b10485" + " " * 2_000)
    assert "nightly-tag.txt is larger than 1 KiB" in str(await refused(api, "v0.4.1"))
    api.release("v0.4.1", api.asset("README.txt"))
    assert "has no nightly-tag.txt that says which build it is" in str(await refused(api, "v0.4.1"))


@pytest.mark.parametrize("version", ["latest", "master", "1.2.3", "b", "v1.2", "b10991-rc1", "../b10991"])
async def test_no_other_version_is_asked_for(api: Api, version: str) -> None:
    assert "is not a build (b10991) or a release (v0.4.1), and no mirror has it" in str(await refused(api, version))
    assert api.asked == []


async def test_a_tag_that_is_not_there_is_told_with_its_source(api: Api) -> None:
    assert (
        str(await refused(api, "b99999"))
        == f"{api.source} has no release b99999; correct version: or source: in server.yaml"
    )


@pytest.mark.parametrize("status", [403, 429])
async def test_a_source_that_wants_a_pause_is_believed(api: Api, status: int) -> None:
    reset = {"X-RateLimit-Remaining": "0", "X-RateLimit-Reset": str(int(time.time()) + 1800)}
    api.says(api.tag("b11057"), '{"message": "API rate limit exceeded"}', status=status, headers=reset)
    error = await refused(api)
    assert error.seconds == pytest.approx(1800, abs=5)
    assert "takes no more requests from this address for" in str(error)
    api.says(api.tag("b11057"), "", status=status, headers={"Retry-After": "60"} | reset)
    assert (await refused(api)).seconds == 60


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, None),
        ({"Retry-After": "120"}, 120),
        ({"Retry-After": "0"}, 1),
        ({"Retry-After": "9" * 12}, 86_400),
        ({"Retry-After": "9" * 500}, None),
        ({"Retry-After": "-5"}, None),
        ({"Retry-After": "soon"}, None),
        ({"Retry-After": "Tue, 01 Dec 2026 00:01:40 GMT"}, 100),
        ({"Retry-After": "Tue, 01 Dec 1026 00:00:00 GMT"}, 1),
        ({"X-RateLimit-Reset": "1796083300"}, None),
        ({"X-RateLimit-Reset": "1796083300", "X-RateLimit-Remaining": "0"}, 100),
        ({"X-RateLimit-Reset": "never", "X-RateLimit-Remaining": "0"}, None),
    ],
)
def test_how_long_a_source_wants_to_be_left_alone(headers: dict[str, str], seconds: float | None) -> None:
    assert wanted_pause(headers, 1796083200.0) == seconds


@pytest.mark.parametrize("status", [403, 410, 500, 503, 204])
async def test_any_other_answer_is_told_with_its_status(api: Api, status: int) -> None:
    api.says(api.tag("b11057"), "", status=status)
    error = await refused(api)
    assert str(error).endswith(f"was answered with status {status}")
    assert error.seconds is None


@pytest.mark.parametrize(
    "body",
    [
        b"<html>Sign in</html>",
        b"",
        b"\xff\xfe",
        b"[" * 200_000,
        b'{"tag_name": "b11057", "assets": ' + b"9" * 5_000 + b"}",
        b"null",
        b'{"tag_name": "b1", "assets": []}',
        b'{"tag_name": "b11057"}',
        b'{"tag_name": "b11057", "assets": {}}',
        b'{"tag_name": "b11057", "assets": [1]}',
        b'{"tag_name": "b11057", "draft": true, "assets": []}',
        json.dumps({"tag_name": "b11057", "assets": [{}] * 1_001}).encode(),
    ],
    ids=range(12),
)
async def test_an_answer_that_describes_no_release_is_refused(api: Api, body: bytes) -> None:
    api.says(api.tag("b11057"), body)
    words = str(await refused(api))
    assert "is not JSON" in words or "does not describe release b11057" in words or "has no list of at most" in words


X64 = "llama-b11057-bin-ubuntu-x64.tar.gz"


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"size": "big"}, "its size is said to be 'big'"),
        ({"size": True}, "its size is said to be True"),
        ({"size": 0}, "size: 0 is not between"),
        ({"size": -1}, "size: -1 is not between"),
        ({"size": 1 << 63}, "size: 9223372036854775808 is not between"),
        ({"browser_download_url": None}, "its address is said to be None"),
        ({"browser_download_url": "file:///etc/passwd"}, "its address is said to be 'file:///etc/passwd'"),
        ({"browser_download_url": "https://user:secret@host/x"}, "which is not where a file of"),
        ({"state": "starter"}, f"{X64} is still being uploaded"),
        ({"state": None}, f"{X64} is still being uploaded"),
    ],
)
async def test_a_file_that_cannot_be_is_refused(api: Api, fields: dict[str, object], words: str) -> None:
    api.release("b11057", api.asset(X64, **fields), api.asset("llama-b11057-bin-ubuntu-arm64.tar.gz"))
    assert words in str(await refused(api))


async def test_files_that_are_no_archives_for_linux_may_be_as_they_like(api: Api) -> None:
    odd = [{}, {"name": 7}, {"name": "x", "size": None}, api.asset("llama-b11057-bin-win-cpu-x64.zip", state="starter")]
    api.release("b11057", *odd, api.asset(X64))
    assert [file.name for file in (await found(api)).files] == [X64]


async def test_the_same_file_twice_is_refused(api: Api) -> None:
    api.release("b11057", api.asset(X64), api.asset(X64))
    assert f"{X64} is there twice" in str(await refused(api))


async def test_a_release_without_archives_or_just_published_is_asked_for_again(api: Api) -> None:
    api.release("b11057", api.asset("llama-b11057-bin-macos-arm64.tar.gz"))
    assert "has no archive for Linux yet" in str(await refused(api))
    api.release("b11057", published_at=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() - 60)))
    error = await refused(api)
    assert "was published 1m00s ago, and files may still be missing" in str(error)
    assert error.seconds == pytest.approx(540, abs=5)
    for never in (None, "yesterday", "9999-99-99T00:00:00Z", 7):
        api.release("b11057", published_at=never)
        assert (await found(api)).version == "b11057"


@pytest.mark.parametrize("digest", [None, "", "md5:abc", "sha512:" + "a" * 128, 7, "sha256:" + "g" * 64])
async def test_a_digest_that_cannot_be_checked_is_none(api: Api, digest: object) -> None:
    api.release("b11057", api.asset(X64, digest=digest))
    assert (await found(api)).files[0].digest == ""
    api.release("b11057", api.asset(X64, digest=DIGEST.upper().replace("SHA", "sha")))
    assert (await found(api)).files[0].digest == DIGEST


# --- HTTP -------------------------------------------------------------------------------------------------------


async def test_it_is_followed_to_another_address_but_not_for_ever(api: Api) -> None:
    api.release("b11057")
    api.answers["/moved"] = api.answers.pop(api.tag("b11057"))
    api.says(api.tag("b11057"), "", status=301, headers={"Location": "/moved"})
    assert (await found(api)).version == "b11057"
    api.says(api.tag("b11057"), "", status=302, headers={"Location": api.tag("b11057")})
    assert "leads on more than 5 times" in str(await refused(api))
    assert len(api.asked) == 2 + 6


@pytest.mark.parametrize("location", ["", "file:///etc/passwd", "ftp://host/x", "http://u:p@host/", "http://[::1"])
async def test_it_is_not_followed_anywhere(api: Api, location: str) -> None:
    api.says(api.tag("b11057"), "", status=302, headers={"Location": location})
    assert "which is no address to ask" in str(await refused(api))


def test_a_secure_source_never_leads_to_one_that_is_not() -> None:
    with pytest.raises(NoAnswer, match="which is not https; it is not followed"):
        web_module._target("https://api.example/x", "http://api.example/x")
    assert web_module._target("https://api.example/x", "https://other.example/y#z") == "https://other.example/y"
    assert web_module._target("http://api.example/a/b", "c") == "http://api.example/a/c"


async def test_a_huge_answer_is_read_no_further_than_its_bound(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api_module, "MOST_JSON", 100_000)
    sent = 0

    async def endless(request: web.Request) -> web.StreamResponse:
        nonlocal sent
        response = web.StreamResponse()
        await response.prepare(request)
        while sent < 1 << 30:
            await response.write(b" " * 65536)
            sent += 65536
        return response

    api.answers[api.tag("b11057")] = endless
    assert "is larger than 97.7 KiB" in str(await refused(api))
    assert sent < 64 << 20


async def test_a_compressed_answer_is_not_unpacked(api: Api) -> None:
    api.says(api.tag("b11057"), b"\x1f\x8b" + b"\0" * 100, headers={"Content-Encoding": "gzip"})
    assert "is answered compressed, which was not asked for" in str(await refused(api))


async def test_a_source_that_does_not_end_its_answer_is_left(api: Api) -> None:
    api.answers[api.tag("b11057")] = drip
    began = time.monotonic()
    assert "did not answer within 0.3 s" in str(await refused(api, limit=LIMIT))
    assert time.monotonic() - began < 3


async def test_a_source_that_is_not_there_is_told_in_the_systems_words(api: Api) -> None:
    nobody = wish(source="http://127.0.0.1:1/repos/x")
    async with Web() as web_:
        with pytest.raises(
            NoRelease, match=r"http://127.0.0.1:1/.* was not reached: connection refused; .*`llmgw mirror add`"
        ):
            await release(web_, nobody)


async def test_no_cookie_is_kept_and_no_secret_is_sent(api: Api) -> None:
    seen = []

    async def answer(request: web.Request) -> web.Response:
        seen.append(request.headers)
        return web.Response(text="{}", headers={"Set-Cookie": "a=b"})

    api.answers[api.tag("b11057")] = answer
    async with Web() as web_:
        for _ in range(2):
            await web_.read(f"{api.base}{api.tag('b11057')}", 100)
    assert [name for headers in seen for name in headers if name in ("Cookie", "Authorization")] == []
    assert seen[0]["User-Agent"].startswith("llmgw/")


async def test_the_proxy_of_the_environment_is_asked(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    api.release("b11057")
    monkeypatch.setenv("http_proxy", api.base)
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.delenv("NO_PROXY", raising=False)
    async with Web() as web_:
        found = await release(web_, wish(source="http://releases.invalid/repos/ggml-org/llama.cpp"))
    assert found.version == "b11057"


@pytest.mark.parametrize("proxy", ["socks5://127.0.0.1:1", "http://[", "http://127.0.0.1:99999", "nonsense"])
async def test_a_proxy_that_cannot_be_one_is_an_answer_too(
    api: Api, proxy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("http_proxy", proxy)
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.delenv("NO_PROXY", raising=False)
    async with Web() as web_:
        with pytest.raises(NoRelease, match=r"releases\.invalid") as caught:
            await release(web_, wish(source="http://releases.invalid/repos/x"))
    assert len(str(caught.value).splitlines()) == 1


# --- pins -------------------------------------------------------------------------------------------------------


def a_release(digest: str = DIGEST, **fields: object) -> Release:
    file = ReleaseFile(name=X64, size=Bytes(7), digest=digest, url="https://host/x")
    whole: dict[str, object] = {
        "engine": "llama.cpp",
        "version": "b11057",
        "kind": EngineKind.ARCHIVE,
        "files": (file,),
    }
    return Release(**whole | fields)  # type: ignore[arg-type]


def test_a_pin_stands_in_for_a_digest_that_is_not_there() -> None:
    pin = Pin(name=X64, digest=OTHER)
    assert pinned(a_release(""), [pin]).files[0].digest == OTHER
    assert pinned(a_release(OTHER), [pin]) == a_release(OTHER)
    assert pinned(a_release(), []) == a_release()


def test_a_pin_that_the_source_contradicts_is_refused_with_both() -> None:
    with pytest.raises(NoRelease) as caught:
        pinned(a_release(), [Pin(name=X64, digest=OTHER)])
    assert f"server.yaml pins {OTHER}, its source says {DIGEST}" in str(caught.value)


def test_a_pin_of_no_file_is_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    pinned(a_release(), [Pin(name="llama.tar.gz", digest=OTHER)])
    assert "llama.cpp b11057 has no file llama.tar.gz, which server.yaml pins" in caplog.text


# --- mirrors, and the one who asks them all ---------------------------------------------------------------------


def put(directory: Path, release: Release, name: str = "") -> Path:
    """Write a release's index into a mirror."""
    place = directory / release.engine / release.version
    place.mkdir(parents=True, exist_ok=True)
    index = place / (name or (f"release-{release.variant}.json" if release.variant else "release.json"))
    index.write_text(releases.written(release))
    return index


def python(variant: str, **fields: object) -> Release:
    file = ReleaseFile(name=f"vllm-{variant}.whl", size=Bytes(7), digest=DIGEST, package="vllm")
    return a_release(
        engine="vllm", version="0.33.0", kind=EngineKind.PYTHON, variant=variant, python="3.12", files=(file,), **fields
    )


async def answers(own: Path | None, *wishes: EngineWish, count: int = 1) -> list[Input]:
    """What is noted for these wishes."""
    noted: asyncio.Queue[Input] = asyncio.Queue()
    resolver = Resolver(own)
    for one in wishes:
        resolver.resolve(one)
    running = asyncio.ensure_future(resolver.run(noted.put_nowait))
    try:
        async with asyncio.timeout(10):
            return [await noted.get() for _ in range(count)]
    finally:
        running.cancel()
        await asyncio.wait([running])


async def problem(own: Path | None, asked: EngineWish) -> str:
    (answer,) = await answers(own, asked)
    assert isinstance(answer, ReleaseNotFound) and answer.wish == asked
    assert len(answer.problem.splitlines()) == 1
    return answer.problem


async def test_what_the_own_mirror_has_is_asked_of_nobody(api: Api, tmp_path: Path) -> None:
    put(tmp_path, a_release())
    asked = wish(source=api.source, mirror=f"{api.base}/mirror")
    assert await answers(tmp_path, asked) == [ReleaseFound(wish=asked, release=a_release())]
    assert api.asked == []


async def test_a_mirror_is_asked_before_the_source_and_the_source_for_what_it_lacks(api: Api, tmp_path: Path) -> None:
    api.says("/mirror/llama.cpp/b11057/release.json", releases.written(a_release()))
    api.release("b11058")
    first = wish(source=api.source, mirror=f"{api.base}/mirror")
    assert await answers(tmp_path, first) == [ReleaseFound(wish=first, release=a_release())]
    (answer,) = await answers(tmp_path, wish(version="b11058", source=api.source, mirror=f"{api.base}/mirror"))
    assert isinstance(answer, ReleaseFound) and answer.release.version == "b11058"
    assert api.asked[1:] == ["/mirror/llama.cpp/b11058/release.json", api.tag("b11058")]


async def test_a_mirror_that_fails_is_not_passed_over(api: Api) -> None:
    """Whoever has one may have it because nobody else is to be asked."""
    api.release("b11057")
    api.says("/mirror/llama.cpp/b11057/release.json", "", status=503, headers={"Retry-After": "30"})
    (answer,) = await answers(None, wish(source=api.source, mirror=f"{api.base}/mirror"))
    assert isinstance(answer, ReleaseNotFound) and answer.seconds == 30
    assert "mirror of llama.cpp b11057: " in answer.problem and "status 503" in answer.problem
    assert api.tag("b11057") not in api.asked


async def test_a_mirror_may_lead_a_release_on_to_a_build(tmp_path: Path) -> None:
    index = put(tmp_path, a_release())
    index.parent.rename(tmp_path / "llama.cpp" / "v0.5.0")
    asked = wish(version="v0.5.0")
    assert await answers(tmp_path, asked) == [ReleaseFound(wish=asked, release=a_release())]


async def test_of_a_python_engine_each_variant_is_found_and_the_network_is_not_asked(api: Api, tmp_path: Path) -> None:
    put(tmp_path, python("cpu"))
    put(tmp_path, python("cuda"))
    asked = wish("vllm", "0.33.0", source=api.source)
    found = await answers(tmp_path, asked, count=2)
    assert [one.release.variant for one in found if isinstance(one, ReleaseFound)] == ["cpu", "cuda"]
    (only,) = await answers(tmp_path, wish("vllm", "0.33.0", variant="cuda"))
    assert isinstance(only, ReleaseFound) and only.release == python("cuda")
    words = await problem(tmp_path, wish("vllm", "0.34.0", source=api.source))
    assert "no mirror has vllm 0.34.0, and it is not locked" in words
    assert "llmgw ctl engine lock vllm==0.34.0" in words
    assert api.asked == []


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "is not JSON"),
        (b"[]", "the whole: is not an object"),
        (releases.written(a_release("md5:x")).encode(), "files: 0: digest: 'md5:x' is not a name for a digest"),
        (releases.written(a_release(version="b1")).encode(), "describes llama.cpp b1, not llama.cpp b11057"),
        (releases.written(a_release(variant="cuda")).encode(), "describes llama.cpp b11057 cuda, not llama.cpp b11057"),
        (releases.written(python("cpu")).encode(), "describes vllm 0.33.0 cpu, not llama.cpp b11057"),
        (b" " * (2 << 20) + b"{}", "must be at most 2 MiB large"),
    ],
    ids=range(7),
)
async def test_an_index_that_is_wrong_is_named(tmp_path: Path, content: bytes, words: str) -> None:
    index = put(tmp_path, a_release())
    index.write_bytes(content)
    said = await problem(tmp_path, wish())
    assert str(index) in said and words in said


async def test_a_directory_that_does_not_answer_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers_again = threading.Event()
    monkeypatch.setattr(mirror.files, "read", lambda path, most: answers_again.wait() and (b"", 0))
    monkeypatch.setattr(mirror, "LIMIT", LIMIT)
    try:
        words = await problem(tmp_path, wish())
    finally:
        answers_again.set()
    assert words.endswith("release.json did not answer within 0.3s; is its share there?")


async def test_a_pin_wins_over_a_mirror_without_a_digest_and_contradicts_another(tmp_path: Path) -> None:
    put(tmp_path, a_release(""))
    (answer,) = await answers(tmp_path, wish("llama.cpp", "b11057", Pin(name=X64, digest=OTHER)))
    assert isinstance(answer, ReleaseFound) and answer.release.files[0].digest == OTHER
    put(tmp_path, a_release())
    words = await problem(tmp_path, wish("llama.cpp", "b11057", Pin(name=X64, digest=OTHER)))
    assert DIGEST in words and OTHER in words


async def test_one_engine_does_not_wait_for_another_and_is_asked_for_once_at_a_time(api: Api, tmp_path: Path) -> None:
    put(tmp_path, python("cpu"))
    api.answers[api.tag("b11057")] = drip
    slow, quick = wish(source=api.source), wish("vllm", "0.33.0", variant="cpu")
    noted: asyncio.Queue[Input] = asyncio.Queue()
    resolver = Resolver(tmp_path)
    running = asyncio.ensure_future(resolver.run(noted.put_nowait))
    resolver.resolve(slow)
    resolver.resolve(quick)
    async with asyncio.timeout(10):
        assert await noted.get() == ReleaseFound(wish=quick, release=python("cpu"))
        await api.heard.wait()
        resolver.resolve(slow)
        resolver.resolve(quick)
        assert await noted.get() == ReleaseFound(wish=quick, release=python("cpu"))
    assert api.asked == [api.tag("b11057")]
    running.cancel()
    await asyncio.wait([running])


async def test_plain_http_of_another_host_is_said_in_the_log(
    api: Api, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    api.release("b11057")
    await answers(None, wish(source=api.source))
    assert not caplog.records, "whoever reads loopback has the machine"
    monkeypatch.setenv("http_proxy", api.base)
    await answers(None, wish(source="http://releases.invalid/repos/ggml-org/llama.cpp"))
    assert "source: http://releases.invalid/repos/ggml-org/llama.cpp is read in plain HTTP; pin" in caplog.text


async def test_a_fault_of_ours_is_an_answer_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(releases, "read", lambda _: 1 / 0)
    put(tmp_path, a_release())
    assert "could not be looked for: ZeroDivisionError; the log of llmgwd says where" in await problem(tmp_path, wish())
    assert [record.levelno for record in caplog.records] == [logging.ERROR]


# --- what is served ---------------------------------------------------------------------------------------------


def test_only_files_that_an_index_names_are_served(tmp_path: Path) -> None:
    mirror = tmp_path / "mirror"
    index = put(mirror, a_release())
    served = Served(mirror)
    assert served.find(DIGEST) is None, "it is named and not there"
    (index.parent / X64).write_bytes(b"archive")
    (index.parent / "other.tar.gz").write_bytes(b"archive")
    served = Served(mirror)
    assert served.find(DIGEST) == index.parent / X64
    assert served.find(OTHER) is None
    (index.parent / X64).unlink()
    assert served.find(DIGEST) is None


def test_a_link_is_followed_within_the_mirror_and_not_out_of_it(tmp_path: Path) -> None:
    mirror, secret = tmp_path / "mirror", tmp_path / "secret"
    secret.write_bytes(b"secret")
    index = put(mirror, a_release())
    (index.parent / X64).symlink_to(secret)
    assert Served(mirror).find(DIGEST) is None
    (index.parent / X64).unlink()
    (mirror / "store").write_bytes(b"archive")
    (index.parent / X64).symlink_to("../../store")
    assert Served(mirror).find(DIGEST) == mirror / "store"
    (index.parent / X64).unlink()
    (index.parent / X64).symlink_to(X64)
    assert Served(mirror).find(DIGEST) is None


def test_a_digest_that_is_not_known_does_not_make_it_look_each_time_and_what_is_added_is_found_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = []
    real = releases.read
    monkeypatch.setattr(releases, "read", lambda text: looks.append(1) or real(text))
    index = put(tmp_path, a_release())
    (index.parent / X64).write_bytes(b"archive")
    served = Served(tmp_path)
    for _ in range(50):
        assert served.find(OTHER) is None
    assert len(looks) == 1
    put(tmp_path, a_release(OTHER, version="b11058"))
    (tmp_path / "llama.cpp" / "b11058" / X64).write_bytes(b"archive")
    assert served.find(OTHER) is not None


def test_a_mirror_with_bad_indexes_serves_the_others(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    index = put(tmp_path, a_release())
    (index.parent / X64).write_bytes(b"archive")
    for name, content in (("release-a.json", b"{"), ("release-b.json", b"[]"), ("release-c.json", b" " * (3 << 20))):
        (index.parent / name).write_bytes(content)
    (index.parent / "release-d.json").mkdir()
    assert Served(tmp_path).find(DIGEST) == index.parent / X64
    assert caplog.text.count("is left out") == 4
    assert Served(tmp_path / "none").find(DIGEST) is None
