"""The child that unpacks has no rights, and whatever becomes of it, either all is there or nothing."""

import asyncio
import errno
import fcntl
import os
import re
import shutil
import signal
import subprocess
import sys
import termios
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import psutil
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as some

from llmgw.agent.engines.unpack import BadArchive, unpack
from llmgw.agent.engines.unpack.parent import USER, unpacked
from tests.agent.archives import entry, hardlink, packed, symlink
from tests.agent.unpack.place import Place

ROOT = os.geteuid() == 0
GOOD = packed(
    [entry(f"lib/f{n}", os.urandom(20_000), mode=0o755) for n in range(20)]
    + [symlink("lib/l", "f1"), hardlink("lib/h", "lib/f2"), entry("empty")]
)


def quiet(_done: int, _total: int) -> None:
    """Nobody watches."""


async def test_a_whole_tree_that_is_ours(place: Place) -> None:
    place.archive.write_bytes(GOOD)
    await unpack(place.archive, place.into, tell=quiet)
    assert len(place.files()) == 23
    found = [path.lstat() for path in (place.into, *place.into.rglob("*"))]
    assert {(status.st_uid, status.st_gid) for status in found} == {(os.geteuid(), os.getegid())}
    assert place.into.stat().st_mode & 0o7777 == 0o755
    place.check()


async def test_a_refusal_leaves_nothing(place: Place) -> None:
    place.archive.write_bytes(packed([entry("lib/f", b"x"), symlink("l", "../v\x1b")]))
    with pytest.raises(BadArchive) as raised:
        await unpack(place.archive, place.into, tell=quiet)
    assert str(raised.value) == "entry 2 (l): has the character U+001B in its link target"
    assert not place.into.exists()
    place.check()


async def test_what_is_there_stays(place: Place) -> None:
    place.archive.write_bytes(GOOD)
    place.into.mkdir()
    (place.into / "mine").write_text("mine")
    with pytest.raises(FileExistsError):
        await unpack(place.archive, place.into, tell=quiet)
    assert place.files() == ["mine"]


@asynccontextmanager
async def halfway(
    place: Place, sent: int, *, silence: float = 30
) -> AsyncIterator[tuple[psutil.Process, asyncio.Task]]:
    """A child that has read `sent` bytes of an archive and waits for more."""
    os.mkfifo(place.archive)
    pipe = os.open(place.archive, os.O_RDWR)
    fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, 1 << 20)
    task = asyncio.create_task(unpacked(place.archive, place.into, tell=quiet, case_pairs=False, silence=silence))
    try:
        os.write(pipe, GOOD[:sent])
        while not (child := _child(os.getpid())) or _unread(pipe):  # noqa: ASYNC110 # nobody tells when
            await asyncio.sleep(0.002)
        yield child, task
    finally:
        task.cancel()
        await asyncio.wait([task])
        os.close(pipe)


def _child(of: int) -> psutil.Process | None:
    return next((one for one in psutil.Process(of).children() if "unpack.child" in " ".join(one.cmdline())), None)


def _unread(pipe: int) -> int:
    return int.from_bytes(fcntl.ioctl(pipe, termios.FIONREAD, bytes(4)), sys.byteorder)


