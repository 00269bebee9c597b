"""The store keeps what it acknowledged, names what it cannot use, and has one writer."""

import asyncio
import os
import sqlite3
import time
from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy import create_engine, inspect

from llmgw.core.catalog import Scaled
from llmgw.core.effects import (
    AppendEvent,
    Assignment,
    DropAssignment,
    DropOverlay,
    SaveAssignment,
    SaveNode,
    SaveOrdinal,
    SaveOverlay,
    SaveRelease,
)
from llmgw.core.engines.orders import Release, ReleaseFile
from llmgw.core.engines.terms import EngineKind
from llmgw.core.errors import BadConfig, ClusterCannot
from llmgw.core.events import Event, EventKind
from llmgw.core.facts import Profile, Want
from llmgw.core.names import ModelName, NodeName, ReplicaId
from llmgw.core.units import MIB, Bytes
from llmgw.daemon import schema
from llmgw.daemon import store as store_module
from llmgw.daemon.store import NotStored, Store

PROFILE = Profile(engine="llama.cpp", weights="/w/gemma.gguf", memory=Bytes(600 * MIB), arguments=("-fa", "on"))
ASSIGNMENT = Assignment(
    replica=ReplicaId("gemma/0"),
    model=ModelName("gemma"),
    nodes=(NodeName("node01"), NodeName("node02")),
    want=Want.RUN,
    profile=PROFILE,
    placed_at=1764567890.25,
)
RELEASE = Release(
    engine="llama.cpp",
    version="b10485",
    kind=EngineKind.ARCHIVE,
    files=(ReleaseFile(name="llama.tar.gz", size=Bytes(7), digest="sha256:" + "a" * 64, url="https://host/x"),),
)
LOCKED = replace(RELEASE, engine="vllm", version="0.33.0", kind=EngineKind.PYTHON, variant="cpu", python="3.12")
SCALED = Scaled(model=ModelName("gemma"), replicas=3, declared=2, by="operator ana")


def happened(seq: int) -> Event:
    return Event(
        seq=seq, at=1.5 * seq, kind=EventKind.SHARD_FAILED, subject="gemma/0.0", text="exit 1", lines=("a", "b\x1b[2J")
    )


async def open_store(path: Path, cluster: str = "demo") -> Store:
    return await Store.open(path / "llmgw.db", cluster)


async def test_what_was_saved_comes_back_after_reopening(tmp_path: Path) -> None:
    store = await open_store(tmp_path)
    await store.save(
        [
            SaveAssignment(ASSIGNMENT),
            SaveAssignment(replace(ASSIGNMENT, want=Want.DRAIN)),
            SaveOrdinal(ModelName("gemma"), 1),
            SaveOverlay(SCALED),
            SaveNode(NodeName("node01"), "machine-1", Bytes(8 << 30)),
            SaveRelease(replace(RELEASE, files=()), "v0.4.0"),
            SaveRelease(RELEASE, "v0.4.1"),
            SaveRelease(LOCKED, "0.33.0"),
            SaveRelease(replace(LOCKED, variant="cuda"), "0.33.0"),
            AppendEvent(happened(1)),
            AppendEvent(happened(2)),
        ]
    )
    await store.close()
    store = await open_store(tmp_path)
    stored = await store.load()
    assert stored.assignments == (replace(ASSIGNMENT, want=Want.DRAIN),)
    assert stored.ordinals == {"gemma": 1}
    assert stored.overlays == (SCALED,)
    assert stored.machines == {"node01": "machine-1"}
    assert stored.memories == {"node01": 8 << 30}
    assert stored.releases == (
        ("v0.4.1", RELEASE),
        ("0.33.0", LOCKED),
        ("0.33.0", replace(LOCKED, variant="cuda")),
    )
    assert stored.seq == 2
    assert await store.events(after=0, before=3, most=10) == [happened(1), happened(2)]
    assert await store.events(after=1, before=9, most=10) == [happened(2)]
    assert await store.events(after=0, before=9, most=1) == [happened(1)]
    await store.save([DropAssignment(ReplicaId("gemma/0")), DropOverlay(ModelName("gemma"))])
    stored = await store.load()
    assert (stored.assignments, stored.overlays) == ((), ())
    await store.close()


async def test_the_epoch_grows_with_every_start_even_when_the_clock_went_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = await open_store(tmp_path)
    first = await store.next_epoch()
    assert first >= 1_700_000_000
    monkeypatch.setattr(store_module.time, "time", lambda: 1.0)
    assert await store.next_epoch() == first + 1
    await store.close()


