"""What outlives the control plane, and when is it safe on disk? One SQLite file, written by one llmgwd.

`save` returns when everything in it is on disk, in one transaction. What agents report is not here: it comes back when
they reconnect. The lock is a file beside the store, for SQLite's own would let a second llmgwd in between two writes.
"""

import asyncio
import fcntl
import os
import sqlite3
import time
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, Self, TypeVar

from sqlalchemy import URL, RowMapping, Table, delete, event, func, select, text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine
from sqlalchemy.pool import StaticPool

from llmgw.core.effects import AppendEvent, Persist
from llmgw.core.errors import BadConfig, BadName, ClusterCannot
from llmgw.core.events import Event
from llmgw.core.ledger import Stored
from llmgw.daemon import rows, schema

KEPT_EVENTS = 20_000
"""Older events are forgotten."""

_PRUNE_EACH = 1_000
"""Events between two looks for old ones."""

_TRANSIENT = (sqlite3.SQLITE_FULL, sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)

T = TypeVar("T")


class NotStored(ClusterCannot):
    """The store took nothing; what was asked did not happen."""

    code = "not_stored"

    def __init__(self, text: str, *, lasting: bool = False) -> None:
        super().__init__(text)
        self.lasting = lasting
        """The disk failed, and what it holds is not known: nothing is written again before a restart."""


class Store:
    """The store of one cluster, open and locked. Close it."""

    def __init__(self, path: Path, engine: AsyncEngine, lock: int) -> None:
        self.path = path
        self._engine, self._lock = engine, lock
        self._appended = 0
        self._broken: NotStored | None = None
        self._turn = asyncio.Lock()

    @classmethod
    async def open(cls, path: Path, cluster: str) -> Self:
        """Open or make the store of `cluster`, at this version's schema.

        Raises BadConfig when it is damaged, newer than this llmgwd or another cluster's, ClusterCannot when another
        llmgwd has it or its disk does not let us.
        """
        lock = _lock(path)
        store = cls(path, _engine(path), lock)
        try:
            await store._bring_up_to_date(cluster)
        except sqlite3.Error as error:  # from the settings of a new connection, which the library does not wrap
            await store.close()
            raise store._unusable(error) from None
        except BaseException:
            await store.close()
            raise
        return store

    async def close(self) -> None:
        """Let go of the file; whoever opens it next finds all that was saved."""
        await self._engine.dispose()
        os.close(self._lock)

    async def next_epoch(self) -> int:
        """Return the epoch of this start, higher than any before, and store it.

        At least the seconds since 1970: a store restored from a backup still gives a higher one.
        """
        epoch = max(int(await self._meta("epoch", "0")) + 1, int(time.time()))
        async with self._transaction() as connection:
            await connection.execute(rows.put(schema.meta, name="epoch", value=str(epoch)))
        return epoch

    async def load(self) -> Stored:
        """Return all that is remembered, or raise BadConfig naming what cannot be read."""
        async with self._transaction() as connection:
            seq = (await connection.execute(select(func.max(schema.events.c.seq)))).scalar()
            return Stored(
                assignments=tuple(await self._all(connection, schema.assignments, rows.assignment)),
                ordinals=dict(await self._all(connection, schema.ordinals, rows.ordinal)),
                overlays=tuple(await self._all(connection, schema.overlays, rows.overlay)),
                machines=dict(await self._all(connection, schema.nodes, rows.machine)),
                seq=int(seq or 0),
            )

    async def events(self, *, after: int, before: int, most: int) -> list[Event]:
        """Return the oldest `most` events with a seq between the two, in order."""
        seq = schema.events.c.seq
        query = select(schema.events).where(seq > after, seq < before).order_by(seq).limit(most)
        async with self._transaction() as connection:
            found = (await connection.execute(query)).mappings().all()
        return [self._read(rows.event, row) for row in found]

    async def save(self, effects: Sequence[Persist]) -> None:
        """Store all `effects` in one transaction, or none of them and raise NotStored.

        After a failure that is not lack of room every later call raises too: what a disk does that failed to sync
        is not known, and trying again would only look like success.
        """
        if self._broken is not None:
            raise self._broken
        try:
            async with self._turn, self._engine.begin() as connection:
                for effect in effects:
                    await connection.execute(rows.statement(effect))
                await self._prune(connection, effects)
        except DBAPIError as error:
            raise self._failed(error) from None

    # --- inside -------------------------------------------------------------------------------------------------

    @asynccontextmanager
    async def _transaction(self) -> AsyncIterator[AsyncConnection]:
        try:
            async with self._turn, self._engine.begin() as connection:
                yield connection
        except DBAPIError as error:
            raise self._unusable(error) from None

    async def _prune(self, connection: AsyncConnection, effects: Iterable[Persist]) -> None:
        appended = [effect.event.seq for effect in effects if isinstance(effect, AppendEvent)]
        self._appended += len(appended)
        if self._appended >= _PRUNE_EACH:
            self._appended = 0
            await connection.execute(delete(schema.events).where(schema.events.c.seq <= max(appended) - KEPT_EVENTS))

    async def _bring_up_to_date(self, cluster: str) -> None:
        async with self._transaction() as connection:
            problem = (await connection.execute(text("PRAGMA quick_check(1)"))).scalar()
        if problem != "ok":
            raise self._bad(f"is damaged ({problem})", "restore a backup, or move it away to start without memory")
        version = await self._version()
        if version > schema.VERSION:
            raise self._bad(
                f"has schema version {version}, and this llmgwd knows {schema.VERSION}", "run the newer llmgwd"
            )
        if version and (owner := await self._meta("cluster", "")) != cluster:
            raise self._bad(f"belongs to cluster {owner!r}, not to {cluster!r}", "name another `store:` in server.yaml")
        async with self._transaction() as connection:
            for step in schema.MIGRATIONS[version:]:
                for line in step:
                    await connection.execute(text(line))
            await connection.execute(rows.put(schema.meta, name="schema_version", value=str(schema.VERSION)))
            await connection.execute(rows.put(schema.meta, name="cluster", value=cluster))

    async def _version(self) -> int:
        """0 when the store is empty."""
        async with self._transaction() as connection:
            tables = (await connection.execute(text("SELECT name FROM sqlite_master WHERE type = 'table'"))).scalars()
            if not (names := set(tables)):
                return 0
        found = await self._meta("schema_version", "") if "meta" in names else ""
        if not found.isdecimal():
            raise self._bad("is a database, but not a store of llmgwd", "name another `store:` in server.yaml")
        return int(found)

    async def _meta(self, name: str, default: str) -> str:
        query = select(schema.meta.c.value).where(schema.meta.c.name == name)
        async with self._transaction() as connection:
            return str((await connection.execute(query)).scalar() or default)

    async def _all(self, connection: AsyncConnection, table: Table, read: Callable[[Mapping[str, Any]], T]) -> list[T]:
        return [self._read(read, row) for row in (await connection.execute(select(table))).mappings()]

    def _read(self, read: Callable[[Mapping[str, Any]], T], row: RowMapping) -> T:
        try:
            return read({str(name): value for name, value in row.items()})
        except (ValueError, TypeError, KeyError, BadName) as error:
            way_out = "restore a backup, or move it away to start without memory"
            raise self._bad(f"holds a row that cannot be read ({error})", way_out) from None

    def _bad(self, fact: str, way_out: str) -> BadConfig:
        return BadConfig(str(self.path), None, "", f"{fact}; {way_out}")

    def _unusable(self, error: DBAPIError | sqlite3.Error) -> BadConfig | ClusterCannot:
        words = error.orig if isinstance(error, DBAPIError) else error
        if _code(error) in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
            return self._bad(f"is damaged ({words})", "restore a backup, or move it away to start without memory")
        return ClusterCannot(f"{self.path}: cannot be used: {words}")

    def _failed(self, error: DBAPIError) -> NotStored:
        if _code(error) in _TRANSIENT:
            return NotStored(f"{self.path} takes nothing: {error.orig}; nothing was changed; make room and ask again")
        fact = f"{self.path} cannot be written: {error.orig}; it takes nothing more until a restart on a sound disk"
        self._broken = NotStored(fact, lasting=True)
        return self._broken


