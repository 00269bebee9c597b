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
)
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
            SaveNode(NodeName("node01"), "machine-1"),
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


async def test_a_row_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    store = await open_store(tmp_path)
    await store.save([SaveAssignment(ASSIGNMENT)])
    await store.close()
    with sqlite3.connect(tmp_path / "llmgw.db") as connection:
        connection.execute("UPDATE assignments SET want = 'fly'")
    connection.close()
    store = await open_store(tmp_path)
    with pytest.raises(BadConfig, match="'fly' is not a valid Want"):
        await store.load()
    await store.close()


async def test_a_full_disk_takes_nothing_and_room_mends_it(tmp_path: Path) -> None:
    """All or nothing: the first effect of a failed save must not be found later."""
    store = await open_store(tmp_path)
    async with store._engine.begin() as connection:
        pages = (await connection.exec_driver_sql("PRAGMA page_count")).scalar()
        await connection.exec_driver_sql(f"PRAGMA max_page_count = {pages}")
    big = [SaveNode(NodeName("node01"), "m"), *(AppendEvent(happened(seq)) for seq in range(1, 2000))]
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
    with pytest.raises(ClusterCannot, match=r"llmgw\.db: cannot be used: attempt to write a readonly database"):
        await store.next_epoch()
    await store.close()


async def test_after_an_error_of_the_disk_nothing_is_tried_again(tmp_path: Path) -> None:
    """A sync that failed once may "succeed" the second time with the data gone."""
    store = await open_store(tmp_path)
    async with store._engine.begin() as connection:
        await connection.exec_driver_sql("PRAGMA query_only = ON")
    with pytest.raises(NotStored, match="cannot be written") as caught:
        await store.save([SaveNode(NodeName("node01"), "m")])
    assert caught.value.lasting
    async with store._engine.begin() as connection:
        await connection.exec_driver_sql("PRAGMA query_only = OFF")
    with pytest.raises(NotStored, match="until a restart"):
        await store.save([SaveNode(NodeName("node01"), "m")])
    assert (await store.load()).machines == {}
    await store.close()


async def test_old_events_are_forgotten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_module, "KEPT_EVENTS", 100)
    store = await open_store(tmp_path)
    await store.save([AppendEvent(happened(seq)) for seq in range(1, 1500)])
    kept = await store.events(after=0, before=10_000, most=10_000)
    assert [event.seq for event in kept] == list(range(1400, 1500))
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
    monkeypatch.setattr(schema, "VERSION", 2)
    good, bad = "CREATE TABLE usage (day TEXT PRIMARY KEY)", "CREATE TABLE nodes (name TEXT)"
    monkeypatch.setattr(schema, "MIGRATIONS", (*schema.MIGRATIONS[:1], (good, bad)))
    with pytest.raises(ClusterCannot, match="table nodes already exists"):
        await open_store(tmp_path)
    monkeypatch.setattr(schema, "MIGRATIONS", (*schema.MIGRATIONS[:1], (good,)))
    store = await open_store(tmp_path)
    assert (await store.load()).assignments == (ASSIGNMENT,)
    await store.close()
    monkeypatch.setattr(schema, "VERSION", 1)
    with pytest.raises(BadConfig, match="has schema version 2, and this llmgwd knows 1"):
        await open_store(tmp_path)


async def test_the_store_is_for_its_owner_only(tmp_path: Path) -> None:
    store = await open_store(tmp_path)
    try:
        modes = {name: os.stat(tmp_path / name).st_mode & 0o077 for name in os.listdir(tmp_path)}
    finally:
        await store.close()
    assert modes == dict.fromkeys(("llmgw.db", "llmgw.db-wal", "llmgw.db-shm", "llmgw.db.lock"), 0)
