"""Files and directories: there, ours, private, with room."""

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from llmgw.cli.examine import places
from llmgw.cli.examine.runner import Runner, not_running, ourselves
from llmgw.config.tls import TlsFiles
from llmgw.core.checks import Check, Result
from llmgw.host.accounts import account
from llmgw.host.units import Unit

ROOT = os.geteuid() == 0
OURS = ourselves()


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
    assert wrong(places.tls_files(files, OURS)) == []
    assert len(places.tls_files(files, OURS)) == 3


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o644, 0o660])
def test_a_key_that_others_may_read_is_a_fault(mode: int, files: TlsFiles):
    files.key.chmod(mode)
    fact = f"{files.key} has mode {mode:04o}: a private key must be for its owner only"
    assert wrong(places.tls_files(files, OURS)) == [f"fault: {fact} → chmod 600 {files.key}"]


def test_a_certificate_that_others_may_write_is_a_warning(files: TlsFiles):
    files.authority.chmod(0o666)
    assert wrong(places.tls_files(files, OURS)) == [
        f"warning: {files.authority} has mode 0666: others may write it → chmod 644 {files.authority}"
    ]


def test_files_that_are_not_there_or_no_files_are_faults(files: TlsFiles):
    files.certificate.unlink()
    files.key.unlink()
    files.key.mkdir()
    first, second = wrong(places.tls_files(files, OURS))
    assert first.startswith(
        f"fault: {files.certificate} cannot be read: no such file or directory → issue it on the machine"
    )
    assert second.startswith(f"fault: {files.key} is no file")


def test_a_directory_of_ours_is_ok_and_one_that_can_be_made_is_too(tmp_path: Path):
    (tmp_path / "state").mkdir(mode=0o700)
    for name in ("state", "not/there/yet"):
        assert wrong(places.own_directory(tmp_path / name, "state", OURS, private=True)) == []
    assert not (tmp_path / "not").exists()


def test_a_directory_that_others_may_look_into_is_a_warning(tmp_path: Path):
    tmp_path.chmod(0o755)
    assert wrong(places.own_directory(tmp_path, "state", OURS, private=True)) == [
        f"warning: state {tmp_path} has mode 0755: others may look into it → chmod 700 {tmp_path}"
    ]
    assert wrong(places.own_directory(tmp_path, "state", OURS, private=False)) == []


def test_a_file_in_a_directorys_place_or_above_it_is_a_fault(tmp_path: Path):
    (tmp_path / "file").touch()
    (at,) = wrong(places.own_directory(tmp_path / "file", "state", OURS, private=True))
    (above,) = wrong(places.own_directory(tmp_path / "file" / "state", "state", OURS, private=True))
    assert "is no directory → move it away, or name another directory with state:" in at
    assert above.startswith("fault: state ")


@pytest.mark.skipif(ROOT, reason="root may write everywhere")
def test_a_directory_that_we_may_not_write_is_a_fault(tmp_path: Path):
    (tmp_path / "state").mkdir(mode=0o500)
    (text,) = wrong(places.own_directory(tmp_path / "state", "state", OURS, private=True))
    assert "cannot be written (mode 0500, owner" in text


def test_room_is_told_by_share_and_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A disk that is nearly full cannot be had here."""

    def seen(free: int) -> os.statvfs_result:
        return os.statvfs_result((4096, 4096, 1_000_000, free, free, 0, 0, 0, 0, 255))

    told = []
    tmp_path.chmod(0o700)
    for free in (10_000, 500_000):
        monkeypatch.setattr(os, "statvfs", lambda path, free=free: seen(free))
        told.append(places.own_directory(tmp_path, "state", OURS, private=True)[-1])
    assert [one.result for one in told] == [Result.WARNING, Result.OK]
    assert told[0].fact == f"{tmp_path}: 39.1 MiB of 3.8 GiB free"


FULL = """
import sys
from pathlib import Path
from llmgw.cli.examine import places
from llmgw.cli.examine.runner import ourselves
for one in places.own_directory(Path(sys.argv[1]), "state", ourselves(), private=True):
    print(one.result.value, one.name, one.fact, one.fix, sep="|")