def _code(error: DBAPIError | sqlite3.Error) -> int:
    """The primary result code of SQLite: its extended codes carry it in the low byte."""
    origin = error.orig if isinstance(error, DBAPIError) else error
    return int(getattr(origin, "sqlite_errorcode", 0)) & 0xFF


def _lock(path: Path) -> int:
    """Take the store's lock; the kernel gives it back when this process ends, however it ends."""
    beside = path.with_name(path.name + ".lock")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(beside, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise BadConfig(str(path), None, "", f"cannot be locked: {beside.name}: {error.strerror}") from None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        holder = os.read(descriptor, 32).decode("ascii", "replace").strip()
        os.close(descriptor)
        if not isinstance(error, BlockingIOError):
            raise ClusterCannot(f"{path}: cannot be locked: {error.strerror}; keep it on a local disk") from None
        who = f"llmgwd (pid {holder})" if holder.isdecimal() else "another llmgwd"
        raise ClusterCannot(f"{path}: is in use by {who}; stop that one, or name another `store:`") from None
    os.ftruncate(descriptor, 0)
    os.write(descriptor, f"{os.getpid()}\n".encode())
    return descriptor


def _engine(path: Path) -> AsyncEngine:
    """One connection for life: one writer, and reads that see what it wrote."""
    engine = create_async_engine(URL.create("sqlite+aiosqlite", database=str(path)), poolclass=StaticPool)

    @event.listens_for(engine.sync_engine, "connect")
    def _prepare(connection: Any, _record: object) -> None:
        connection.isolation_level = None  # the driver would not put DDL into a transaction
        for setting in ("busy_timeout=2000", "journal_mode=WAL", "synchronous=FULL", "foreign_keys=ON"):
            cursor = connection.cursor()
            cursor.execute(f"PRAGMA {setting}")
            cursor.close()
        with suppress(OSError):
            os.chmod(path, 0o600)

    @event.listens_for(engine.sync_engine, "begin")
    def _begin(connection: Any) -> None:
        connection.exec_driver_sql("BEGIN")

    return engine
