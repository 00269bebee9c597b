"""What the service manager says of a unit, and whether the unit's user may have what it needs.

The service manager is a script with answers as systemd 252 gives them: a machine that tests run on need not have it.
"""

import os
import pwd
from collections.abc import Callable
from pathlib import Path

import pytest

from llmgw.host import units
from llmgw.host.accounts import READ, WRITE, Account, account, ourselves
from llmgw.host.units import Unit, hindrance, unit, will_be_given

ROOT = os.geteuid() == 0
NOBODY = pwd.getpwnam("nobody")
Manager = Callable[..., None]

ANSWER = """\
Result=exit-code
ExecMainStatus=2
NRestarts=3
ExecStart={ path=/opt/llmgw/bin/llmgwd ; argv[]=/opt/llmgw/bin/llmgwd --config FILE ; ignore_errors=no ; pid=0 }
StateDirectory=llmgw llmgw-two:link
User=nobody
LoadState=loaded
ActiveState=failed
SubState=failed
UnitFileState=enabled
"""


@pytest.fixture
def manager(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Manager:
    def answers(text: str, status: int = 0) -> None:
        script = tmp_path / "bin" / "systemctl"
        script.parent.mkdir(exist_ok=True)
        script.write_text(f"#!/bin/sh\ncat <<'END'\n{text}END\nexit {status}\n")
        script.chmod(0o755)
        monkeypatch.setenv("PATH", f"{script.parent}:{os.environ['PATH']}")
        monkeypatch.setattr(units, "BOOTED", tmp_path)

    return answers


def test_a_unit_is_told_with_its_user_and_how_it_ended(manager: Manager, tmp_path: Path):
    manager(ANSWER.replace("FILE", str(tmp_path / "server.yaml")))
    found = unit("llmgwd", tmp_path / "server.yaml")
    assert found is not None and found.account is not None
    assert (found.name, found.short, found.user, found.account.uid) == (
        "llmgwd.service", "llmgwd", "nobody", NOBODY.pw_uid
    )  # fmt: skip
    assert (found.loaded, found.enabled, found.failed) == (True, True, True)
    assert (found.result, found.status, found.restarts) == ("exit-code", "2", 3)
    assert found.keeps == (Path("/var/lib/llmgw"), Path("/var/lib/llmgw-two"))


def test_a_unit_of_another_file_says_nothing_about_this_one(manager: Manager, tmp_path: Path):
    for words in ("--config /etc/llmgw/server.yaml", "--config=/etc/llmgw/server.yaml"):
        manager(ANSWER.replace("--config FILE", words))
        assert unit("llmgwd", tmp_path / "server.yaml") is None
        assert unit("llmgwd", Path("/etc/llmgw/server.yaml")) is not None


def test_a_unit_that_is_not_there_is_one_that_is_not_loaded(manager: Manager, tmp_path: Path):
    manager("LoadState=not-found\nActiveState=inactive\nUser=\n")
    found = unit("llmgwd", tmp_path)
    assert found is not None and not found.loaded and not found.enabled and not found.failed


def test_without_an_answer_there_is_no_unit(manager: Manager, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    manager("Failed to connect to bus\n", status=1)
    assert unit("llmgwd", tmp_path) is None
    manager("nonsense\n")
    assert unit("llmgwd", tmp_path) is None
    manager("END\nsleep 60\ncat <<'END'\n")
    monkeypatch.setattr(units, "LIMIT", 0.2)
    assert unit("llmgwd", tmp_path) is None
    manager(ANSWER)
    monkeypatch.setattr(units, "BOOTED", tmp_path / "no")
    assert unit("llmgwd", Path("FILE")) is None


def made(**changes: object) -> Unit:
    given = {
        "name": "llmgwd.service", "loaded": True, "enabled": True, "active": "inactive", "sub": "dead", "result": "",
        "status": "0", "restarts": 0, "user": "nobody", "account": account("nobody"),
    }  # fmt: skip
    return Unit(**given | changes)  # type: ignore[arg-type]


@pytest.fixture
def open_path(tmp_path: Path) -> Path:
    """A directory that another user gets into: pytest's own are private."""
    for one in (tmp_path, *tmp_path.parents[:-2]):
        one.chmod(0o755)
    return tmp_path


def owner() -> str:
    return ourselves().name


def test_a_file_that_the_units_user_cannot_read_is_told_with_the_way_out(open_path: Path):
    key = open_path / "a.key"
    key.touch(mode=0o600)
    key.chmod(0o600)
    fact = f"{key} has mode 0600, owner {owner()}: user nobody of unit llmgwd.service cannot read it"
    assert hindrance(made(), key, READ) == (fact, f"chown nobody: {key}")
    key.chmod(0o644)
    assert hindrance(made(), key, READ) is None
    told = hindrance(made(), key, READ | WRITE)
    assert told is not None and told[0].endswith("cannot write it")
    assert hindrance(made(user="root", account=account("root")), key, READ | WRITE) is None


def test_a_directory_above_that_is_shut_is_named(open_path: Path):
    directory = open_path / "control"
    directory.mkdir()
    (directory / "a.key").touch(mode=0o644)
    directory.chmod(0o700)
    fact = (
        f"{directory} has mode 0700, owner {owner()}: user nobody of unit llmgwd.service cannot reach {directory}/a.key"
    )
    assert hindrance(made(), directory / "a.key", READ) == (fact, f"chmod 755 {directory}")
    (open_path / "link").symlink_to(directory / "a.key")
    told = hindrance(made(), open_path / "link", READ)
    assert told is not None and "cannot reach" in told[0]


def test_what_the_unit_is_given_at_its_start_is_no_hindrance(open_path: Path):
    store = open_path / "llmgw.db"
    store.touch(mode=0o600)
    keeping = made(keeps=(open_path,))
    assert will_be_given(keeping, store) and hindrance(keeping, store, READ | WRITE) is None
    assert will_be_given(made(keeps=(open_path / "not-yet",)), open_path / "not-yet" / "llmgw.db")
    assert not will_be_given(made(keeps=(open_path / "other",)), store)


@pytest.mark.skipif(not ROOT, reason="only root gives a directory away")
def test_a_stray_file_in_a_directory_that_was_given_is_one(open_path: Path):
    """As after a llmgwd that root ran by hand: the directory is right, so what is in it is left as it is."""
    (open_path / "llmgw.db").touch()
    (open_path / "llmgw.db").chmod(0o600)
    os.chown(open_path, NOBODY.pw_uid, NOBODY.pw_gid)
    told = hindrance(made(keeps=(open_path,)), open_path / "llmgw.db", READ | WRITE)
    assert told is not None and told[1] == f"chown nobody: {open_path}/llmgw.db"


def test_a_unit_whose_user_is_not_there_is_told(tmp_path: Path):
    told = hindrance(made(user="llmgw-nosuch", account=account("llmgw-nosuch")), tmp_path, READ)
    assert told == (
        "unit llmgwd.service runs as llmgw-nosuch, which is no user of this host",
        "adduser --system --group llmgw-nosuch",
    )


def test_groups_count(tmp_path: Path):
    tmp_path.chmod(0o770)
    file = tmp_path / "file"
    file.touch()
    file.chmod(0o060)
    member = Account(name="x", uid=NOBODY.pw_uid, groups=frozenset({file.stat().st_gid}))
    assert member._may(file, READ | WRITE)
    stranger = Account(name="x", uid=NOBODY.pw_uid, groups=frozenset())
    assert not stranger._may(file, READ)
    mine = Account(name="x", uid=file.stat().st_uid or 1, groups=frozenset({file.stat().st_gid}))
    assert mine.uid == 1 or not mine._may(file, READ)  # the owner's bits alone count for the owner