async def test_a_second_llmgwd_is_refused_at_once_and_told_who_has_it(tmp_path: Path) -> None:
    first = await open_store(tmp_path)
    before = time.monotonic()
    with pytest.raises(ClusterCannot, match=r"llmgw\.db: is in use by llmgwd \(pid \d+\)"):
        await open_store(tmp_path)
    assert time.monotonic() - before < 1
    await first.close()
    await (await open_store(tmp_path)).close()


@pytest.mark.parametrize(
    "effect",
    [
        SaveNode(NodeName("node01"), "machine-1", Bytes(1 << 63)),
        SaveNode(NodeName("node01"), "half a pair: \ud800", Bytes(1)),
        SaveOrdinal(ModelName("gemma"), None),  # type: ignore[arg-type]
    ],
    ids=["number", "text", "nothing"],
)
async def test_a_value_that_no_row_can_hold_is_named_and_the_store_goes_on(
    tmp_path: Path, effect: SaveNode | SaveOrdinal
) -> None:
    store = await open_store(tmp_path)
    with pytest.raises(NotStored, match=r"cannot be stored: .*; nothing was changed") as caught:
        await store.save([SaveOverlay(SCALED), effect])
    assert caught.value.unwritable is effect
    assert not caught.value.lasting
    assert (await store.load()).overlays == ()
    await store.save([SaveOverlay(SCALED)])
    assert (await store.load()).overlays == (SCALED,)
    await store.close()


async def test_another_clusters_store_is_refused(tmp_path: Path) -> None:
    await (await open_store(tmp_path, "lab")).close()
    with pytest.raises(BadConfig, match="belongs to cluster 'lab', not to 'demo'"):
        await open_store(tmp_path, "demo")
    await (await open_store(tmp_path, "lab")).close()


async def test_a_newer_schema_refuses_to_start(tmp_path: Path) -> None:
    await (await open_store(tmp_path)).close()
    with sqlite3.connect(tmp_path / "llmgw.db") as connection:
        connection.execute("UPDATE meta SET value = '99' WHERE name = 'schema_version'")
    connection.close()
    with pytest.raises(BadConfig, match=f"has schema version 99, and this llmgwd knows {schema.VERSION}"):
        await open_store(tmp_path)


@pytest.mark.parametrize("content", [b"not a database at all, but long enough to be one" * 100, b"\x00" * 5000])
async def test_a_file_that_is_no_database_is_named_and_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "llmgw.db").write_bytes(content)
    with pytest.raises(BadConfig, match=r"llmgw\.db: is damaged"):
        await open_store(tmp_path)
    assert (tmp_path / "llmgw.db").read_bytes() == content


