"""What outlives the control plane, and when is it safe on disk? One SQLite file, written by one llmgwd.

`save` returns when everything in it is on disk, in one transaction. What agents report is not here: it comes back when
they reconnect. What is read was checked: a row that no version of ours wrote is named, and nothing is taken from it.
"""

import asyncio
import os
import sqlite3
import time
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, Self, TypeVar

from sqlalchemy import URL, RowMapping, Select, Table, delete, event, select, text, type_coerce
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine
from sqlalchemy.pool import StaticPool
from sqlalchemy.types import NullType

from llmgw.core.effects import AppendEvent, Persist
from llmgw.core.errors import BadConfig, BadName, ClusterCannot
from llmgw.core.events import Event
from llmgw.core.settings import Stored
from llmgw.daemon import place, readback, rows, schema

KEPT_EVENTS = 20_000
"""Older events are forgotten."""

_PRUNE_EACH = 1_000
"""Events between two looks for old ones."""

_DAMAGED = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_ERROR)
"""The last is what a statement of ours gets when a table or a column that it needs is not there."""

_TRANSIENT = (sqlite3.SQLITE_FULL, sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)

_ROWS_OWN = (sqlite3.SQLITE_TOOBIG, sqlite3.SQLITE_CONSTRAINT, sqlite3.SQLITE_MISMATCH)
"""What is wrong is one row's values, not the disk."""

T = TypeVar("T")