"""


@pytest.mark.skipif(not ROOT, reason="only root makes a small filesystem")
def test_storage_that_takes_nothing_more_is_one_fault(tmp_path: Path):
    full = tmp_path / "full"
    full.mkdir()
    script = 'mount -t tmpfs -o size=16k,mode=700 tmpfs "$1" && head -c 16k </dev/zero >"$1/fill"; shift; exec "$@"'
    argv = ["unshare", "--mount", "sh", "-c", script, "sh", str(full), sys.executable, "-c", FULL, str(full / "state")]
    done = subprocess.run(argv, capture_output=True, text=True)
    if "mount:" in done.stderr or "unshare:" in done.stderr:
        pytest.skip(f"no filesystem of our own here: {done.stderr.strip()}")
    (line,) = done.stdout.splitlines()
    assert line == (
        f"fault|disk|{full}/state: 0 B of 16 KiB free: nothing can be written (no space left on device)|"
        "free some space there, or name another with state:"
    )


def test_a_swapped_certificate_and_key_are_one_fault(files: TlsFiles):
    files.certificate.write_text("-----BEGIN PRIVATE KEY-----\nMIG\n-----END PRIVATE KEY-----\n")
    files.key.write_text("-----BEGIN CERTIFICATE-----\nMII\n-----END CERTIFICATE-----\n")
    files.key.chmod(0o644)
    fact = f"tls.certificate and tls.key are swapped: {files.certificate} is a private key"
    assert wrong(places.tls_files(files, OURS)) == [f"fault: {fact} → exchange the two in the file"]


# --- as the user of a unit --------------------------------------------------------------------------------------


@pytest.fixture
def nobody(tmp_path: Path) -> Runner:
    for one in (tmp_path, *tmp_path.parents[:-2]):
        one.chmod(0o755)
    made = Unit(
        name="llmgwd.service", loaded=True, enabled=True, active="inactive", sub="dead", result="", status="0",
        restarts=0, user="nobody", account=account("nobody"), keeps=(tmp_path / "given",),
    )  # fmt: skip
    assert made.account is not None
    return Runner(account=made.account, unit=made, started_by=made)


def test_files_are_judged_for_the_units_user(files: TlsFiles, nobody: Runner):
    me = ourselves().account.name
    assert wrong(places.tls_files(files, nobody)) == [
        f"fault: {files.key} has mode 0600, owner {me}: user nobody of unit llmgwd.service cannot read it → "
        f"chown nobody: {files.key}"
    ]
    files.key.chmod(0o644)
    assert wrong(places.tls_files(files, nobody))[0].endswith(f"chmod 600 {files.key}; chown nobody: {files.key}")


def test_directories_are_judged_for_the_units_user(tmp_path: Path, nobody: Runner):
    (tmp_path / "ours").mkdir(mode=0o700)
    (text,) = wrong(places.own_directory(tmp_path / "ours", "store", nobody, private=False))
    assert text.endswith(f"user nobody of unit llmgwd.service cannot write it → chown nobody: {tmp_path}/ours")
    for name in ("given", "given/deeper"):
        first, _ = places.own_directory(tmp_path / name, "store", nobody, private=False)
        assert first.result is Result.OK and first.fact.endswith(
            "is made for user nobody, or given to it, by unit llmgwd.service"
        )


@pytest.mark.parametrize(
    ("changes", "result", "words"),
    [
        (
            {"active": "failed", "result": "exit-code", "status": "2"},
            Result.FAULT,
            "failed (result exit-code, exit status 2) → journalctl -u llmgwd -n 20",
        ),
        ({"active": "activating", "sub": "auto-restart"}, Result.FAULT, "failed and is started again and again"),
        (
            {"active": "activating", "sub": "start", "restarts": 7},
            Result.FAULT,
            "failed and is started again and again (7 times so far)",
        ),
        ({"active": "activating", "sub": "start"}, Result.WARNING, "no → systemctl start llmgwd"),
        ({"enabled": False}, Result.WARNING, "is not enabled → systemctl enable --now llmgwd"),
        (
            {"loaded": False},
            Result.WARNING,
            "is not installed → copy deploy/llmgwd.service to /etc/systemd/system, then systemctl enable --now llmgwd",
        ),
        ({}, Result.WARNING, "no → systemctl start llmgwd"),
    ],
)
def test_what_does_not_run_is_told_with_its_units_state(
    changes: dict[str, object], result: Result, words: str, nobody: Runner
):
    assert nobody.unit is not None
    check = not_running("llmgwd", "no", replace(nobody.unit, **changes), "llmgwd")  # type: ignore[arg-type]
    assert check.result is result and words in f"{check.fact} → {check.fix}"