async def test_a_damaged_page_is_found_at_the_start(tmp_path: Path) -> None:
    store = await open_store(tmp_path)
    await store.save([AppendEvent(happened(seq)) for seq in range(1, 500)])
    await store.close()
    file = tmp_path / "llmgw.db"
    content = bytearray(file.read_bytes())
    for page in range(3, len(content) // 4096):
        content[page * 4096 : page * 4096 + 64] = b"\xff" * 64
    file.write_bytes(content)
    with pytest.raises(BadConfig, match="is damaged"):
        await open_store(tmp_path)


async def test_a_database_of_something_else_is_refused(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "llmgw.db") as connection:
        connection.execute("CREATE TABLE cookies (name TEXT)")
    connection.close()
    with pytest.raises(BadConfig, match="not a store of llmgwd"):
        await open_store(tmp_path)


async def kept(path: Path) -> None:
    """Leave a store with a row in every table."""
    store = await open_store(path)
    await store.next_epoch()
    await store.save(
        [
            SaveAssignment(ASSIGNMENT),
            SaveOrdinal(ModelName("gemma"), 1),
            SaveOverlay(SCALED),
            SaveNode(NodeName("node01"), "machine-1", Bytes(8 << 30)),
            SaveRelease(RELEASE, "v0.4.1"),
            AppendEvent(happened(1)),
        ]
    )
    await store.close()


def harm(path: Path, statement: str) -> None:
    with sqlite3.connect(path / "llmgw.db") as connection:
        connection.execute(statement)
    connection.close()


async def come_up(path: Path) -> None:
    """Read all that a start reads."""
    store = await open_store(path)
    try:
        stored = await store.load()
        await store.next_epoch()
        await store.events(after=stored.seq - 100, before=stored.seq + 1, most=100)
    finally:
        await store.close()


PROFILE_JSON = '{"engine": "llama.cpp", "weights": "/w", "memory": 1, "arguments": []}'


@pytest.mark.parametrize(
    ("statement", "named"),
    [
        ("UPDATE meta SET value = 'soon' WHERE name = 'epoch'", "table meta: row 'epoch': value: 'soon' is not"),
        (f"UPDATE meta SET value = '{10**23}' WHERE name = 'epoch'", "table meta: row 'epoch': value: '1000"),
        ("UPDATE meta SET value = '٣' WHERE name = 'epoch'", "row 'epoch': value: '.u0663' is not a number"),
        ("UPDATE meta SET value = '1.5' WHERE name = 'schema_version'", "table meta: row 'schema_version': value:"),
        (f"UPDATE meta SET value = '{'9' * 5000}' WHERE name = 'schema_version'", "row 'schema_version': value:"),
        ("DELETE FROM meta WHERE name = 'cluster'", "table meta: row 'cluster' is missing"),
        ("UPDATE meta SET value = CAST(x'ff' AS TEXT) WHERE name = 'cluster'", "row 'cluster': value: .* is not UTF-8"),
        (f"UPDATE events SET seq = {2**63 - 1}", f"table events: row {2**63 - 1}: seq: .* is not a number from 1 to"),
        ("UPDATE events SET seq = -1", "table events: row -1: seq: -1 is not a number"),
        ("UPDATE events SET seq = 'last'", "table events: row 'last': seq: 'last' is not a number"),
        ("UPDATE events SET kind = 'x'", "table events: row 1: kind: 'x' is not a valid EventKind"),
        ("UPDATE events SET cause = -3", "row 1: cause: -3 is not"),
        ("UPDATE events SET at = 9e999", "row 1: at: inf is not a time"),
        ("UPDATE events SET lines = '[1]'", "row 1: lines: 1 is not text"),
        (f"UPDATE events SET lines = '{'[' * 5000}'", "row 1: lines: is not JSON"),
        ("UPDATE events SET text = CAST(x'61ff62' AS TEXT)", r"table events: row 1: text: 'a.udcffb' is not UTF-8"),
        ("UPDATE events SET text = x'61'", "table events: row 1: text: b'a' is not text"),
        ("UPDATE assignments SET want = 'fly'", "table assignments: row 'gemma/0': want: 'fly' is not a valid Want"),
        ("UPDATE assignments SET nodes = '[]'", "table assignments: row 'gemma/0': nodes: is empty"),
        ("UPDATE assignments SET nodes = '{}'", "row 'gemma/0': nodes: {} is not a list"),
        ("UPDATE assignments SET nodes = '[7]'", "row 'gemma/0': nodes: 7 is not text"),
        ("""UPDATE assignments SET nodes = '["Node 1"]'""", "row 'gemma/0': 'Node 1' is not a name for a node"),
        ("UPDATE assignments SET replica = 'gemma/07'", "row 'gemma/07': replica: 'gemma/07' is not MODEL/ORDINAL"),
        ("UPDATE assignments SET replica = 'phi/0'", "row 'phi/0': replica: 'phi/0' is none of model gemma"),
        ("UPDATE assignments SET adopted = 7", "row 'gemma/0': adopted: 7 is not a number from 0 to 1"),
        ("UPDATE assignments SET placed_at = 'noon'", "row 'gemma/0': placed_at: 'noon' is not a time"),
        ("UPDATE assignments SET profile = '{}'", "row 'gemma/0': profile: engine is missing"),
        (
            f"UPDATE assignments SET profile = '{PROFILE_JSON.replace('1', '-1')}'",
            "row 'gemma/0': profile: memory: -1 is not",
        ),
        (
            f"UPDATE assignments SET profile = '{PROFILE_JSON.replace('[]', '7')}'",
            "row 'gemma/0': profile: arguments: 7 is not a list",
        ),
        (
            f"UPDATE assignments SET profile = '{PROFILE_JSON.replace('weights', 'wait')}'",
            "row 'gemma/0': profile: 'wait' is not known",
        ),
        ("UPDATE ordinals SET next = -5", "table ordinals: row 'gemma': next: -5 is not a number from 0 to"),
        ("UPDATE ordinals SET next = 1.5", "table ordinals: row 'gemma': next: 1.5 is not a number"),
        ("UPDATE overlays SET replicas = -5", "table overlays: row 'gemma': replicas: -5 is not"),
        ("UPDATE overlays SET replicas = 99999999", "replicas: 99999999 is not a number from 0 to 10000"),
        ("UPDATE overlays SET declared = 10001", "row 'gemma': declared: 10001 is not"),
        ("UPDATE nodes SET name = '../etc'", "table nodes: row '../etc': '../etc' is not a name for a node"),
        ("UPDATE nodes SET machine = 'a b'", "table nodes: row 'node01': machine: 'a b' is not the id of a machine"),
        ("UPDATE nodes SET machine = CAST(x'ff' AS TEXT)", "row 'node01': machine: .* is not UTF-8"),
        ("UPDATE releases SET release = '{'", "table releases: row 'llama.cpp/b10485/': release: is not JSON"),
        ("UPDATE releases SET release = x'7b7d'", "row 'llama.cpp/b10485/': release: b'{}' is not text"),
        (
            "UPDATE releases SET release = replace(release, 'sha256', 'md5')",
            "row 'llama.cpp/b10485/': release: files: 0: digest: 'md5:a",
        ),
        (
            "UPDATE releases SET release = replace(release, 'llama.tar.gz', '../x')",
            "release: files: 0: name: '../x' is not a name for a file",
        ),
        ("UPDATE releases SET name = 'llama.cpp/b1/'", "row 'llama.cpp/b1/': name: 'llama.cpp/b1/' is not the name of"),
        ("UPDATE releases SET wanted = CAST(x'ff' AS TEXT)", "row 'llama.cpp/b10485/': wanted: .* is not UTF-8"),
        ("DROP TABLE releases", "no such table: releases"),
        ("DROP TABLE nodes", "no such table: nodes"),
        ("DROP TABLE events", "no such table: events"),
        ("ALTER TABLE overlays RENAME COLUMN declared TO said", "no such column: overlays.declared"),
        ("ALTER TABLE events RENAME COLUMN lines TO output", "no such column: events.lines"),
    ],
)
async def test_what_no_version_of_ours_wrote_is_named_with_a_way_out(
    tmp_path: Path, statement: str, named: str
) -> None:
    """One kind of error for all damage, and nothing is taken as it is."""
    await kept(tmp_path)
    harm(tmp_path, statement)
    with pytest.raises(BadConfig, match=named) as caught:
        await come_up(tmp_path)
    assert str(caught.value).startswith(f"{tmp_path}/llmgw.db: is damaged: ")
    assert str(caught.value).endswith("; restore a backup, or move it away: engines that run are then adopted")


async def test_the_widest_of_what_may_be_stored_comes_back(tmp_path: Path) -> None:
    """An adopted profile is as an agent gave it; a store that cannot be read again would be worse than the node."""
    widest = replace(PROFILE, context=2**32 - 1, slots=0, threads=2**32 - 1, memory=Bytes(2**64 - 1), version="")
    taken = replace(ASSIGNMENT, replica=ReplicaId("gemma/999999999"), profile=widest, adopted=True)
    store = await open_store(tmp_path)
    await store.save([SaveAssignment(taken), SaveOrdinal(ModelName("gemma"), 10**9)])
    assert (await store.load()).assignments == (taken,)
    await store.close()


async def test_a_full_disk_takes_nothing_and_room_mends_it(tmp_path: Path) -> None:
    """All or nothing: the first effect of a failed save must not be found later."""
    store = await open_store(tmp_path)
    async with store._engine.begin() as connection:
        pages = (await connection.exec_driver_sql("PRAGMA page_count")).scalar()
        await connection.exec_driver_sql(f"PRAGMA max_page_count = {pages}")
    big = [SaveNode(NodeName("node01"), "m", Bytes(8 << 30)), *(AppendEvent(happened(seq)) for seq in range(1, 300))]
    with pytest.raises(NotStored, match=r"takes nothing: database or disk is full; nothing was changed") as caught:
        await store.save(big)
    assert not caught.value.lasting
    assert (await store.load()).machines == {}
    async with store._engine.begin() as connection:
        await connection.exec_driver_sql("PRAGMA max_page_count = 1000000")
    await store.save(big)
    assert (await store.load()).machines == {"node01": "m"}
    await store.close()


async def test_a_start_on_a_full_disk_is_refused_in_words(tmp_path: Path) -> None:
    store = await open_store(tmp_path)
    async with store._engine.begin() as connection:
        await connection.exec_driver_sql("PRAGMA query_only = ON")
    with pytest.raises(ClusterCannot, match=r"llmgw\.db: cannot be used: attempt to write a readonly database; see to"):
        await store.next_epoch()
    await store.close()


async def test_after_an_error_of_the_disk_nothing_is_tried_again(tmp_path: Path) -> None:
    """A sync that failed once may "succeed" the second time with the data gone."""
    store = await open_store(tmp_path)
    async with store._engine.begin() as connection:
        await connection.exec_driver_sql("PRAGMA query_only = ON")
    with pytest.raises(NotStored, match="cannot be written") as caught:
        await store.save([SaveNode(NodeName("node01"), "m", Bytes(8 << 30))])
    assert caught.value.lasting
    async with store._engine.begin() as connection:
        await connection.exec_driver_sql("PRAGMA query_only = OFF")
    with pytest.raises(NotStored, match="until a restart"):
        await store.save([SaveNode(NodeName("node01"), "m", Bytes(8 << 30))])
    assert (await store.load()).machines == {}
    await store.close()


async def test_old_events_are_forgotten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_module, "KEPT_EVENTS", 100)
    monkeypatch.setattr(store_module, "_PRUNE_EACH", 250)
    store = await open_store(tmp_path)
    await store.save([AppendEvent(happened(seq)) for seq in range(1, 300)])
    kept = await store.events(after=0, before=10_000, most=10_000)
    assert [event.seq for event in kept] == list(range(200, 300))
    await store.close()


