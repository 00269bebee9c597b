"""What llmgwd refuses to start with, what `--check` finds, and what `--help` says of its end."""

import asyncio
import os
from pathlib import Path

import pytest

from llmgw.config.load import load_server
from llmgw.core.errors import BadConfig
from llmgw.core.identity import Role
from llmgw.daemon.main import check_unit
from llmgw.host import units
from llmgw.host.accounts import account, ourselves
from llmgw.host.units import Unit
from llmgw.pki.authority import init, issue
from tests.daemon.conftest import Certificates, write_config
from tests.daemon.test_process import COMMAND, llmgwd, refused


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({"lost_after": "soon"}, "lost_after: "),
        ({"colour": "red"}, "colour: unknown key"),
        ({"cluster": "lab"}, "must be for a control plane of cluster lab, not for control control of cluster demo"),
        ({"socket_group": "no-such-group"}, "socket_group: must be a group of this host, not 'no-such-group'"),
    ],
)
async def test_a_wrong_configuration_is_one_line(
    tmp_path: Path, certificates: Certificates, changes: dict[str, str], line: str
) -> None:
    status, said = await refused(tmp_path, certificates, **changes)
    assert status == 2
    assert line in said
    assert len(said.splitlines()) == 1


async def test_check_says_whether_the_configuration_is_good_and_does_nothing(
    tmp_path: Path, certificates: Certificates
) -> None:
    status, said = await refused(tmp_path, certificates, "--check")
    assert (status, said.count("\n")) == (0, 1)
    assert "good: cluster demo, 1 model, at" in said
    assert os.listdir(tmp_path) == ["server.yaml"]
    for wrong in ({"heartbeat": "1h"}, {"mirror": "nowhere"}):
        status, said = await refused(tmp_path, certificates, "--check", **wrong)
        assert (status, said.count("\n")) == (2, 1)
    assert f"server.yaml: mirror: must be a directory, not {tmp_path}/nowhere" in said


@pytest.mark.parametrize(
    ("store", "line"),
    [
        ("taken/llmgw.db", "taken is not a directory; move it away"),
        ("taken/deeper/llmgw.db", "taken is not a directory; move it away"),
        ("folder", "folder is not a file; move it away"),
        ("/proc/llmgw/llmgw.db", "/proc cannot be written"),
    ],
)
async def test_check_says_that_a_store_cannot_be_there(
    tmp_path: Path, certificates: Certificates, store: str, line: str
) -> None:
    (tmp_path / "taken").write_text("a file")
    (tmp_path / "folder").mkdir()
    status, said = await refused(tmp_path, certificates, "--check", store=store)
    assert (status, said.count("\n")) == (2, 1)
    assert line in said


async def test_check_finds_nothing_wrong_while_it_runs(tmp_path: Path, certificates: Certificates) -> None:
    async with llmgwd(tmp_path, certificates) as daemon:
        status, said = await refused(tmp_path, certificates, "--check", listen=f"127.0.0.1:{daemon.port}")
        assert (status, said.count("\n")) == (0, 1), said


def test_check_judges_the_files_for_the_user_of_the_unit(
    tmp_path: Path, certificates: Certificates, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Root can use them all, and a start would still fail. The service manager is in tests/host/test_units.py."""
    file = write_config(tmp_path, certificates)
    for one in (tmp_path, *tmp_path.parents[:-2]):
        one.chmod(0o755)
    file.chmod(0o600)
    nobody = Unit(
        name="llmgwd.service", loaded=True, enabled=True, active="inactive", sub="dead", result="", status="0",
        restarts=0, user="nobody", account=account("nobody"),
    )  # fmt: skip
    monkeypatch.setattr(units, "unit", lambda program, file: nobody)
    with pytest.raises(BadConfig) as refused:
        check_unit(load_server(file), file)
    assert str(refused.value) == (
        f"{file}: has mode 0600, owner {ourselves().name}: user nobody of unit llmgwd.service cannot read it; "
        f"chown nobody: {file}"
    )
    monkeypatch.setattr(units, "unit", lambda program, file: None)
    check_unit(load_server(file), file)


async def test_help_says_what_it_ends_with() -> None:
    process = await asyncio.create_subprocess_exec(*COMMAND, "--help", stdout=asyncio.subprocess.PIPE)
    said, _ = await process.communicate()
    statuses = [line.split()[0] for line in said.decode().split("exit status:\n")[1].splitlines()]
    assert statuses == ["0", "2", "3", "4", "70"]


@pytest.mark.parametrize("trouble", ["readable by all", "missing", "of an agent", "no certificate"])
async def test_trouble_with_the_certificate_is_one_line(tmp_path: Path, trouble: str) -> None:
    init(tmp_path / "authority", "demo")
    files = Certificates.__new__(Certificates)
    files.root = tmp_path / "pki"
    role = Role.AGENT if trouble == "of an agent" else Role.CONTROL
    issue(tmp_path / "authority", "control", role, ["127.0.0.1"], files.root)
    if trouble == "readable by all":
        (files.root / "control.key").chmod(0o644)
    elif trouble == "missing":
        (files.root / "control.crt").unlink()
    elif trouble == "no certificate":
        (files.root / "control.crt").write_text("-----BEGIN CERTIFICATE-----\nno\n-----END CERTIFICATE-----\n")
    status, said = await refused(tmp_path, files)
    assert status == 2
    assert len(said.splitlines()) == 1, said
    assert "control." in said
    assert "llmgw.db" not in os.listdir(tmp_path), "the store was touched before the certificate was looked at"
