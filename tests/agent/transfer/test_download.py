"""Files over real HTTP: what came is kept and right, whatever the server does."""

import asyncio
import errno
import hashlib
import os
import random
import ssl
import sys
import time
from collections.abc import Callable
from email.utils import formatdate
from pathlib import Path

import pytest
from yarl import URL

from llmgw.agent.transfer import download as module
from llmgw.agent.transfer.download import CannotDownload, Limit, Moved, NoRoom, Patience, download
from llmgw.agent.transfer.http import MirrorSource, UrlSource, _redirected
from llmgw.agent.transfer.part import opened
from llmgw.agent.transfer.trouble import SourceFailed
from llmgw.core.engines.orders import ReleaseFile
from llmgw.core.identity import Role
from llmgw.core.units import Bytes

from .upstream import Asked, Upstream, cut_to, head, in_turn, says, whole, without_ranges

CONTENT = random.Random(4).randbytes(3_000_000)
OTHER = random.Random(5).randbytes(3_000_000)
QUICK = Patience(connect=2.0, idle=5.0, pause=0.001)
HEX = hashlib.sha256(CONTENT).hexdigest()


def file(**changes: object) -> ReleaseFile:
    given = {"name": "it.tar.gz", "size": Bytes(len(CONTENT)), "digest": f"sha256:{HEX}"} | changes
    return ReleaseFile(**given)  # type: ignore[arg-type]


class Rig:
    """One state directory."""

    def __init__(self, place: Path) -> None:
        self.target = place / "downloads" / HEX
        self.part = self.target.with_name(f"{HEX}.part")
        self.told = list[Moved]()
        self.verified = 0

    def verifying(self) -> None:
        self.verified += 1

    async def get(self, *urls: str, patience: Patience = QUICK, wanted: ReleaseFile | None = None, **more: object):
        async with asyncio.timeout(20):
            await download(
                wanted or file(),
                [UrlSource(url) for url in urls],
                self.target,
                tell=self.told.append,
                verifying=self.verifying,
                patience=patience,
                **more,
            )

    async def fails(self, words: str, *urls: str, **more: object) -> CannotDownload:
        with pytest.raises(CannotDownload, match=words) as raised:
            await self.get(*urls, **more)
        text = str(raised.value)
        assert "\n" not in text and text.startswith("it.tar.gz: ")
        assert not self.target.exists()
        return raised.value

    async def has(self, size: int) -> None:
        """Wait until so much is there; the disk tells nobody."""
        while not self.part.exists() or self.part.stat().st_size < size:  # noqa: ASYNC110
            await asyncio.sleep(0.005)

    def is_whole(self) -> None:
        assert self.target.read_bytes() == CONTENT
        assert [path.name for path in self.target.parent.iterdir()] == [HEX]


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    return Rig(tmp_path)


@pytest.fixture
async def up():
    async with Upstream(CONTENT, whole) as upstream:
        yield upstream


@pytest.fixture
async def second():
    async with Upstream(CONTENT, whole) as upstream:
        yield upstream


# --- the good way ------------------------------------------------------------------------------------------------