async def test_reading_and_writing_at_once_do_not_meet(tmp_path: Path) -> None:
    store = await open_store(tmp_path)

    async def write(seq: int) -> None:
        await store.save([AppendEvent(happened(seq))])

    async with asyncio.TaskGroup() as group:
        for seq in range(1, 30):
            group.create_task(write(seq))
            group.create_task(store.events(after=0, before=seq, most=5))
    assert len(await store.events(after=0, before=100, most=100)) == 29
    await store.close()


async def test_the_migrations_lead_to_the_tables_of_the_schema(tmp_path: Path) -> None:
    await (await open_store(tmp_path)).close()
    engine = create_engine(f"sqlite:///{tmp_path / 'llmgw.db'}")
    found = {
        table: {column["name"]: column["nullable"] for column in inspect(engine).get_columns(table)}
        for table in inspect(engine).get_table_names()
    }
    engine.dispose()
    assert found == {
        table.name: {column.name: column.nullable for column in table.columns}
        for table in schema.metadata.sorted_tables
    }


async def test_an_older_store_is_brought_up_to_date_and_a_failed_step_leaves_it_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = await open_store(tmp_path)
    await store.save([SaveAssignment(ASSIGNMENT)])
    await store.close()
    version = schema.VERSION
    monkeypatch.setattr(schema, "VERSION", version + 1)
    good, bad = "CREATE TABLE usage (day TEXT PRIMARY KEY)", "CREATE TABLE nodes (name TEXT)"
    monkeypatch.setattr(schema, "MIGRATIONS", (*schema.MIGRATIONS, (good, bad)))
    with pytest.raises(BadConfig, match="is damaged: table nodes already exists; restore"):
        await open_store(tmp_path)
    monkeypatch.setattr(schema, "MIGRATIONS", (*schema.MIGRATIONS[:-1], (good,)))
    store = await open_store(tmp_path)
    assert (await store.load()).assignments == (ASSIGNMENT,)
    await store.close()
    monkeypatch.setattr(schema, "VERSION", version)
    with pytest.raises(BadConfig, match=f"has schema version {version + 1}, and this llmgwd knows {version}"):
        await open_store(tmp_path)


async def test_a_node_of_a_store_that_kept_no_memory_has_registered_with_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    migrations = schema.MIGRATIONS
    monkeypatch.setattr(schema, "MIGRATIONS", migrations[:1])
    monkeypatch.setattr(schema, "VERSION", 1)
    store = await open_store(tmp_path)
    async with store._engine.begin() as connection:
        await connection.exec_driver_sql("INSERT INTO nodes (name, machine) VALUES ('node01', 'machine-1')")
    await store.close()
    monkeypatch.setattr(schema, "MIGRATIONS", migrations)
    monkeypatch.setattr(schema, "VERSION", len(migrations))
    store = await open_store(tmp_path)
    stored = await store.load()
    await store.close()
    assert (stored.machines, stored.memories) == ({"node01": "machine-1"}, {"node01": 0})


async def test_the_store_is_for_its_owner_only(tmp_path: Path) -> None:
    store = await open_store(tmp_path)
    try:
        modes = {name: os.stat(tmp_path / name).st_mode & 0o077 for name in os.listdir(tmp_path)}
    finally:
        await store.close()
    assert modes == dict.fromkeys(("llmgw.db", "llmgw.db-wal", "llmgw.db-shm", "llmgw.db.lock"), 0)
