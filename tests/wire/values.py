"""Strategies that make any value of core that has a wire form, from its annotations."""

import dataclasses
import enum
import functools
import types
import typing
from typing import Any

import betterproto2
from hypothesis import strategies as st

from llmgw.core.facts import Secret
from llmgw.core.names import ModelName, NodeName, ReplicaId, ShardId

_NAMES = st.from_regex(r"[a-z0-9][a-z0-9._-]{0,20}", fullmatch=True)
_TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
_RANGES = {"uint32": (0, 2**32 - 1), "uint64": (0, 2**64 - 1), "int32": (-(2**31), 2**31 - 1)}
_SPECIAL: dict[Any, st.SearchStrategy[Any]] = {
    NodeName: _NAMES,
    ModelName: _NAMES,
    ReplicaId: st.builds("{}/{}".format, _NAMES, st.integers(0, 999)),
    ShardId: st.builds("{}/{}.{}".format, _NAMES, st.integers(0, 999), st.integers(0, 9)),
    Secret: st.builds(Secret, _TEXT),
    str: _TEXT,
    bool: st.booleans(),
    float: st.floats(allow_nan=False, allow_infinity=False),
}


@functools.cache  # hypothesis looks through a strategy when it first draws from it
def values(core: Any, message: type[betterproto2.Message]) -> st.SearchStrategy[Any]:
    """Values of the class `core`, whose fields have the ranges of `message`."""
    hints, about = typing.get_type_hints(core), message._betterproto
    made = {
        field.name: _field(field.name, hints[field.name], about.meta_by_field_name[field.name], about.cls_by_field)
        for field in dataclasses.fields(core)
    }
    return st.builds(core, **made)


def _field(name: str, hint: Any, meta: Any, classes: Any) -> st.SearchStrategy[Any]:
    if typing.get_origin(hint) is tuple:
        item = _field(name, typing.get_args(hint)[0], meta, classes)
        return st.lists(item, max_size=3).map(tuple)
    if type(None) in typing.get_args(hint):
        (inner,) = [arg for arg in typing.get_args(hint) if arg is not type(None)]
        return st.none() | _field(name, inner, meta, classes)
    if isinstance(hint, types.UnionType):
        return st.one_of([values(member, member_message(classes[name], member)) for member in typing.get_args(hint)])
    if dataclasses.is_dataclass(hint):
        return values(hint, classes[name])
    if isinstance(hint, type) and issubclass(hint, enum.Enum):
        return st.sampled_from(hint)
    if hint in _SPECIAL:
        return _SPECIAL[hint]
    return st.integers(1, 65535) if name == "port" else st.integers(*_RANGES[meta.proto_type])


def member_message(wrapper: type[betterproto2.Message], member: Any) -> Any:
    """The message of a class within the message of a union."""
    return next(cls for cls in wrapper._betterproto.cls_by_field.values() if cls.__name__ == member.__name__)
