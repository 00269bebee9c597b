"""What the agent keeps on disk, and what becomes of it when the disk or the power does not do its part."""

import os
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmgw.agent import keep
from llmgw.agent.launch import log
from llmgw.agent.launch.ports import NoPort, ephemeral, lease, outside, overlap, way_out
from llmgw.agent.records import Records
from llmgw.config.agent import Ports
from llmgw.core.facts import Failure, FailureKind, Secret, ShardReport
from llmgw.core.names import ShardId
from llmgw.core.shard import ShardState
from tests.agent.control import desired, order

SHARD = ShardId("tiny/0.0")


@pytest.fixture
def records(tmp_path: Path) -> Records:
    records = Records(tmp_path)
    records.make()
    return records


# --- whole files ------------------------------------------------------------------------------------------------


def test_what_is_written_is_read_and_is_for_us_alone(tmp_path: Path):
    keep.write(tmp_path / "f", "text with ü")
    assert keep.read(tmp_path / "f") == "text with ü"
    assert oct((tmp_path / "f").stat().st_mode & 0o777) == "0o600"
    assert keep.read(tmp_path / "g") is None


@pytest.mark.parametrize("at", [0, 10, 80, -1])
def test_one_flipped_byte_is_seen(tmp_path: Path, at: int):
    keep.write(tmp_path / "f", "x" * 50)
    raw = bytearray((tmp_path / "f").read_bytes())
    raw[at] ^= 1
    (tmp_path / "f").write_bytes(raw)
    with pytest.raises(keep.Damaged, match="does not match its checksum"):
        keep.read(tmp_path / "f")


def test_a_cut_while_writing_leaves_the_old_content(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    keep.write(tmp_path / "f", "old")
    monkeypatch.setattr(os, "fsync", lambda _: (_ for _ in ()).throw(OSError(28, "No space left on device")))
    with pytest.raises(OSError, match="No space"):
        keep.write(tmp_path / "f", "new")
    monkeypatch.undo()
    assert keep.read(tmp_path / "f") == "old"
    keep.write(tmp_path / "f", "newer")
    assert keep.read(tmp_path / "f") == "newer"


# --- records ----------------------------------------------------------------------------------------------------


def test_desired_comes_back_as_it_was(records: Records):
    assert records.desired() is None
    wanted = desired(order("/w.gguf", arguments=("-fa", "$HOME")), epoch=1 << 40, settled=False)
    records.save_desired(wanted)
    assert records.desired() == wanted


def test_a_damaged_desired_is_put_aside_and_told(records: Records, tmp_path: Path, caplog: pytest.LogCaptureFixture):
    records.save_desired(desired())
    (tmp_path / "desired.json").write_bytes(b"\0" * 40)
    assert records.desired() is None
    assert "desired.json cannot be used" in caplog.text
    assert (tmp_path / "desired.json.damaged").exists()
    assert records.desired() is None


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"shards": 7}', '{"epoch": "x"}', '{"cluster": "demo"}'])
def test_a_file_that_is_whole_and_no_desired_is_put_aside(records: Records, tmp_path: Path, text: str):
    keep.write(tmp_path / "desired.json", text)
    assert records.desired() is None
    assert (tmp_path / "desired.json.damaged").exists()


def test_a_shards_record_comes_back_without_its_key(records: Records, tmp_path: Path):
    report = ShardReport(
        shard=SHARD,
        state=ShardState.FAILED,
        since=1.5,
        launch=3,
        pid=7,
        host="::1",
        port=21000,
        key=Secret("hush"),
        attempts=2,
        retry_at=9.0,
        failure=Failure(kind=FailureKind.EXITED, text="ended", signal=9, last_lines=("a", "b"), at=2.0),
        order=order("/w.gguf"),
    )
    records.save(report)
    records.save_key(SHARD, report.key)
    assert list(records.shards()) == [replace(report, key=Secret(""))]
    assert records.key(SHARD) == "hush"
    assert "hush" not in (tmp_path / "shards" / "tiny-0-0" / "shard.json").read_text()
    records.forget(SHARD)
    assert list(records.shards()) == []
    assert records.key(SHARD) == ""


