"""How a value of core becomes a message and comes back: by the names of classes, fields and enum members alone.

A class and its message share their name; a tuple is a repeated field, `X | None` an optional one, a union of classes a
message whose only oneof has a member for each, named in snake case. A plan per pair of types is made once and refuses
pairs that do not match, so a field that was forgotten on one side is found at the first use (a test uses them all).

What the codec does not check is checked here, in both directions: numbers out of range, NaN, enum values that mean
nothing, required messages that are missing, oneofs with no or several members, text that is not UTF-8, names outside
their grammar, ports. All of it raises BadMessage.
"""

import dataclasses
import enum
import math
import struct
import types
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, TypeVar

import betterproto2
from betterproto2 import (
    TYPE_BOOL,
    TYPE_DOUBLE,
    TYPE_ENUM,
    TYPE_INT32,
    TYPE_INT64,
    TYPE_MESSAGE,
    TYPE_STRING,
    TYPE_UINT32,
    TYPE_UINT64,
)

from llmgw.core.errors import BadMessage, BadName
from llmgw.core.facts import Secret
from llmgw.core.names import ModelName, NodeName, ReplicaId, ShardId, model_name, node_name, split_shard
from llmgw.core.warnings import OtherWarning
from llmgw.wire.parts import MOST_PARTS, is_crowded

M = TypeVar("M", bound=betterproto2.Message)
E = TypeVar("E", bound=enum.Enum)

_Convert = Callable[[Any], Any]


class _Wrong(ValueError):
    """A value that breaks a rule of its field; the plan that reads the field says which field it was."""


@dataclass(frozen=True, slots=True)
class _Both:
    """The two directions of one field or type."""

    write: _Convert
    read: _Convert


def to_wire(value: object, message: type[M]) -> M:
    """Return `value` as a `message`: its own, or one whose oneof has a member for its class.

    Raises BadMessage when a field of it cannot be sent (a negative size, a NaN, half a surrogate pair).
    """
    core: Any = type(value)
    if core.__name__ != message.__name__:
        return typing.cast(M, _wrapped(message)(value))
    return typing.cast(M, _plan(core, message).write(value))


def from_wire(message: betterproto2.Message, core: Any) -> Any:
    """Return the value of class `core` (or of one member, when `core` is a union of classes) that `message` holds."""
    return _plan(core, type(message)).read(message)


def decode(data: bytes, message: type[M]) -> M:
    """Parse `data`, or raise BadMessage when it is no `message` at all, or one of very many parts."""
    try:
        crowded = is_crowded(data, message)
        parsed = None if crowded else message.parse(data)
    except (ValueError, TypeError, AttributeError, EOFError, LookupError, ArithmeticError, struct.error):
        raise BadMessage(message.__name__, "its bytes", "are not in the form of this message") from None
    if parsed is None:
        raise BadMessage(message.__name__, "its bytes", f"have more than {MOST_PARTS} parts")
    return parsed


def enum_to_wire(value: enum.Enum, wire: type[E]) -> E:
    """The member of `wire` that has the name of `value`."""
    return wire[value.name]


def enum_from_wire(value: object, core: type[E]) -> E:
    """The member of `core` that has the name of the generated `value`, or BadMessage when there is none."""
    name = getattr(value, "name", "")
    try:
        return core[name]
    except KeyError:
        raise BadMessage(core.__name__, "its value", f"is not known: {value}") from None


def checked(name: str, value: Any) -> Any:
    """`value` (text, or a number for a uint32) for the field `name` of a request, or BadMessage: cannot be sent."""
    try:
        return _text(str).write(value) if isinstance(value, str) else _int(_RANGES[TYPE_UINT32]).write(value)
    except _Wrong as wrong:
        raise BadMessage("request", name, str(wrong)) from None


# --- plans ------------------------------------------------------------------------------------------------------


@cache
def _plan(core: Any, message: type[betterproto2.Message]) -> _Both:
    if _members(core):
        return _union(core, message)
    if not dataclasses.is_dataclass(core) or getattr(core, "__name__", "") != message.__name__:
        raise TypeError(f"{core} has no counterpart in message {message.__name__}")
    return _record(core, message)


