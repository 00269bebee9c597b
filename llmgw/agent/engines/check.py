"""Can this node start this shard? All that can be known before a process is launched, in words for the operator."""

import os
import re
import stat
from dataclasses import dataclass

from llmgw.agent.engines.adapter import Adapter
from llmgw.agent.engines.probe import Engine
from llmgw.core.errors import BadProfile
from llmgw.core.facts import ShardOrder
from llmgw.core.units import MIB, Bytes, size

_MOST_TOKENS, _MOST_SLOTS, _MOST_THREADS = 1 << 27, 1024, 4096
_PART = re.compile(r"(.+)-(\d{5})-of-(\d{5})\.gguf\Z", re.S)


@dataclass(frozen=True, slots=True, kw_only=True)
class Room:
    """RAM of the node: what engines may use in all, and what can be had now."""

    total: Bytes
    available: Bytes


def check(order: ShardOrder, engine: Engine | None, adapter: Adapter | None, room: Room) -> Engine:
    """Return the engine, or raise BadProfile with the node's words when the shard cannot start here.

    Reads the weights' first bytes.
    """
    engine = _engine(order, engine, adapter)
    _numbers(order)
    weights = _weights(order.profile.weights)
    _memory(order, weights, adapter, room)
    return engine


def _engine(order: ShardOrder, engine: Engine | None, adapter: Adapter | None) -> Engine:
    name, wanted = order.profile.engine, order.profile.version
    if adapter is None:
        raise BadProfile(f"engine {name}", "this agent does not know how to run it")
    if engine is None:
        way_out = (
            f"have it installed by `engines:` in server.yaml, or name one in agent.yaml: engines: {{{name}: PATH}}"
        )
        raise BadProfile(f"engine {name}", "this node has none", way_out)
    if engine.report.problem:
        raise BadProfile(f"engine {name}", engine.report.problem)
    if wanted and wanted != engine.report.version:
        raise BadProfile(f"engine {name}", f"is {engine.report.version} here, the profile wants {wanted}")
    return engine


def _numbers(order: ShardOrder) -> None:
    profile = order.profile
    for key, value, least, most in (
        ("context", profile.context, 1, _MOST_TOKENS),
        ("slots", profile.slots, 1, _MOST_SLOTS),
        ("context × slots", profile.context * profile.slots, 1, _MOST_TOKENS),
        ("threads", profile.threads, 0, _MOST_THREADS),
        ("arguments", len(profile.arguments), 0, 256),
    ):
        if not least <= value <= most:
            raise BadProfile(f"profile {key}", f"must be from {least} to {most}, not {value}")


def _weights(path: str) -> int:
    """Return the bytes of the weights, all parts of them."""
    if not os.path.isabs(path) or "\0" in path:
        raise BadProfile(f"weights {path[:200]!r}", "must be an absolute path")
    match = _PART.match(path)
    if match is None:
        return _file(path)
    stem, part, count = match[1], int(match[2]), int(match[3])
    if part != 1 or not 1 <= count <= 1000:
        raise BadProfile(f"weights {path}", f"is part {part} of {count}", f"name {stem}-00001-of-{match[3]}.gguf")
    return sum(_file(f"{stem}-{number:05d}-of-{match[3]}.gguf") for number in range(1, count + 1))


def _file(path: str) -> int:
    try:
        # Without O_NONBLOCK, opening a named pipe would wait for its writer.
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            about = os.fstat(handle)
            head = os.read(handle, 4) if stat.S_ISREG(about.st_mode) else b""
        finally:
            os.close(handle)
    except OSError as error:
        words = (error.strerror or type(error).__name__).lower()
        raise BadProfile(f"weights {path}", f"cannot be read: {words}", "is it on this node?") from None
    if not stat.S_ISREG(about.st_mode):
        raise BadProfile(f"weights {path}", "is no regular file", "name the .gguf file itself")
    if head != b"GGUF":
        raise BadProfile(f"weights {path}", f"is no GGUF file: it begins with {head!r}")
    return about.st_size


def _memory(order: ShardOrder, weights: int, adapter: Adapter | None, room: Room) -> None:
    need = order.profile.memory
    cache = (adapter.cache_ram(order.profile.arguments) or 0) * MIB if adapter else 0
    if weights + cache > need:
        more = f" with a prompt cache of {size(cache)}" if cache else ""
        raise BadProfile("memory", f"the weights are {size(weights)}{more}, the profile says {size(need)}")
    if need > room.total:
        raise BadProfile("memory", f"needs {size(need)}, engines on this node may use {size(room.total)} in all")
    if need > room.available:
        raise BadProfile("memory", f"needs {size(need)}, {size(room.available)} of {size(room.total)} can be had now")
