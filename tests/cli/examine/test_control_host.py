"""A control host whose llmgwd does not run, and one whose does."""

import asyncio
import os
import socket
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
import yaml

from llmgw.cli.examine.control_host import control_host
from llmgw.cli.examine.findings import Findings
from llmgw.config.load import load_server
from llmgw.core.checks import Result
from llmgw.core.identity import Role
from llmgw.daemon import schema
from llmgw.daemon.serve import serve as run
from llmgw.host import units
from llmgw.host.accounts import account
from llmgw.host.units import Unit
from llmgw.pki import authority

Host = Callable[..., Path]


@pytest.fixture(scope="module")
def pki(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("pki")
    authority.init(root / "pki", "demo")
    for name in ("control", "again"):
        authority.issue(root / "pki", name, Role.CONTROL, ["127.0.0.1"], root / name)
    return root


@pytest.fixture
def host(tmp_path: Path, pki: Path) -> Host:
    """Writes a server.yaml of a host where all is well but for the changes."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        listen = f"127.0.0.1:{free.getsockname()[1]}"

    def write(name: str = "control", **changes: object) -> Path:
        files = {"certificate": f"{name}.crt", "key": f"{name}.key", "authority": "authority.crt"}
        tls = {key: str(pki / name / file) for key, file in files.items()}
        content = {"cluster": "demo", "listen": listen, "socket": "run/d.sock", "store": "llmgw.db", "tls": tls}
        path = tmp_path / "server.yaml"
        path.write_text(yaml.safe_dump(content | changes))
        return path

    return write


def wrong(found: Findings) -> list[str]:
    return [f"{one.name}: {one.fact} → {one.fix}" for one in found.checks if one.result is not Result.OK]


async def test_one_that_does_not_run_is_told_to_be_started(host: Host):
    file = host()
    found = await control_host(file, 1.0)
    assert wrong(found) == [f"llmgwd: is not running with this store → start it: llmgwd --config {file}"]
    assert found.alone


async def test_one_that_runs_shows_its_certificate_and_tells_its_time(host: Host):
    file = host()
    stop, hangup, where = asyncio.Event(), asyncio.Event(), asyncio.get_running_loop().create_future()
    async with asyncio.TaskGroup() as group:
        group.create_task(run(load_server(file), file, stop, hangup, where.set_result))
        await where
        found = await control_host(file, 2.0)
        other = await control_host(host("again"), 2.0)
        stop.set()
    assert wrong(found) == []
    told = [f"{one.name}: {one.fact}" for one in found.checks]
    assert f"llmgwd: runs (pid {os.getpid()})" in told
    assert any(text.endswith("it listens, and shows the certificate that is in the file") for text in told)
    assert [skew.address for skew in found.skews] == [str(file.parent / "run" / "d.sock")]
    (text,) = wrong(other)
    assert "it shows another certificate (SHA-256 " in text and text.endswith("so that it takes the new one")


async def test_an_address_that_another_program_has_is_a_fault_with_its_name(host: Host):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        found = wrong(await control_host(host(listen=f"127.0.0.1:{port}"), 1.0))
    (text,) = [one for one in found if one.startswith("address")]
    assert f"listen: cannot listen at 127.0.0.1:{port}: address already in use: " in text
    assert f"(pid {os.getpid()}) listens there → stop what listens there" in text


async def test_where_figures_are_served_is_looked_at_too(host: Host):
    found = wrong(await control_host(host(metrics="192.0.2.77:9480"), 1.0))
    assert (
        "address: metrics: cannot listen at 192.0.2.77:9480: cannot assign requested address → name an address of this "
        "host with metrics: (`ip address` lists them)"
    ) in found
    with socket.create_server(("127.0.0.1", 0)) as taken:
        found = wrong(await control_host(host(metrics=f"127.0.0.1:{taken.getsockname()[1]}"), 1.0))
    assert any("or name another address with metrics:" in text for text in found)


async def test_below_a_file_there_is_no_store_and_nobody_has_it(host: Host, tmp_path: Path):
    (tmp_path / "taken").touch()
    found = wrong(await control_host(host(store=str(tmp_path / "taken" / "llmgw.db")), 1.0))
    assert [text.partition(":")[0] for text in found] == ["directory", "llmgwd"]
    assert f"{tmp_path}/taken is no directory" in found[0]


async def test_the_units_user_is_judged_and_how_the_unit_ended_is_told(
    host: Host, pki: Path, monkeypatch: pytest.MonkeyPatch
):
    """As root sees a host where llmgwd is another user's; units are looked at for themselves beside units.py."""
    nobody = Unit(
        name="llmgwd.service", loaded=True, enabled=True, active="failed", sub="failed", result="exit-code", status="2",
        restarts=0, user="nobody", account=account("nobody"),
    )  # fmt: skip
    monkeypatch.setattr(units, "unit", lambda program, file: nobody)
    found = (await control_host(host(), 1.0)).checks
    faults = [f"{one.name}: {one.fact} → {one.fix}" for one in found if one.result is Result.FAULT]
    key = f"{pki}/control/control.key"
    assert any("user nobody of unit llmgwd.service cannot re" in text and key in text for text in faults)
    assert any(text.startswith("directory: store ") and "user nobody of unit" in text for text in faults)
    assert (
        "llmgwd: is not running with this store; unit llmgwd.service failed (result exit-code, exit status 2) → "
        "journalctl -u llmgwd -n 20 says why"
    ) in faults
    assert not any(one.name == "files" and one.result is Result.OK for one in found)


async def test_a_group_that_is_not_there_is_a_fault(host: Host):
    found = wrong(await control_host(host(socket_group="nosuch"), 1.0))
    assert "socket: socket_group nosuch is no group of this host → adduser --system --group nosuch" in found


async def test_the_certificate_must_be_of_this_cluster(host: Host):
    assert any("the file says cluster prod" in text for text in wrong(await control_host(host(cluster="prod"), 1.0)))


def store(path: Path, **meta: str) -> None:
    with closing(sqlite3.connect(path)) as made:
        made.execute("PRAGMA journal_mode=WAL")
        made.execute("CREATE TABLE meta (name TEXT PRIMARY KEY, value TEXT)")
        made.executemany("INSERT INTO meta VALUES (?, ?)", meta.items())
        made.commit()


@pytest.mark.parametrize(
    ("meta", "words"),
    [
        ({"schema_version": str(schema.VERSION + 1), "cluster": "demo"}, "run the newer llmgwd"),
        ({"cluster": "demo"}, "has schema version none"),
        (
            {"schema_version": "1", "cluster": "prod"},
            "belongs to cluster prod, not to demo → correct cluster: in server.yaml; or, where",
        ),
    ],
)
async def test_a_store_of_another_is_a_fault(meta: dict[str, str], words: str, host: Host):
    file = host()
    store(file.parent / "llmgw.db", **meta)
    assert any(text.startswith("store: ") and words in text for text in wrong(await control_host(file, 1.0)))


async def test_a_store_is_read_and_nothing_is_left_beside_it(host: Host):
    file = host()
    store(file.parent / "llmgw.db", schema_version="1", cluster="demo")
    before = sorted(file.parent.iterdir())
    told = [one.fact for one in (await control_host(file, 1.0)).checks if one.name == "store"]
    assert told == [f"{file.parent / 'llmgw.db'} is of cluster demo, schema version 1"]
    assert sorted(file.parent.iterdir()) == before
    (file.parent / "llmgw.db-wal").write_bytes(b"x")
    assert any("was not closed in order" in one.fact for one in (await control_host(file, 1.0)).checks)


async def test_a_store_that_is_none_is_a_fault_and_is_left_as_it_is(host: Host):
    file = host()
    (file.parent / "llmgw.db").write_bytes(b"not a database" * 100)
    found = wrong(await control_host(file, 1.0))
    assert any("cannot be read: file is not a database → restore a backup" in text for text in found)
    assert sorted(one.name for one in file.parent.iterdir()) == ["llmgw.db", "server.yaml"]


async def test_with_a_broken_file_the_rest_is_looked_at(host: Host):
    file = host(stores="x", heartbeat="soon")
    found = wrong(await control_host(file, 1.0))
    assert [text.split(":", 3)[3].split(" → ")[0] for text in found if text.startswith("configuration")] == [
        " heartbeat: must be a duration such as 500ms, 60s or 10m, not 'soon'",
        " stores: unknown key; did you mean store?",
    ]
    assert any(text.startswith("llmgwd: is not running") for text in found)