class NotStored(ClusterCannot):
    """The store took nothing; what was asked did not happen."""

    code = "not_stored"

    def __init__(self, text: str, *, lasting: bool = False, unwritable: Persist | None = None) -> None:
        super().__init__(text)
        self.lasting = lasting
        """The disk failed, and what it holds is not known: nothing is written again before a restart."""
        self.unwritable = unwritable
        """The one of the effects that is in the way: no row can hold it, and all others can be stored."""


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
        lock = place.take(path)
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

        At least the seconds since 1970: a store restored from a backup still gives a higher one. Raises BadConfig
        when the last one cannot be read.
        """
        epoch = max((await self._meta("epoch", readback.number) or 0) + 1, int(time.time()))
        async with self._transaction() as connection:
            await connection.execute(rows.put(schema.meta, name="epoch", value=str(epoch)))
        return epoch

    async def load(self) -> Stored:
        """Return all that is remembered, or raise BadConfig naming what cannot be read."""
        async with self._transaction() as connection:
            last = _raw(schema.events).order_by(schema.events.c.seq.desc()).limit(1)
            seqs = await self._all(connection, schema.events, readback.seq, last)
            return Stored(
                assignments=tuple(await self._all(connection, schema.assignments, readback.assignment)),
                ordinals=dict(await self._all(connection, schema.ordinals, readback.ordinal)),
                overlays=tuple(await self._all(connection, schema.overlays, readback.overlay)),
                machines=dict(await self._all(connection, schema.nodes, readback.machine)),
                memories=dict(await self._all(connection, schema.nodes, readback.memory)),
                releases=tuple(await self._all(connection, schema.releases, readback.release)),
                seq=seqs[0] if seqs else 0,
            )

    async def events(self, *, after: int, before: int, most: int) -> list[Event]:
        """Return the oldest `most` events with a seq between the two, in order; BadConfig when one cannot be read."""
        seq = schema.events.c.seq
        query = _raw(schema.events).where(seq > after, seq < before).order_by(seq).limit(most)
        async with self._transaction() as connection:
            return await self._all(connection, schema.events, readback.event, query)

    async def save(self, effects: Sequence[Persist]) -> None:
        """Store all `effects` in one transaction, or none of them and raise NotStored.

        After a failure that is not lack of room every later call raises too: what a disk does that failed to sync
        is not known, and trying again would only look like success. Not so when one effect is in the way.
        """
        if self._broken is not None:
            raise self._broken
        try:
            async with self._turn, self._engine.begin() as connection:
                for effect in effects:
                    await self._write(connection, effect)
                await self._prune(connection, effects)
        except DBAPIError as error:
            raise self._failed(error) from None

    # --- inside -------------------------------------------------------------------------------------------------

    async def _write(self, connection: AsyncConnection, effect: Persist) -> None:
        try:
            await connection.execute(rows.statement(effect))
        except (OverflowError, UnicodeError) as error:  # of the driver: SQLite has not seen the row
            raise _unwritable(effect, error) from None
        except DBAPIError as error:
            if _code(error) in _ROWS_OWN:
                raise _unwritable(effect, error.orig) from None
            raise

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
            raise self._damaged(str(problem))
        version = await self._version()
        if version > schema.VERSION:
            raise self._bad(
                f"has schema version {version}, and this llmgwd knows {schema.VERSION}", "run the newer llmgwd"
            )
        owner = await self._meta("cluster", readback.word) if version else cluster
        if owner is None:
            raise self._damaged("table meta: row 'cluster' is missing")
        if owner != cluster:
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
        found = await self._meta("schema_version", readback.number) if "meta" in names else None
        if found is None:
            raise self._bad("is a database, but not a store of llmgwd", "name another `store:` in server.yaml")
        return found

    async def _meta(self, name: str, read: Callable[[readback.Row], T]) -> T | None:
        async with self._transaction() as connection:
            found = await self._all(connection, schema.meta, read, _raw(schema.meta).where(schema.meta.c.name == name))
        return found[0] if found else None

    async def _all(
        self,
        connection: AsyncConnection,
        table: Table,
        read: Callable[[readback.Row], T],
        query: Select[*tuple[Any, ...]] | None = None,
    ) -> list[T]:
        """Read what `query` finds in `table` (all of it by default): the one way that a row becomes a value."""
        found = (await connection.execute(_raw(table) if query is None else query)).mappings()
        return [self._read(table, read, row) for row in found]

    def _read(self, table: Table, read: Callable[[readback.Row], T], row: RowMapping) -> T:
        values = {str(name): value for name, value in row.items()}
        try:
            return read(readback.Row(values))
        except (ValueError, BadName) as error:
            (key,) = table.primary_key.columns
            raise self._damaged(f"table {table.name}: row {ascii(values[key.name])[:100]}: {error}") from None

    def _damaged(self, fact: str) -> BadConfig:
        return self._bad(f"is damaged: {fact}", "restore a backup, or move it away: engines that run are then adopted")

    def _bad(self, fact: str, way_out: str) -> BadConfig:
        return BadConfig(str(self.path), None, "", f"{fact}; {way_out}")

    def _unusable(self, error: DBAPIError | sqlite3.Error) -> BadConfig | ClusterCannot:
        words = error.orig if isinstance(error, DBAPIError) else error
        if _code(error) in _DAMAGED:
            return self._damaged(str(words))
        return ClusterCannot(f"{self.path}: cannot be used: {words}; see to its disk, and to who may write there")

    def _failed(self, error: DBAPIError) -> NotStored:
        if _code(error) in _TRANSIENT:
            return NotStored(f"{self.path} takes nothing: {error.orig}; nothing was changed; make room and ask again")
        fact = f"{self.path} cannot be written: {error.orig}; it takes nothing more until a restart on a sound disk"
        self._broken = NotStored(fact, lasting=True)
        return self._broken


def _unwritable(effect: Persist, why: object) -> NotStored:
    return NotStored(f"{type(effect).__name__} cannot be stored: {why}; nothing was changed", unwritable=effect)


def _raw(table: Table) -> Select[*tuple[Any, ...]]:
    """The rows as the file has them: the types of the library would bend some wrong values into right ones."""
    columns = (type_coerce(column, NullType()).label(column.name) for column in table.columns)
    return select(*columns)


def _code(error: DBAPIError | sqlite3.Error) -> int:
    """The primary result code of SQLite: its extended codes carry it in the low byte."""
    origin = error.orig if isinstance(error, DBAPIError) else error
    return int(getattr(origin, "sqlite_errorcode", 0)) & 0xFF


def _text(found: bytes) -> str:
    """Bytes that are not UTF-8 stay visible, for `readback` to name."""
    return found.decode("utf-8", "surrogateescape")


def _engine(path: Path) -> AsyncEngine:
    """One connection for life: one writer, and reads that see what it wrote."""
    engine = create_async_engine(URL.create("sqlite+aiosqlite", database=str(path)), poolclass=StaticPool)

    @event.listens_for(engine.sync_engine, "connect")
    def _prepare(connection: Any, _record: object) -> None:
        connection.driver_connection.text_factory = _text  # the driver would fail with the whole query
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
