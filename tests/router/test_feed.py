"""A router keeps the last route table it heard of: while the control plane is away, and over its own restart."""

import asyncio
import os
import stat

import pytest

from llmgw.core.errors import ControlUnreachable
from llmgw.core.facts import Secret
from llmgw.router import remember
from llmgw.router.feed import Feed
from llmgw.router.limits import Limits
from llmgw.router.table import Table
from tests.router.memory import FakeClock
from tests.router.rig import HERE, Rig, chat, replica, table


async def test_it_serves_on_while_the_control_plane_is_away_and_takes_up_the_next_table(rig, engine, other):
    await rig.routes(replica(0, engine.port))
    rig.say(ControlUnreachable("127.0.0.1:1", "connection refused"))
    async with asyncio.timeout(5):
        while b'"kept"' not in (await rig.get("/health"))[2]:
            assert (await rig.ask(chat()))[0] == 200
    await rig.routes(replica(1, other.port), seq=2)
    assert (await rig.ask(chat()))[0] == 200
    assert len(other.calls) == 1
    assert rig.opened == 2


async def test_a_fault_of_ours_in_reading_routes_ends_no_request(rig, engine, other):
    await rig.routes(replica(0, engine.port))
    rig.say(RuntimeError("a bug"))
    await rig.routes(replica(1, other.port), seq=2)
    assert (await rig.ask(chat()))[0] == 200
    assert rig.opened == 2


async def test_a_restarted_router_serves_before_it_has_heard_of_anything(tmp_path, engine):
    async with Rig(tmp_path) as first:
        await first.routes(replica(0, engine.port))
    async with Rig(tmp_path) as second:
        assert (await second.ask(chat()))[0] == 200
        assert b'"kept"' in (await second.get("/health"))[2]


async def test_it_tries_again_ever_less_often_until_it_was_told_something(tmp_path):
    pauses: list[float] = []

    class Enough(Exception):
        pass

    async def watch():
        if len(pauses) == 9:
            yield table()
        raise ControlUnreachable("127.0.0.1:1", "connection refused")

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 11:
            raise Enough

    feed = Feed(Table(HERE, Limits(), FakeClock()), watch, tmp_path, sleep)
    with pytest.raises(Enough):
        await feed.run()
    assert 0.1 <= pauses[0] <= 0.2
    assert 5.0 <= pauses[8] <= 10.0
    assert 0.1 <= pauses[9] <= 0.2
    assert len(set(pauses)) == len(pauses)


def test_the_table_on_disk_is_whole_and_for_the_router_only(tmp_path):
    routes = table(replica(0, 21000, key=Secret("k")), not_now=3)
    old = os.umask(0)
    try:
        remember.save(tmp_path, routes)
        remember.save(tmp_path, routes)
    finally:
        os.umask(old)
    assert stat.S_IMODE((tmp_path / remember.NAME).stat().st_mode) == 0o600
    assert [p.name for p in tmp_path.iterdir()] == [remember.NAME]
    loaded = remember.load(tmp_path)
    assert loaded == routes
    assert loaded is not None
    assert isinstance(loaded.routes[0].replicas[0].key, Secret)


def test_a_file_planted_in_its_place_is_not_written_through(tmp_path):
    target = tmp_path / "target"
    (tmp_path / ".routes.json.new").symlink_to(target)
    remember.save(tmp_path, table())
    assert not target.exists()


@pytest.mark.parametrize(
    "data",
    [b"", b"\xff", b"[]", b'{"revision":{"epoch":1,"seq":1},"routes":[{"model":1}]}', b"[" * 100_000, b"{}"],
    ids=["empty", "not utf-8", "a list", "wrong type", "deep", "no fields"],
)
def test_a_damaged_table_on_disk_is_named_in_one_line(tmp_path, data):
    (tmp_path / remember.NAME).write_bytes(data)
    with pytest.raises(remember.BadMemory, match=r"routes\.json: does not hold a route table") as caught:
        remember.load(tmp_path)
    assert "\n" not in str(caught.value)


async def test_a_damaged_table_on_disk_does_not_keep_a_router_from_starting(tmp_path, engine):
    (tmp_path / "state").mkdir()
    (tmp_path / "state" / remember.NAME).write_bytes(b"\x00")
    async with Rig(tmp_path) as rig:
        await rig.routes(replica(0, engine.port))
        assert (await rig.ask(chat()))[0] == 200


async def test_why_there_are_no_routes_is_said_once_then_every_ten_minutes_and_when_it_changes(tmp_path, caplog):
    """A control plane that is away for days must not fill a disk."""
    clock, says = FakeClock(), ["refused"] * 5 + ["silence"] * 3

    async def watch():
        why = says.pop(0)
        if why == "routes":
            yield table()
        raise ControlUnreachable("127.0.0.1:1", why)

    async def sleep(_: float) -> None:
        clock.now += 5
        if len(says) == 6:
            clock.now += 600
        if not says:
            raise asyncio.CancelledError

    feed = Feed(Table(HERE, Limits(), FakeClock()), watch, tmp_path, sleep, clock)
    with pytest.raises(asyncio.CancelledError):
        await feed.run()
    said = [record.getMessage().rpartition(" ")[2] for record in caplog.records]
    assert said == ["refused", "refused", "silence"]


async def test_a_loss_after_better_times_is_told_again(tmp_path, caplog):
    left = 3

    async def watch():
        nonlocal left
        left -= 1
        yield table()
        raise ControlUnreachable("127.0.0.1:1", "gone")

    async def sleep(_: float) -> None:
        if not left:
            raise asyncio.CancelledError

    feed = Feed(Table(HERE, Limits(), FakeClock()), watch, tmp_path, sleep)
    caplog.set_level("INFO")
    with pytest.raises(asyncio.CancelledError):
        await feed.run()
    said = [record.getMessage() for record in caplog.records]
    assert len([line for line in said if "gone" in line]) == 3
    assert said[0] == "routes 1.1: 1 model, live"
