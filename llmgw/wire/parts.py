"""How many parts a message in bytes has: counted before it is decoded, since each part costs what a large one costs.

Four mebibytes of empty parts would become two million objects, a gigabyte, and a minute in which nothing else runs.
"""

from functools import cache
from typing import Any

from betterproto2 import TYPE_BOOL, TYPE_ENUM, TYPE_INT32, TYPE_INT64, TYPE_MESSAGE, TYPE_UINT32, TYPE_UINT64

_VARINT, _EIGHT, _LENGTH, _FOUR = 0, 1, 2, 5
_SKIP = {_EIGHT: 8, _FOUR: 4}
_GO_ON = bytes(range(0x80, 0x100))
_VARINTS = frozenset({TYPE_BOOL, TYPE_ENUM, TYPE_INT32, TYPE_INT64, TYPE_UINT32, TYPE_UINT64})

MOST_PARTS = 50_000
_FEW = 8192  # bytes: so many cannot hold enough parts to be worth counting them


def is_crowded(data: bytes, message: Any) -> bool:
    """Whether `data` has more parts than anybody takes; raises as has_more_parts."""
    return len(data) > _FEW and has_more_parts(data, message, MOST_PARTS)


def has_many_messages(message: Any) -> bool:
    """The same of a message that is not in bytes yet, as far as messages within it tell: encoding them takes seconds.

    Only lists are looked into, since only they can be long.
    """
    left, waiting = MOST_PARTS, [message]
    while waiting:
        one = waiting.pop()
        kind: Any = type(one)
        for name in _names(kind):
            value = getattr(one, name)
            if isinstance(value, list):
                left -= len(value)
                if left < 0:
                    return True
                waiting += value
            elif value is not None:
                waiting.append(value)
    return False


def has_more_parts(data: bytes, message: Any, most: int) -> bool:
    """Whether `data` has more than `most` fields, those of messages within it included.

    Raises ValueError or IndexError for bytes that are not in the form of a message.
    """
    left, waiting = most, [(0, len(data), message)]
    while waiting:
        at, end, kind = waiting.pop()
        inner, packed = _inner(kind), _packed(kind)
        while at < end:
            left -= 1
            if left < 0:
                return True
            key, at = _varint(data, at)
            at, size = _value(data, at, key & 7)
            if size and key >> 3 in packed:
                left -= _numbers(data[at - size : at]) - 1
            child = inner.get(key >> 3) if size else None
            if child is not None:
                waiting.append((at - size, min(at, end), child))
    return left < 0


def _value(data: bytes, at: int, form: int) -> tuple[int, int]:
    """Where the next field begins, and how many bytes before it are a message or text."""
    if form == _LENGTH:
        size, at = _varint(data, at)
        return at + size, size
    if form == _VARINT:
        return _varint(data, at)[1], 0
    if form not in _SKIP:
        raise ValueError("a form that is not in use")
    return at + _SKIP[form], 0


def _numbers(packed: bytes) -> int:
    """How many numbers stand in the value of a packed field, 1 at least: each ends with a byte below 128."""
    return max(1, len(packed.translate(None, _GO_ON)))


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
        if shift > 63:
            raise ValueError("a number of more than 64 bits")


@cache
def _inner(message: Any) -> dict[int, Any]:
    """The messages within a message, by the number of their field."""
    about = message._betterproto
    return {
        meta.number: about.cls_by_field[name]
        for name, meta in about.meta_by_field_name.items()
        if meta.proto_type == TYPE_MESSAGE
    }


@cache
def _packed(message: Any) -> frozenset[int]:
    """The fields that hold many numbers in one value."""
    meta = message._betterproto.meta_by_field_name.values()
    return frozenset(one.number for one in meta if one.repeated and one.proto_type in _VARINTS)


@cache
def _names(message: Any) -> list[str]:
    """The names of the fields that hold messages."""
    meta = message._betterproto.meta_by_field_name
    return [name for name, about in meta.items() if about.proto_type == TYPE_MESSAGE]
