"""What is a row of the store taken for when it is read back? Pure.

Every value is checked as if a stranger had sent it: a disk, a restore or a hand may have changed it. Rows that no
version of ours wrote raise ValueError, with the column and what is wrong.
"""

import json
import math
from collections.abc import Mapping
from dataclasses import fields
from enum import Enum
from typing import Any, TypeVar

from llmgw.core.catalog import MOST_REPLICAS, Scaled
from llmgw.core.effects import Assignment
from llmgw.core.engines import releases
from llmgw.core.engines.orders import Release
from llmgw.core.errors import BadName
from llmgw.core.events import Event, EventKind
from llmgw.core.facts import Profile, Want
from llmgw.core.names import ModelName, NodeName, ReplicaId, model_name, node_name, split_shard
from llmgw.core.units import Bytes
from llmgw.daemon.intake import is_machine
from llmgw.daemon.rows import release_name

MOST_COUNTED = 1 << 53
"""Of an epoch or a seq: more are not exact in JSON, and no counting gets there."""

_MOST_ORDINAL = 1_000_000_000
"""One more than the highest that a shard's name can have."""
_MOST_BYTES = (1 << 63) - 1
"""What the column holds."""

E = TypeVar("E", bound=Enum)


class Row:
    """The columns of one row; each is asked for as what it must be, or ValueError."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        self._values = values

    def text(self, column: str) -> str:
        """Text that can be sent on."""
        return _text(column, self._value(column))

    def count(self, column: str, least: int, most: int) -> int:
        """A whole number within bounds, both included."""
        return _count(column, self._value(column), least, most)

    def seconds(self, column: str) -> float:
        """A point in time."""
        value = self._value(column)
        if not isinstance(value, int | float) or not math.isfinite(value):
            raise ValueError(f"{column}: {_shown(value)} is not a time")
        return float(value)

    def one_of(self, column: str, kind: type[E]) -> E:
        """The member of `kind` with this value."""
        try:
            return kind(self.text(column))
        except ValueError as error:
            raise ValueError(f"{column}: {error}") from None

    def json(self, column: str, kind: type[Any]) -> Any:
        """A list or an object that was written as JSON."""
        try:
            value = json.loads(self.text(column))
        except (ValueError, RecursionError) as error:
            raise ValueError(f"{column}: is not JSON ({error})") from None
        if not isinstance(value, kind):
            raise ValueError(f"{column}: {_shown(value)} is not a {'list' if kind is list else 'object'}")  # noqa: TRY004 # one kind of error for a bad row
        return value

    def model(self) -> ModelName:
        """The column `model`."""
        return model_name(self.text("model"))

    def _value(self, column: str) -> Any:
        if column not in self._values:
            raise ValueError(f"{column}: is missing")
        return self._values[column]


def assignment(row: Row) -> Assignment:
    """Read an assignment back."""
    model, nodes = row.model(), row.json("nodes", list)
    if not nodes:
        raise ValueError("nodes: is empty")
    return Assignment(
        replica=_replica(row.text("replica"), model),
        model=model,
        nodes=tuple(node_name(_text("nodes", name)) for name in nodes),
        want=row.one_of("want", Want),
        profile=_profile(row.json("profile", dict)),
        placed_at=row.seconds("placed_at"),
        adopted=bool(row.count("adopted", 0, 1)),
    )


def overlay(row: Row) -> Scaled:
    """Read an overlay back."""
    return Scaled(
        model=row.model(),
        replicas=row.count("replicas", 0, MOST_REPLICAS),
        declared=row.count("declared", 0, MOST_REPLICAS),
        by=row.text("by"),
    )


def ordinal(row: Row) -> tuple[ModelName, int]:
    """Read a model's next ordinal back."""
    return row.model(), row.count("next", 0, _MOST_ORDINAL)


def machine(row: Row) -> tuple[NodeName, str]:
    """Read a node's machine-id back."""
    found = row.text("machine")
    if not is_machine(found):
        raise ValueError(f"machine: {_shown(found)} is not the id of a machine")
    return node_name(row.text("name")), found


