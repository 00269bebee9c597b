"""What does the store look like on disk? The tables as they are now, and the steps that led there.

A step is never changed once it was released: a store of any age is brought up to date by the steps it lacks. They are
plain SQL that SQLite and PostgreSQL both read.
"""

from sqlalchemy import BigInteger, Boolean, Column, Double, Integer, MetaData, Table, Text

metadata = MetaData()

meta = Table("meta", metadata, Column("name", Text, primary_key=True), Column("value", Text, nullable=False))

assignments = Table(
    "assignments",
    metadata,
    Column("replica", Text, primary_key=True),
    Column("model", Text, nullable=False),
    Column("nodes", Text, nullable=False),
    Column("want", Text, nullable=False),
    Column("profile", Text, nullable=False),
    Column("placed_at", Double, nullable=False),
    Column("adopted", Boolean, nullable=False),
)

ordinals = Table("ordinals", metadata, Column("model", Text, primary_key=True), Column("next", Integer, nullable=False))

overlays = Table(
    "overlays",
    metadata,
    Column("model", Text, primary_key=True),
    Column("replicas", Integer, nullable=False),
    Column("declared", Integer, nullable=False),
    Column("by", Text, nullable=False),
)

nodes = Table(
    "nodes",
    metadata,
    Column("name", Text, primary_key=True),
    Column("machine", Text, nullable=False),
    Column("memory", BigInteger, nullable=False),
)

events = Table(
    "events",
    metadata,
    Column("seq", BigInteger, primary_key=True),
    Column("at", Double, nullable=False),
    Column("kind", Text, nullable=False),
    Column("subject", Text, nullable=False),
    Column("text", Text, nullable=False),
    Column("cause", BigInteger, nullable=False),
    Column("by", Text, nullable=False),
    Column("lines", Text, nullable=False),
)

releases = Table(
    "releases",
    metadata,
    Column("name", Text, primary_key=True),
    Column("wanted", Text, nullable=False),
    Column("release", Text, nullable=False),
)
"""By engine, version and variant."""

MIGRATIONS: tuple[tuple[str, ...], ...] = (
    (
        "CREATE TABLE meta (name TEXT PRIMARY KEY NOT NULL, value TEXT NOT NULL)",
        "CREATE TABLE assignments (replica TEXT PRIMARY KEY NOT NULL, model TEXT NOT NULL, nodes TEXT NOT NULL,"
        " want TEXT NOT NULL, profile TEXT NOT NULL, placed_at DOUBLE PRECISION NOT NULL, adopted BOOLEAN NOT NULL)",
        "CREATE TABLE ordinals (model TEXT PRIMARY KEY NOT NULL, next INTEGER NOT NULL)",
        "CREATE TABLE overlays (model TEXT PRIMARY KEY NOT NULL, replicas INTEGER NOT NULL,"
        ' declared INTEGER NOT NULL, "by" TEXT NOT NULL)',
        "CREATE TABLE nodes (name TEXT PRIMARY KEY NOT NULL, machine TEXT NOT NULL)",
        "CREATE TABLE events (seq BIGINT PRIMARY KEY NOT NULL, at DOUBLE PRECISION NOT NULL, kind TEXT NOT NULL,"
        ' subject TEXT NOT NULL, text TEXT NOT NULL, cause BIGINT NOT NULL, "by" TEXT NOT NULL, lines TEXT NOT NULL)',
    ),
    ("ALTER TABLE nodes ADD COLUMN memory BIGINT NOT NULL DEFAULT 0",),
    ("CREATE TABLE releases (name TEXT PRIMARY KEY NOT NULL, wanted TEXT NOT NULL, release TEXT NOT NULL)",),
)
"""Step n leads from schema version n to n + 1; version 0 is an empty store."""

VERSION = len(MIGRATIONS)