def _record(core: Any, message: type[betterproto2.Message]) -> _Both:
    hints = typing.get_type_hints(core)
    about = _about(message)
    meta, classes = about.meta_by_field_name, about.cls_by_field
    names = [field.name for field in dataclasses.fields(core)]
    if set(names) != set(meta):
        raise TypeError(f"{core.__name__} and its message differ in {sorted(set(names) ^ set(meta))}")
    fields = [(name, _field(name, hints[name], meta[name], classes[name])) for name in names]
    writers = [(name, both.write) for name, both in fields]
    readers = [(name, both.read) for name, both in fields]

    def write(value: Any) -> betterproto2.Message:
        return message(**_each(writers, value))

    def read(value: Any) -> Any:
        if type(value) is not message:
            raise _Wrong("is not a message" if value is not None else "is missing")
        return core(**_each(readers, value))

    def _each(converters: list[tuple[str, _Convert]], value: Any) -> dict[str, Any]:
        done, name = {}, ""
        try:
            for name, convert in converters:
                done[name] = convert(getattr(value, name))
        except _Wrong as wrong:
            raise BadMessage(core.__name__, name, str(wrong)) from None
        return done

    return _Both(write, read)


def _union(core: Any, message: type[betterproto2.Message]) -> _Both:
    slots = _slots(message)
    members = {member.__name__: member for member in _members(core)}
    if set(members) != set(slots):
        raise TypeError(f"{core} and the oneof of {message.__name__} differ in {sorted(set(members) ^ set(slots))}")
    names = {slots[name][0]: (member, slots[name][1]) for name, member in members.items()}
    unknown, derived = _UNKNOWN.get(message.__name__), _DERIVED.get(message.__name__, {})

    def read(value: Any) -> Any:
        if type(value) is not message:
            raise _Wrong("is not a message" if value is not None else "is missing")
        words: Any = value
        found = [(name, inner) for name in names if (inner := getattr(value, name)) is not None]
        if not found and unknown is not None and words.code:
            return unknown(**{name: _words.read(getattr(words, name)) for name in derived})
        if len(found) != 1:
            raise BadMessage(message.__name__, "its oneof", f"must have one member, not {len(found)}")
        name, inner = found[0]
        try:
            return _plan(*names[name]).read(inner)  # made when it is needed: a short command needs few
        except _Wrong as wrong:
            raise BadMessage(message.__name__, name, str(wrong)) from None

    return _Both(_wrapped(message), read)


@cache
def _wrapped(message: type[betterproto2.Message]) -> _Convert:
    """Write a value into the member of the message's oneof that is named after its class."""
    slots, classes = _slots(message), _about(message).cls_by_field
    derived = _DERIVED.get(message.__name__, {})

    def write(value: Any) -> betterproto2.Message:
        core: Any = type(value)
        if core.__name__ not in slots:
            raise TypeError(f"{core.__name__} has no place in message {message.__name__}")
        name, inner = slots[core.__name__]
        values = {name: _plan(core, inner).write(value)}
        for field, derive in derived.items():
            text = derive(value)
            values[field] = enum_to_wire(text, classes[field]) if isinstance(text, enum.Enum) else text
        return message(**values)

    return write


_DERIVED: Mapping[str, Mapping[str, _Convert]] = {
    "Refusal": {
        "code": lambda refusal: refusal.code,
        "verdict": lambda refusal: refusal.verdict,
        "text": str,
        "clears": lambda refusal: refusal.clears,
    },
    "NodeWarning": {
        "code": lambda warning: warning.code,
        "text": str,
        "fix": lambda warning: warning.fix,
    },
}
"""Fields that a message has beside its oneof: computed for readers that do not know the member, ignored by others."""

_UNKNOWN: Mapping[str, Any] = {"NodeWarning": OtherWarning}
"""What a member of a newer version is read as: the class that holds the derived fields."""


def _slots(message: type[betterproto2.Message]) -> dict[str, tuple[str, type[betterproto2.Message]]]:
    """Of a message that stands for a union: class name → (member of the oneof, its message)."""
    meta = _about(message)
    groups = meta.oneof_field_by_group
    plain = {name for name, field in meta.meta_by_field_name.items() if not field.group}
    if len(groups) != 1 or plain != set(_DERIVED.get(message.__name__, ())):
        raise TypeError(f"message {message.__name__} does not stand for a union")
    (members,) = groups.values()
    found = {}
    for field in members:
        wire = meta.cls_by_field[field.name]
        if field.name != _snake(wire.__name__):
            raise TypeError(f"message {message.__name__}: member {field.name} is not named after {wire.__name__}")
        found[wire.__name__] = (field.name, wire)
    return found


# --- fields -----------------------------------------------------------------------------------------------------