def memory(row: Row) -> tuple[NodeName, Bytes]:
    """Read back the most RAM that a node registered with."""
    return node_name(row.text("name")), Bytes(row.count("memory", 0, _MOST_BYTES))


def release(row: Row) -> tuple[str, Release]:
    """Read a release back, with the version that led to it."""
    wanted, text = row.text("wanted"), row.text("release")
    try:
        found = releases.read(text)
    except ValueError as error:
        raise ValueError(f"release: {error}") from None
    if row.text("name") != release_name(found):
        raise ValueError(f"name: {_shown(row.text('name'))} is not the name of the release, {release_name(found)}")
    return wanted, found


def event(row: Row) -> Event:
    """Read an event back."""
    return Event(
        seq=seq(row),
        at=row.seconds("at"),
        kind=row.one_of("kind", EventKind),
        subject=row.text("subject"),
        text=row.text("text"),
        cause=row.count("cause", 0, MOST_COUNTED),
        by=row.text("by"),
        lines=_texts("lines", row.json("lines", list)),
    )


def seq(row: Row) -> int:
    """Read an event's number back."""
    return row.count("seq", 1, MOST_COUNTED)


def number(row: Row) -> int:
    """Read a number of the table `meta` back, which keeps text."""
    found = row.text("value")
    if not (found.isascii() and found.isdecimal() and len(found) <= len(str(MOST_COUNTED))):
        raise ValueError(f"value: {_shown(found)} is not a number up to {MOST_COUNTED}")
    return _count("value", int(found), 0, MOST_COUNTED)


def word(row: Row) -> str:
    """Read a text of the table `meta` back."""
    return row.text("value")


def _replica(text: str, model: ModelName) -> ReplicaId:
    try:
        found, _, _ = split_shard(f"{text}.0")
    except BadName:
        raise ValueError(f"replica: {_shown(text)} is not MODEL/ORDINAL") from None
    if found != model:
        raise ValueError(f"replica: {_shown(text)} is none of model {model}")
    return ReplicaId(text)


_RANGES = {
    "context": (0, (1 << 32) - 1),
    "slots": (0, (1 << 32) - 1),
    "threads": (0, (1 << 32) - 1),
    "memory": (0, (1 << 64) - 1),
}
"""What agents can be told: an adopted profile may be stranger than those that server.yaml allows."""


def _profile(found: dict[str, Any]) -> Profile:
    """A field that is missing is younger than the row; one too many is not of ours."""
    known = {field.name for field in fields(Profile)}
    if unknown := sorted(found.keys() - known):
        raise ValueError(f"profile: {_shown(unknown[0])} is not known")
    if missing := sorted({"engine", "weights", "memory"} - found.keys()):
        raise ValueError(f"profile: {missing[0]} is missing")
    read = {name: _profile_field(name, value) for name, value in found.items()}
    return Profile(**read)


def _profile_field(name: str, value: Any) -> Any:
    where = f"profile: {name}"
    if name == "arguments":
        return _texts(where, value)
    if name in _RANGES:
        counted = _count(where, value, *_RANGES[name])
        return Bytes(counted) if name == "memory" else counted
    return _text(where, value)


def _texts(where: str, value: Any) -> tuple[str, ...]:
    if not isinstance(value, list):
        raise ValueError(f"{where}: {_shown(value)} is not a list")  # noqa: TRY004 # one kind of error for a bad row
    return tuple(_text(where, item) for item in value)


def _text(where: str, value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{where}: {_shown(value)} is not text")  # noqa: TRY004 # one kind of error for a bad row
    try:
        value.encode()
    except UnicodeEncodeError:
        raise ValueError(f"{where}: {_shown(value)} is not UTF-8") from None
    return value


def _count(where: str, value: Any, least: int, most: int) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        raise ValueError(f"{where}: {_shown(value)} is not a number from {least} to {most}")
    return value


def _shown(value: Any) -> str:
    """Short, and without a byte that a terminal obeys."""
    return ascii(value[:80] if isinstance(value, str | bytes) else value)[:100]