async def test_what_came_last_is_told_though_nothing_more_comes(
    rig: Rig, up: Upstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The pace is slower than the first half, which comes at once."""
    monkeypatch.setattr(module, "EVERY", 0.02)
    monkeypatch.setattr("llmgw.agent.transfer.pace.EVERY", 0.02)
    told, half = asyncio.Event(), len(CONTENT) // 2

    async def stalls(up: Upstream, asked: Asked, writer: asyncio.StreamWriter) -> None:
        head(writer, 200, f"Content-Length: {len(CONTENT)}")
        await up.body(writer, CONTENT[:half])
        await told.wait()
        await up.body(writer, CONTENT[half:])

    up.answer = stalls
    rig.told = _Told(lambda moved: moved.done == half and told.set())
    await rig.get(up.url())
    assert rig.told[-1].done == len(CONTENT)


class _Told(list[Moved]):
    def __init__(self, heard: Callable[[Moved], object]) -> None:
        super().__init__()
        self._heard = heard

    def append(self, moved: Moved) -> None:
        super().append(moved)
        self._heard(moved)


async def test_a_file_comes_whole_and_is_private_and_told_of(rig, up):
    await rig.get(up.url())
    rig.is_whole()
    assert rig.target.stat().st_mode & 0o777 == 0o600
    assert rig.target.parent.stat().st_mode & 0o777 == 0o700
    assert rig.told[-1].done == rig.told[-1].total == len(CONTENT)
    assert rig.verified == 1 and len(up.asked) == 1
    assert up.asked[0].head["accept-encoding"] == "identity"


async def test_what_is_there_is_not_asked_for_again_and_what_is_wrong_there_is_replaced(rig, up):
    await rig.get(up.url())
    await rig.get(up.url())
    assert len(up.asked) == 1
    rig.target.write_bytes(OTHER)
    await rig.get(up.url())
    rig.is_whole()
    assert len(up.asked) == 2


async def test_two_who_want_the_same_file_get_it_once(rig, up):
    await asyncio.gather(rig.get(up.url()), rig.get(up.url()))
    rig.is_whole()
    assert len(up.asked) == 1


async def test_the_second_goes_on_when_the_first_is_cancelled(rig, up):
    half = asyncio.Event()

    async def stops(upstream, asked, writer):
        await cut_to(2_000_000)(upstream, asked, writer)
        half.set()
        await asyncio.Event().wait()

    up.answer = in_turn(stops, whole)
    first = asyncio.create_task(rig.get(up.url()))
    second = asyncio.create_task(rig.get(up.url()))
    async with asyncio.timeout(5):
        await half.wait()
        await rig.has(1 << 20)
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    await second
    rig.is_whole()
    assert up.asked[1].offset >= 1 << 20


async def test_an_empty_file_needs_nobody(tmp_path):
    nothing = hashlib.sha256(b"").hexdigest()
    given = file(size=Bytes(0), digest=f"sha256:{nothing}")
    await download(given, [], tmp_path / "it", tell=lambda _: None, verifying=lambda: None)
    assert (tmp_path / "it").read_bytes() == b""


# --- broken off --------------------------------------------------------------------------------------------------


async def test_a_connection_cut_at_every_tenth_goes_on_from_there_and_nothing_comes_twice(rig, up):
    tenth = len(CONTENT) // 10
    up.answer = in_turn(*(cut_to(tenth * step) for step in range(1, 10)), whole)
    await rig.get(up.url())
    rig.is_whole()
    assert [one.offset for one in up.asked] == [tenth * step for step in range(10)]
    assert up.sent == len(CONTENT)
    assert all(one.head["if-range"] == '"one"' for one in up.asked[1:])


@pytest.mark.parametrize("tenth", range(1, 10))
async def test_a_try_that_failed_at_any_tenth_is_taken_up_by_the_next_one(rig, up, tenth):
    at = len(CONTENT) // 10 * tenth
    up.answer = cut_to(at)
    await rig.fails(r"broke off: the connection was closed, 4 times in a row", up.url())
    assert rig.part.stat().st_size == at
    up.answer = whole
    await rig.get(up.url())
    rig.is_whole()
    assert up.sent == len(CONTENT)


async def test_the_next_source_goes_on_where_the_first_ended(rig, up, second):
    up.answer = cut_to(1_234_567)
    await rig.get(up.url(), second.url())
    rig.is_whole()
    assert [one.offset for one in second.asked] == [1_234_567]
    assert up.sent + second.sent == len(CONTENT)


async def test_a_server_that_closes_without_an_answer_is_asked_again(rig, up):
    async def nothing(upstream, asked, writer):
        pass

    up.answer = in_turn(nothing, nothing, whole)
    await rig.get(up.url())
    rig.is_whole()


async def test_a_body_that_ends_in_order_but_early_is_not_taken_for_whole(rig, up):
    async def short(upstream, asked, writer):
        head(writer, 200)
        await upstream.body(writer, CONTENT[:1000])

    up.answer = short
    await rig.fails(r"ended after 1000 of 3000000 bytes, 4 times in a row", up.url())


# --- ranges ------------------------------------------------------------------------------------------------------


def wrong_range(text: str):
    async def answer(upstream, asked, writer):
        if "range" not in asked.head:
            await whole(upstream, asked, writer)
            return
        head(writer, 206, f"Content-Range: {text}", "Content-Length: 10")
        await upstream.body(writer, OTHER[:10])

    return answer


RANGES = {
    "none at all": without_ranges,
    "another beginning": wrong_range("bytes 5-2999999/3000000"),
    "no range": wrong_range("rubbish"),
    "416": in_turn(says(416), whole),
}


@pytest.mark.parametrize("answer", RANGES.values(), ids=RANGES)
async def test_a_server_without_the_range_is_read_from_the_beginning(rig, up, answer):
    rig.part.parent.mkdir(parents=True)
    rig.part.write_bytes(CONTENT[:1_000_000])
    up.answer = answer
    await rig.get(up.url())
    rig.is_whole()
    assert up.asked[0].offset == 1_000_000


async def test_of_a_range_the_size_of_the_file_is_looked_at(rig, up):
    rig.part.parent.mkdir(parents=True)
    rig.part.write_bytes(CONTENT[:1_000_000])
    up.answer = wrong_range("bytes 1000000-1000009/1000010")
    await rig.fails("the file has 1000010 bytes there, not 3000000", up.url())
    assert rig.part.stat().st_size == 1_000_000


# --- redirects ---------------------------------------------------------------------------------------------------


async def test_redirects_are_followed_to_another_host_which_learns_no_password(rig, up, second):
    up.answer = in_turn(says(302, "Location: /next"), says(307, f"Location: {second.url('/a%2Fb?sig=%3D')}"))
    await rig.get(up.url().replace("127.", "user:secret@127."))
    rig.is_whole()
    assert [one.path for one in up.asked] == ["/file", "/next"]
    assert all("authorization" in one.head for one in up.asked)
    assert second.asked[0].path == "/a%2Fb?sig=%3D"
    assert "authorization" not in second.asked[0].head


REDIRECTS = {
    "/file": "it redirects more than 5 times",
    "": "it redirects to what is no address of HTTP",
    "ftp://127.0.0.1/file": "it redirects to what is no address of HTTP",
    "http://[": "it redirects to what is no address",
}


@pytest.mark.parametrize("location", REDIRECTS)
async def test_a_redirect_that_leads_nowhere_is_refused(rig, up, location):
    up.answer = says(302, f"Location: {location}")
    await rig.fails(REDIRECTS[location], up.url())
    assert len(up.asked) == (6 if location == "/file" else 1)


async def test_from_https_nothing_leads_down_to_http():
    with pytest.raises(SourceFailed, match=r"it redirects from https down to http://b/c$"):
        _redirected(URL("https://a/file"), "http://user:secret@b/c?token=1")
    assert str(_redirected(URL("http://a/file"), "https://b/c")) == "https://b/c"


# --- what is refused ---------------------------------------------------------------------------------------------

STATUSES = {
    "404": (says(404), "it answers 404 Said$", None),
    "403 with nothing": (says(403), "it answers 403 Said$", None),
    "403 for another reason": (says(403, "X-RateLimit-Remaining: 7", "X-RateLimit-Reset: 9999999999"), "403", None),
    "429 and seconds": (says(429, "Retry-After: 17"), "it answers 429 Said$", 17.0),
    "503 and too many seconds": (says(503, "Retry-After: 99999999"), "it answers 503 Said$", 86400.0),
    "503 and rubbish": (says(503, "Retry-After: soon"), "it answers 503 Said$", None),
    "206 unasked": (says(206, "Content-Range: bytes 0-9/3000000"), "it answers 206 Said$", None),
}


@pytest.mark.parametrize("case", STATUSES)
async def test_a_server_that_refuses_says_for_how_long(rig, up, case):
    up.answer, words, wait = STATUSES[case]
    assert (await rig.fails(words, up.url())).retry_after == wait


async def test_a_server_may_say_the_time_until_which_it_refuses(rig, up):
    up.answer = says(403, "X-RateLimit-Remaining: 0", f"X-RateLimit-Reset: {time.time() + 100:.0f}")
    assert 90 < (await rig.fails("403", up.url())).retry_after <= 101
    up.answer = says(503, f"Retry-After: {formatdate(time.time() + 50, usegmt=True)}")
    assert 40 < (await rig.fails("503", up.url())).retry_after <= 51


async def test_all_that_failed_is_said_without_secrets_and_the_soonest_wait_counts(rig, up, second):
    up.answer, second.answer = says(429, "Retry-After: 30"), says(429, "Retry-After: 20")
    given = [up.url("/a?token=secret").replace("127.", "user:secret@127."), second.url("/b"), "http://127.0.0.1:9/c"]
    error = await rig.fails("429", *given)
    assert error.retry_after == 20.0
    assert str(error) == (
        f"it.tar.gz: {up.url('/a')}: it answers 429 Said; {second.url('/b')}: it answers 429 Said; "
        "http://127.0.0.1:9/c: connection refused"
    )


@pytest.mark.parametrize("url", ["", "nothing", "ftp://a/b", "file:///etc/passwd", "http://"])
async def test_what_is_no_address_of_http_is_no_source(rig, url):
    await rig.fails("it is no address of HTTP", url)


async def test_a_certificate_that_the_system_does_not_trust_is_said(rig, tls):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    given = tls("control", Role.CONTROL)
    context.load_cert_chain(given.certificate, given.key)
    async with Upstream(CONTENT, whole, tls=context) as up:
        await rig.fails("its certificate is not trusted: ", up.url().replace("http", "https"))
    assert not up.asked


@pytest.mark.parametrize(
    ("digest", "words"),
    [
        ("", "neither its source nor server.yaml says its digest, so it is not downloaded; pin it in server.yaml"),
        ("md5:d41d8cd98f00b204e9800998ecf8427e", "its digest 'md5:.*' is not sha256: and 64 hexadecimal digits"),
        (f"sha256:{HEX.upper()}", "is not sha256: and 64"),
        (f"sha256:{HEX}\n", "is not sha256: and 64"),
        ("sha256:../../../../etc/passwd", "is not sha256: and 64"),
    ],
)
async def test_without_a_digest_nobody_is_asked(rig, up, digest, words):
    await rig.fails(words, up.url(), wanted=file(digest=digest))
    assert not up.asked and not rig.target.parent.exists()


# --- wrong content -----------------------------------------------------------------------------------------------


async def test_a_wrong_digest_leaves_nothing_and_the_source_is_not_asked_again(rig, up, second):
    up.content = OTHER
    await rig.fails(r"it has other content, not of sha256:[0-9a-f]{12}…", up.url())
    assert rig.part.stat().st_size == 0 and len(up.asked) == 1
    await rig.get(up.url(), second.url())
    rig.is_whole()
    assert len(up.asked) == 2


@pytest.mark.parametrize("length", [1_000_000, 3_000_000])
async def test_a_source_is_not_blamed_for_what_an_earlier_try_left(rig, up, length):
    rig.part.parent.mkdir(parents=True)
    rig.part.write_bytes(OTHER[:length])
    await rig.get(up.url())
    rig.is_whole()
    assert [one.offset for one in up.asked] == ([1_000_000, 0] if length == 1_000_000 else [0])


async def test_a_source_is_blamed_once_all_is_its_own(rig, up):
    rig.part.parent.mkdir(parents=True)
    rig.part.write_bytes(CONTENT)
    rig.part.write_bytes(OTHER)
    up.content = OTHER
    await rig.fails("it has other content", up.url())
    assert [one.offset for one in up.asked] == [0]


async def test_all_that_came_and_was_not_put_in_its_place_needs_no_source(rig):
    rig.part.parent.mkdir(parents=True)
    rig.part.write_bytes(CONTENT)
    await rig.get()
    rig.is_whole()


@pytest.mark.parametrize("extra", [-1, 1])
async def test_another_size_is_refused_by_the_head_alone(rig, up, extra):
    up.content = (CONTENT + b"x")[: len(CONTENT) + extra]
    await rig.fails(f"the file has {len(CONTENT) + extra} bytes there, not 3000000", up.url())
    assert rig.part.stat().st_size == 0


async def test_more_bytes_than_the_file_has_are_not_written(rig, up):
    async def endless(upstream, asked, writer):
        head(writer, 200)
        while True:
            await upstream.body(writer, CONTENT[:100_000])

    up.answer = endless
    await rig.fails("it sends more than the 3000000 bytes of the file", up.url())
    assert rig.part.stat().st_size == 0 and up.sent < 20_000_000


# --- the disk ----------------------------------------------------------------------------------------------------


async def test_without_room_nobody_is_asked(rig, up, monkeypatch):
    monkeypatch.setattr(module, "room", lambda path: (Bytes(1 << 40), Bytes(module.RESERVE + 2_999_999)))
    error = await rig.fails(
        "2.9 MiB more are needed at .*/downloads, where 66.9 MiB are free and 64 MiB stay", up.url()
    )
    assert isinstance(error, NoRoom) and not up.asked


async def test_a_disk_that_fills_keeps_what_came_and_it_goes_on_when_there_is_room(rig, up, monkeypatch):
    """A filesystem of our own would need root; a limit of the process has another error."""
    real = os.write

    def full(handle, data):
        left = 1_500_000 - os.lseek(handle, 0, os.SEEK_CUR)
        if not left:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return real(handle, data[:left])

    with monkeypatch.context() as patched:
        patched.setattr("llmgw.agent.transfer.part.os.write", full)
        patched.setattr(module, "room", lambda path: (Bytes(1 << 40), Bytes(module.RESERVE + 3_000_000)))
        assert isinstance(await rig.fails("are its inodes or a quota used up", up.url()), NoRoom)
    assert rig.part.stat().st_size == 1_500_000
    await rig.get(up.url())
    rig.is_whole()
    assert up.asked[1].offset == 1_500_000


async def test_a_link_in_the_place_of_the_part_leads_nowhere(rig, up, tmp_path):
    (tmp_path / "victim").write_bytes(b"theirs")
    rig.part.parent.mkdir(parents=True)
    rig.part.symlink_to(tmp_path / "victim")
    await rig.get(up.url())
    rig.is_whole()
    assert (tmp_path / "victim").read_bytes() == b"theirs"


async def test_a_part_longer_than_the_file_is_begun_again(rig, up):
    rig.part.parent.mkdir(parents=True)
    rig.part.write_bytes(CONTENT + b"x")
    await rig.get(up.url())
    rig.is_whole()


async def test_a_part_that_another_agent_writes_is_left_alone(rig, up):
    async with opened(rig.part, len(CONTENT)):
        await rig.fails("is being written already; is another agent at work here", up.url())
    await rig.get(up.url())


async def test_a_directory_that_cannot_be_made_is_said(rig, up, tmp_path):
    (tmp_path / "downloads").write_bytes(b"")
    with pytest.raises(CannotDownload, match=r"downloads cannot be written: (file exists|not a directory); mend"):
        await rig.get(up.url())


# --- slow ones ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("answered", [False, True])
async def test_a_source_that_falls_silent_is_given_up(rig, up, second, answered):
    async def silent(upstream, asked, writer):
        if answered:
            await cut_to(1_000_000)(upstream, asked, writer)
        await asyncio.Event().wait()

    up.answer = silent
    await rig.get(up.url(), second.url(), patience=Patience(idle=0.2))
    rig.is_whole()
    assert second.asked[0].offset == (1_000_000 if answered else 0)
    assert len(up.asked) == 1


async def test_a_source_that_sends_a_byte_now_and_then_is_given_up(rig, up):
    async def drips(upstream, asked, writer):
        head(writer, 200, f"Content-Length: {len(CONTENT)}")
        for at in range(len(CONTENT)):
            await upstream.body(writer, CONTENT[at : at + 1])
            await asyncio.sleep(0.02)  # what it is about

    up.answer = drips
    await rig.fails(r"it is too slow: \d+ B in 0 s", up.url(), patience=Patience(idle=0.2))
    assert 0 < rig.part.stat().st_size <= up.sent


async def test_a_head_that_drips_is_given_up(rig, up):
    async def drips(upstream, asked, writer):
        writer.write(b"HTTP/1.1 200 OK\r\n")
        while True:
            writer.write(b"X: 1\r\n")
            await writer.drain()
            await asyncio.sleep(0.02)  # what it is about

    up.answer = drips
    await rig.fails(r"no answer within 0.2 s", up.url(), patience=Patience(idle=0.2))


async def test_a_limit_is_kept_by_all_together(rig, tmp_path, up):
    limit, other = Limit(20_000_000), Rig(tmp_path / "other")
    began = time.monotonic()
    await asyncio.gather(rig.get(up.url(), limit=limit), other.get(up.url(), limit=limit))
    took = time.monotonic() - began
    assert took > 6_000_000 / 20_000_000 * 0.7


# --- mirrors and proxies -----------------------------------------------------------------------------------------


async def test_a_mirror_has_a_folder_for_each_version(rig, up):
    source = MirrorSource(up.url("/m/"), "llama.cpp", "b10991", "../a b.tar.gz")
    await download(file(), [source], rig.target, tell=rig.told.append, verifying=rig.verifying, patience=QUICK)
    assert up.asked[0].path == "/m/llama.cpp/b10991/..%2Fa%20b.tar.gz"
    assert source.name.startswith(f"mirror {up.url('/m/')}")


async def test_the_proxy_of_the_environment_is_used(rig, up, monkeypatch):
    monkeypatch.setenv("http_proxy", up.url(""))
    await rig.get("http://upstream.invalid/it")
    rig.is_whole()
    assert up.asked[0].path == "http://upstream.invalid/it"


# --- the agent dies ----------------------------------------------------------------------------------------------

PROGRAM = """
import asyncio, sys
from pathlib import Path
from llmgw.agent.transfer.download import download
from llmgw.agent.transfer.http import UrlSource
from llmgw.core.engines.orders import ReleaseFile
url, target, size, digest = sys.argv[1:]
file = ReleaseFile(name="it.tar.gz", size=int(size), digest=digest)
asyncio.run(download(file, [UrlSource(url)], Path(target), tell=lambda _: None, verifying=lambda: None))
"""


async def test_an_agent_killed_in_the_middle_goes_on_when_it_is_started_again(rig, up):
    async def stops(upstream, asked, writer):
        await cut_to(2_500_000)(upstream, asked, writer)
        await asyncio.Event().wait()

    up.answer = in_turn(stops, whole)
    argv = [sys.executable, "-c", PROGRAM, up.url(), str(rig.target), str(len(CONTENT)), f"sha256:{HEX}"]
    process = await asyncio.create_subprocess_exec(*argv)
    async with asyncio.timeout(20):
        await rig.has(2 << 20)
    process.kill()
    await process.wait()
    await rig.get(up.url())
    rig.is_whole()
    assert up.asked[1].offset >= 2 << 20