@pytest.mark.parametrize(
    "sent", [0, 5, 30_000, len(GOOD) // 2, len(GOOD) - 1], ids=["none", "head", "some", "half", "all"]
)
async def test_killed_at_any_point(sent: int, place: Place) -> None:
    async with halfway(place, sent) as (child, task):
        child.kill()
        with pytest.raises(OSError, match="ended by signal 9"):
            await task
    assert not place.into.exists()
    place.check()


async def test_cancelled(place: Place) -> None:
    async with halfway(place, len(GOOD) // 2) as (child, task):
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert not child.is_running()
    assert not place.into.exists()


async def test_one_that_stands_still_is_given_up(place: Place) -> None:
    async with halfway(place, 30_000, silence=0.5) as (child, task):
        with pytest.raises(OSError, match=r"made no progress for 0\.5s"):
            await task
        assert not child.is_running()
    assert not place.into.exists()


def _status(pid: int) -> dict[str, str]:
    return dict(line.split(":\t", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())


def _limits(pid: int) -> dict[str, str]:
    """The hard ones."""
    lines = Path(f"/proc/{pid}/limits").read_text().splitlines()[1:]
    return {line[:26].strip(): line[26:].split()[1] for line in lines}


async def test_its_rights(place: Place) -> None:
    async with halfway(place, 30_000) as (child, _):
        said = _status(child.pid)
        assert said["NoNewPrivs"] == "1"
        limits = _limits(child.pid)
        assert (limits["Max processes"], limits["Max address space"]) == ("0", str(512 << 20))
        if ROOT:
            assert {*said["Uid"].split(), *said["Gid"].split()} == {str(USER)}
            assert said["Groups"].split() == []
            assert {int(said[what], 16) for what in ("CapEff", "CapPrm", "CapInh", "CapAmb")} == {0}
            assert os.readlink(f"/proc/{child.pid}/root") == str(place.into)
            assert os.readlink(f"/proc/{child.pid}/ns/net") != os.readlink("/proc/self/ns/net")
            assert place.into.stat().st_uid == USER
            assert place.into.stat().st_mode & 0o7777 == 0o700


UNIT = Path(__file__).parents[3] / "deploy" / "llmgw-agent.service"
SEES = """
import os, sys
from llmgw.agent.engines.unpack.confine import confine
from llmgw.agent.engines.unpack.limits import LIMITS
from llmgw.agent.engines.unpack.parent import USER

into = os.open(sys.argv[1], os.O_RDONLY | os.O_DIRECTORY)
os.fchown(into, USER, USER)
if not os.fork():
    confine(USER, into, LIMITS, os.getppid())
    print(os.getuid(), *os.listdir("/"), flush=True)
    os._exit(0)
os.wait()
"""


@pytest.mark.skipif(not ROOT or shutil.which("setpriv") is None, reason="root's rights are taken away by setpriv")
def test_with_what_the_agents_unit_leaves_to_root_it_sees_nothing_but_its_directory(tmp_path: Path) -> None:
    (tmp_path / "only-this").touch()
    (kept,) = re.findall(r"^CapabilityBoundingSet=(.+)$", UNIT.read_text(), re.MULTILINE)
    bounds = ",".join(["-all", *(f"+{name.removeprefix('CAP_').lower()}" for name in kept.split())])
    words = ["setpriv", f"--bounding-set={bounds}", "--no-new-privs", sys.executable, "-c", SEES, str(tmp_path)]
    said = subprocess.run(words, capture_output=True, text=True, timeout=30)
    assert said.stdout.split() == [str(USER), "only-this"], said.stderr


def test_it_dies_with_us(place: Place) -> None:
    os.mkfifo(place.archive)
    pipe = os.open(place.archive, os.O_RDWR)
    code = (
        "import asyncio,pathlib,sys; from llmgw.agent.engines.unpack import unpack\n"
        "asyncio.run(unpack(*map(pathlib.Path, sys.argv[1:]), tell=lambda *_: None))"
    )
    ours = subprocess.Popen([sys.executable, "-P", "-c", code, place.archive, place.into])
    try:
        os.write(pipe, GOOD[:5])
        while not (child := _child(ours.pid)) or _unread(pipe):
            time.sleep(0.005)
        ours.send_signal(signal.SIGKILL)
        ours.wait()
        gone, _ = psutil.wait_procs([child], 5)
        assert gone == [child]
    finally:
        ours.kill()
        ours.wait()
        os.close(pipe)


@pytest.mark.parametrize(
    ("does", "fact"),
    [
        ("exit 0", "process ended with status 0$"),
        ("echo out of luck >&2; exit 3", "process ended with status 3: out of luck$"),
        ("echo '{\"whole\": 1}'; echo '[1]'; exit 0", r"process ended with status 0: \[1\]$"),
        ("head -c 99999 /dev/zero | tr '\\0' x", "process said a line of more than 65536 bytes"),
        ("echo x >f; chmod 4755 f; echo '{\"whole\": true}'", "tree has 'f' of mode 104755, which no archive makes"),
        ("echo x >f; ln f g; echo '{\"whole\": true}'", "tree has '[fg]' of mode 100644, which no archive makes"),
        ("mkfifo -m 644 f; echo '{\"whole\": true}'", "tree has 'f' of mode 10644, which no archive makes"),
        ("mkdir -p " + "d/" * 40 + "; echo '{\"whole\": true}'", "is more than 32 directories deep"),
        ('echo \'{"bad": ["\\u001b[2J", "e", 1]}\'', r"^entry 1 \(e\): \\u001b\[2J$"),
    ],
)
async def test_a_child_in_other_hands_is_not_believed(
    does: str, fact: str, place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place.archive.write_bytes(GOOD)
    other = tmp_path / "other"
    other.write_text(f'#!/bin/sh\numask 022; cd /proc/self/fd/"$5" || exit\n{does}\n')
    other.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(other))
    with pytest.raises((OSError, BadArchive), match=fact):
        await unpack(place.archive, place.into, tell=quiet)
    assert not place.into.exists()
    place.check()


@contextmanager
def small_disk(at: Path) -> Iterator[None]:
    at.mkdir()
    if not ROOT or subprocess.run(["mount", "-t", "tmpfs", "-o", "size=200k", "llmgw", at], check=False).returncode:
        pytest.skip("needs to mount a disk")
    try:
        yield
    finally:
        subprocess.run(["umount", at], check=True)


async def test_a_full_disk(place: Place, tmp_path: Path) -> None:
    place.archive.write_bytes(GOOD)
    with small_disk(tmp_path / "disk"):
        with pytest.raises(OSError) as raised:
            await unpack(place.archive, tmp_path / "disk/into", tell=quiet)
        assert raised.value.errno == errno.ENOSPC
        assert list((tmp_path / "disk").iterdir()) == []


async def test_a_disk_that_fails_at_the_end(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(_fd: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    place.archive.write_bytes(GOOD)
    monkeypatch.setattr(os, "fsync", fails)
    with pytest.raises(OSError) as raised:
        await unpack(place.archive, place.into, tell=quiet)
    assert raised.value.errno == errno.EIO
    assert not place.into.exists()


async def test_progress_is_told_in_compressed_bytes(place: Place) -> None:
    place.archive.write_bytes(packed([entry("f", os.urandom(1 << 20) * 24)], level=0))
    told = list[tuple[int, int]]()
    await unpack(place.archive, place.into, tell=lambda done, total: told.append((done, total)))
    size = place.archive.stat().st_size
    assert all(0 <= done <= size == total for done, total in told)
    assert [done for done, _ in told] == sorted(done for done, _ in told)
    assert told[-1] == (size, size)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=some.data())
def test_a_damaged_archive_is_refused_or_as_it_was(
    data: some.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    place = Place(tmp_path_factory.mktemp("damaged"))
    small = packed([entry("d/f", b"f" * 700), symlink("d/l", "f"), hardlink("h", "d/f")], level=0)
    damaged = bytearray(small[: data.draw(some.integers(0, len(small)))] if data.draw(some.booleans()) else small)
    for _ in range(data.draw(some.integers(0, 3))):
        if damaged:
            damaged[data.draw(some.integers(0, len(damaged) - 1))] ^= data.draw(some.integers(1, 255))
    try:
        place.extract(bytes(damaged))
    except BadArchive as bad:
        assert str(bad).isprintable()
    else:
        assert place.files() == ["d/f", "d/l", "h"]
    place.check()


@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=some.data())
def test_damage_inside_that_adds_up_stays_inside(
    data: some.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    names = some.text(some.sampled_from("ab./\\\x00\n\u202e é"), max_size=12)
    kinds = some.sampled_from([b"0", b"1", b"2", b"5", b"L", b"K", b"x", b"\x00", b"g", b"S"])
    entries = [
        entry(data.draw(names), data.draw(some.binary(max_size=20)), kind=data.draw(kinds), link=data.draw(names))
        for _ in range(data.draw(some.integers(1, 6)))
    ]
    place = Place(tmp_path_factory.mktemp("odd"))
    try:
        place.extract(packed(entries))
    except BadArchive as bad:
        assert str(bad).isprintable()
    for link in (path for path in place.into.rglob("*") if path.is_symlink()):
        assert place.into.resolve() in (link.resolve(), *link.resolve().parents)
    place.check()
