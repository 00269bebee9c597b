"""What things are called, and the grammar of it.

A replica is `MODEL/ORDINAL`; ordinals of a model only grow, so an id never means two things.
A shard is `MODEL/ORDINAL.RANK`.
"""

import re
from typing import NewType

from llmgw.core.errors import BadName

NodeName = NewType("NodeName", str)
ModelName = NewType("ModelName", str)
ReplicaId = NewType("ReplicaId", str)
ShardId = NewType("ShardId", str)

_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,62}\Z")
_ALIAS = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/-]{0,127}\Z")
_SHARD = re.compile(r"([a-z0-9][a-z0-9._-]{0,62})/(0|[1-9][0-9]{0,8})\.(0|[1-9][0-9]{0,3})\Z")


def node_name(text: str) -> NodeName:
    """Return `text` as a node's name, or raise BadName."""
    return NodeName(_checked("node", text, _NAME))


def model_name(text: str) -> ModelName:
    """Return `text` as a model's name, or raise BadName."""
    return ModelName(_checked("model", text, _NAME))


def alias(text: str) -> str:
    """Return `text` as another name that clients may ask for (upper case, `:` and `/` allowed), or raise BadName."""
    return _checked("alias", text, _ALIAS)


def replica_id(model: ModelName, ordinal: int) -> ReplicaId:
    """The id of a model's replica."""
    return ReplicaId(f"{model}/{ordinal}")


def shard_id(replica: ReplicaId, rank: int) -> ShardId:
    """The id of a replica's shard."""
    return ShardId(f"{replica}.{rank}")


def split_shard(text: str) -> tuple[ModelName, int, int]:
    """Return model, ordinal and rank of a shard's id, or raise BadName."""
    match = _SHARD.match(text)
    if match is None:
        raise BadName("shard", text, "MODEL/ORDINAL.RANK")
    return ModelName(match[1]), int(match[2]), int(match[3])


def replica_of(shard: ShardId) -> ReplicaId:
    """The replica that a shard is part of."""
    model, ordinal, _ = split_shard(shard)
    return replica_id(model, ordinal)


def file_name(shard: ShardId) -> str:
    """The shard's id as a file or unit name; two shards never share one, for a number is written in one way only."""
    model, ordinal, rank = split_shard(shard)
    return f"{model}-{ordinal}-{rank}"


def _checked(kind: str, text: str, grammar: re.Pattern[str]) -> str:
    if grammar.match(text) is None:
        raise BadName(kind, text, grammar.pattern.removesuffix(r"\Z"))
    return text
