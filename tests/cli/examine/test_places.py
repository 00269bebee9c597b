"""Files and directories: there, ours, private, with room."""

import os
from pathlib import Path

import pytest

from llmgw.cli.examine import places
from llmgw.config.tls import TlsFiles
from llmgw.core.checks import Check, Result

ROOT = os.geteuid() == 0


@pytest.fixture
def files(tmp_path: Path) -> TlsFiles:
    given = TlsFiles(tmp_path / "a.crt", tmp_path / "a.key", tmp_path / "authority.crt")
    for path in (given.certificate, given.key, given.authority):
        path.touch()
        path.chmod(0o600 if path == given.key else 0o644)
    return given


def wrong(checks: list[Check]) -> list[str]:
    return [f"{one.result.value}: {one.fact} → {one.fix}" for one in checks if one.result is not Result.OK]


def test_what_is_as_it_should_be_is_ok(files: TlsFiles):
    assert wrong(places.tls_files(files)) == []
    assert len(places.tls_files(files)) == 3


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o644, 0o660])
def test_a_key_that_others_may_read_is_a_fault(mode: int, files: TlsFiles):
    files.key.chmod(mode)
    fact = f"{files.key} has mode {mode:04o}: a private key must be for its owner only"
    assert wrong(places.tls_files(files)) == [f"fault: {fact} → chmod 600 {files.key}"]


def test_a_certificate_that_others_may_write_is_a_warning(files: TlsFiles):
    files.authority.chmod(0o666)
    assert wrong(places.tls_files(files)) == [
        f"warning: {files.authority} has mode 0666: others may write it → chmod 644 {files.authority}"
    ]


def test_files_that_are_not_there_or_no_files_are_faults(files: TlsFiles):
    files.certificate.unlink()
    files.key.unlink()
    files.key.mkdir()
    first, second = wrong(places.tls_files(files))
    assert first.startswith(f"fault: {files.certificate} cannot be read: no such file or directory → make it with")
    assert second.startswith(f"fault: {files.key} is no file")


def test_a_directory_of_ours_is_ok_and_one_that_can_be_made_is_too(tmp_path: Path):
    (tmp_path / "state").mkdir(mode=0o700)
    for name in ("state", "not/there/yet"):
        assert wrong(places.own_directory(tmp_path / name, "state", private=True)) == []
    assert not (tmp_path / "not").exists()


def test_a_directory_that_others_may_look_into_is_a_warning(tmp_path: Path):
    tmp_path.chmod(0o755)
    assert wrong(places.own_directory(tmp_path, "state", private=True)) == [
        f"warning: state {tmp_path} has mode 0755: others may look into it → chmod 700 {tmp_path}"
    ]
    assert wrong(places.own_directory(tmp_path, "state", private=False)) == []


def test_a_file_in_a_directorys_place_or_above_it_is_a_fault(tmp_path: Path):
    (tmp_path / "file").touch()
    (at,) = wrong(places.own_directory(tmp_path / "file", "state", private=True))
    (above,) = wrong(places.own_directory(tmp_path / "file" / "state", "state", private=True))
    assert "is no directory → move it away, or name another directory with state:" in at
    assert above.startswith("fault: state ")


@pytest.mark.skipif(ROOT, reason="root may write everywhere")
def test_a_directory_that_we_may_not_write_is_a_fault(tmp_path: Path):
    (tmp_path / "state").mkdir(mode=0o500)
    (text,) = wrong(places.own_directory(tmp_path / "state", "state", private=True))
    assert "cannot be written (mode 0500, owner" in text


def test_room_is_told_by_share_and_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A disk that is full cannot be had here."""

    def seen(free: int) -> os.statvfs_result:
        return os.statvfs_result((4096, 4096, 1_000_000, free, free, 0, 0, 0, 0, 255))

    told = []
    for free in (0, 10_000, 500_000):
        monkeypatch.setattr(os, "statvfs", lambda path, free=free: seen(free))
        told.append(places.free_space(tmp_path, "state")[0])
    assert [one.result for one in told] == [Result.FAULT, Result.WARNING, Result.OK]
    assert told[1].fact == f"{tmp_path}: 39.1 MiB of 3.8 GiB free"