def _field(name: str, hint: Any, meta: Any, wire: Any) -> _Both:
    if typing.get_origin(hint) is tuple:
        item, more = typing.get_args(hint)
        if not meta.repeated or more is not Ellipsis:
            raise TypeError(f"field {name}: {hint} needs a repeated field")
        return _repeated(_single(name, item, meta, wire))
    if meta.repeated:
        raise TypeError(f"field {name} is repeated in its message only")
    optional = type(None) in typing.get_args(hint)
    if optional != bool(meta.optional) and not (meta.proto_type == TYPE_MESSAGE and meta.optional):
        raise TypeError(f"field {name} is optional on one side only")
    if not optional:
        return _single(name, hint, meta, wire)
    inner = [arg for arg in typing.get_args(hint) if arg is not type(None)]
    if len(inner) != 1:
        raise TypeError(f"field {name}: a union that may be missing has no wire form")
    one = _single(name, inner[0], meta, wire)
    return _Both(
        lambda value: None if value is None else one.write(value),
        lambda value: None if value is None else one.read(value),
    )


def _repeated(item: _Both) -> _Both:
    write, read = item.write, item.read

    def read_all(values: Any) -> tuple[Any, ...]:
        if type(values) is not list:
            raise _Wrong("is not a list")
        return tuple([read(value) for value in values])

    return _Both(lambda values: [write(value) for value in values], read_all)


def _single(name: str, hint: Any, meta: Any, wire: Any) -> _Both:
    if meta.proto_type == TYPE_MESSAGE:
        return _plan(hint, wire)
    base = getattr(hint, "__supertype__", hint)
    if meta.proto_type == TYPE_ENUM and isinstance(hint, type) and issubclass(hint, enum.Enum):
        return _enum(hint, wire)
    if meta.proto_type == TYPE_STRING and issubclass(base, str):
        return _text(hint)
    if meta.proto_type == TYPE_DOUBLE and base is float:
        return _Both(_double, _double)
    if meta.proto_type == TYPE_BOOL and base is bool:
        return _Both(_bool, _bool)
    if meta.proto_type in _RANGES and base is int:
        return _int(_PORT if name == "port" else _RANGES[meta.proto_type])
    raise TypeError(f"field {name}: {hint} is no {meta.proto_type}")


def _enum(core: type[enum.Enum], wire: Any) -> _Both:
    there = {member.name: wire[member.name] for member in core}
    back = {there[member.name]: member for member in core}
    if len(wire) != len(core) + 1:
        raise TypeError(f"enum {core.__name__} and its wire form differ")

    def read(value: Any) -> enum.Enum:
        found = back.get(value) if isinstance(value, int) else None
        if found is None:
            raise _Wrong(f"has no known value, but {value}")
        return found

    return _Both(lambda value: there[value.name], read)


_RANGES: Mapping[str, tuple[int, int]] = {
    TYPE_UINT32: (0, (1 << 32) - 1),
    TYPE_UINT64: (0, (1 << 64) - 1),
    TYPE_INT32: (-(1 << 31), (1 << 31) - 1),
    TYPE_INT64: (-(1 << 63), (1 << 63) - 1),
}
_PORT = (1, 65535)


def _int(bounds: tuple[int, int]) -> _Both:
    low, high = bounds

    def check(value: Any) -> int:
        if type(value) is not int or not low <= value <= high:
            raise _Wrong(f"must be a number from {low} to {high}, not {str(value)[:40]}")
        return value

    return _Both(check, check)


def _double(value: Any) -> float:
    if type(value) not in (float, int) or not math.isfinite(value):
        raise _Wrong(f"must be a finite number, not {str(value)[:40]}")
    return float(value)


def _bool(value: Any) -> bool:
    if type(value) is not bool:
        raise _Wrong("must be true or false")
    return value


def _text(hint: Any) -> _Both:
    make = _GRAMMAR.get(hint)

    def write(value: Any) -> str:
        if not isinstance(value, str):
            raise _Wrong("must be text")
        if not value.isascii():
            try:
                value.encode()
            except UnicodeEncodeError:
                raise _Wrong("must be text that UTF-8 can hold") from None
        return value if type(value) is str else str.__str__(value)

    def read(value: Any) -> Any:
        if type(value) is not str:
            raise _Wrong("must be text")
        if make is None:
            return value
        try:
            return make(value)
        except BadName as bad:
            raise _Wrong(f"is no name: {bad}") from None

    return _Both(write, read)


def _shard(text: str) -> ShardId:
    split_shard(text)
    return ShardId(text)


def _replica(text: str) -> ReplicaId:
    split_shard(f"{text}.0")
    return ReplicaId(text)


_GRAMMAR: Mapping[Any, _Convert] = {
    NodeName: node_name,
    ModelName: model_name,
    ShardId: _shard,
    ReplicaId: _replica,
    Secret: Secret,
}

_words = _text(str)


def _about(message: Any) -> Any:
    return message._betterproto


def _members(core: Any) -> tuple[Any, ...]:
    return typing.get_args(core) if isinstance(core, types.UnionType) else ()


def _snake(name: str) -> str:
    return "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in name).removeprefix("_")