def test_what_is_no_shard_is_left_alone(records: Records, tmp_path: Path, caplog: pytest.LogCaptureFixture):
    (tmp_path / "shards" / "stranger").mkdir()
    records.save(ShardReport(shard=SHARD, state=ShardState.READY, since=1.0, order=order("/w")))
    (tmp_path / "shards" / "tiny-0-0").rename(tmp_path / "shards" / "tiny-1-0")
    assert list(records.shards()) == []
    assert "holds no record" in caplog.text
    assert "holds the record of another shard" in caplog.text


# --- logs -------------------------------------------------------------------------------------------------------


def test_the_last_forty_lines_are_told(tmp_path: Path):
    path = tmp_path / "engine.log"
    path.write_text("".join(f"line {number}\n" for number in range(100)) + "cut off")
    lines = log.tail(path)
    assert len(lines) == 40
    assert lines[-2:] == ("line 99", "cut off")


def test_bytes_that_are_no_text_and_endless_lines_are_told_all_the_same(tmp_path: Path):
    path = tmp_path / "engine.log"
    path.write_bytes(b"\xff\xfe\n" + b"x" * 200_000)
    assert log.tail(path)[-1] == "x" * 500
    path.write_bytes(b"\xff\n")
    assert log.tail(path) == ("\ufffd",)


def test_a_log_without_end_is_cut_and_its_last_lines_live_on(tmp_path: Path):
    path = tmp_path / "engine.log"
    log.fresh(path)
    handle = os.open(path, os.O_WRONLY | os.O_APPEND)
    os.write(handle, b"".join(b"line %d\n" % number for number in range(2000)))
    log.bound(path, longest=1000, kept=300)
    assert path.stat().st_size == 0
    os.write(handle, b"after\n")  # the engine's own descriptor writes on at the new end
    os.close(handle)
    lines = log.tail(path, launched_at=1.0)
    assert lines[-2:] == ("line 1999", "after")
    assert oct(log.previous(path).stat().st_mode & 0o777) == "0o600"


def test_a_launch_does_not_tell_the_lines_of_the_one_before(tmp_path: Path):
    path = tmp_path / "engine.log"
    log.fresh(path)
    path.write_text("of the first\n")
    log.fresh(path)
    assert log.tail(path, launched_at=path.stat().st_mtime + 1) == ()
    assert log.previous(path).read_text() == "of the first\n"


# --- ports ------------------------------------------------------------------------------------------------------


def test_a_port_that_somebody_listens_on_or_that_is_leased_is_not_leased():
    import socket

    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(NoPort, match=f"no port of engine_ports {port}-{port} is free on 127.0.0.1"):
            lease(Ports(port, port), "127.0.0.1", set(), range(0))
    assert lease(Ports(port, port), "127.0.0.1", set(), range(0)) == port
    with pytest.raises(NoPort):
        lease(Ports(port, port), "127.0.0.1", {port}, range(0))


def test_ports_of_the_kernel_are_leased_last():
    ports = Ports(21000, 21009)
    for _ in range(20):
        assert lease(ports, "127.0.0.1", set(), range(21000, 21009)) == 21009


def test_an_overlap_is_told_with_both_ranges():
    assert overlap(Ports(30000, 40000), range(32768, 61000)).startswith("engine_ports 30000-40000 overlaps the ports")
    assert overlap(Ports(21000, 21999), range(32768, 61000)) == ""
    assert len(ephemeral()) > 0


@given(st.integers(1, 65535), st.integers(0, 65535), st.integers(1, 64512))
def test_the_range_that_is_named_instead_is_free_and_can_be_written(first: int, more: int, wanted: int):
    taken = range(first, min(65535, first + more) + 1)
    free = outside(taken, wanted)
    if free is None:
        assert taken.start <= 1024 and taken.stop == 65536
        return
    assert overlap(free, taken) == ""
    assert 1024 <= free.first <= free.last <= 65535
    assert free == Ports(21000, 21999) or len(free) <= wanted


def test_where_the_kernel_takes_all_it_is_told_to_leave_some():
    told = way_out(range(1024, 65536), 1001)
    assert told.startswith("leave some to others: sysctl -w net.ipv4.ip_local_port_range=")
