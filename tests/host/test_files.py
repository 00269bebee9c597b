"""Files that are replaced or made whole, whatever happens in between."""

import os
import stat
from pathlib import Path

import pytest

from llmgw.host import files


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_a_file_is_replaced_and_is_for_us_alone_unless_it_is_said_otherwise(tmp_path: Path):
    path = tmp_path / "f"
    files.replace(path, b"one")
    assert (path.read_bytes(), mode(path)) == (b"one", 0o600)
    files.replace(path, b"two", mode=0o644)
    assert (path.read_bytes(), mode(path)) == (b"two", 0o644)
    assert os.listdir(tmp_path) == ["f"]


def test_what_a_cut_left_behind_is_neither_followed_nor_kept(tmp_path: Path):
    victim = tmp_path / "victim"
    victim.write_text("mine")
    (tmp_path / ".f.new").symlink_to(victim)
    files.replace(tmp_path / "f", b"one")
    assert victim.read_text() == "mine"
    assert sorted(os.listdir(tmp_path)) == ["f", "victim"]


def test_a_disk_that_is_full_keeps_the_old_file_and_no_half_of_the_new(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    path = tmp_path / "f"
    files.replace(path, b"old")
    monkeypatch.setattr(os, "fsync", lambda _: (_ for _ in ()).throw(OSError(28, "No space left on device")))
    with pytest.raises(OSError, match="No space"):
        files.replace(path, b"new")
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["f"]


def test_a_new_file_takes_nobodys_place(tmp_path: Path):
    path = tmp_path / "f"
    files.create(path, b"first", mode=0o644)
    with pytest.raises(FileExistsError):
        files.create(path, b"second")
    assert (path.read_bytes(), mode(path)) == (b"first", 0o644)
    assert os.listdir(tmp_path) == ["f"]


# --- reading what may be anything -------------------------------------------------------------------------------


def test_what_a_reader_would_wait_for_or_never_end_with_is_no_file(tmp_path: Path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "long").write_bytes(b"x" * (files.MOST + 1))
    for path, rule in (
        (tmp_path / "pipe", "must be a regular file"),
        (Path("/dev/zero"), "must be a regular file"),
        (tmp_path / "long", "must be at most 1 MiB large"),
    ):
        with pytest.raises(files.Unfit, match=rule):
            files.read(path)
    (tmp_path / "long").write_bytes(b"x" * files.MOST)
    (tmp_path / "long").chmod(0o640)
    content, mode = files.read(tmp_path / "long")
    assert (len(content), mode) == (files.MOST, 0o640)


def test_a_directory_is_not_read_and_costs_no_descriptor(tmp_path: Path):
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(3):
        with pytest.raises(IsADirectoryError):
            files.read(tmp_path)
    assert len(os.listdir("/proc/self/fd")) == before
