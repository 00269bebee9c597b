"""How much may one agent say? A node with a stolen key must not fill the memory, the store and the screens of all.

The conversion has checked types, names and ranges; here is what no sender of ours exceeds. Words are cut, since they
are for people; lists that are too long are refused, since something would be missing, and so are numbers that no
machine has (`spans.py`) and a message that is too long in all: what watchers are sent of a node must fit in one of
theirs.
"""

import re
from dataclasses import fields, is_dataclass, replace
from typing import TypeVar

from llmgw.core.engines.releases import version_name
from llmgw.core.engines.terms import Install
from llmgw.core.errors import BadMessage, BadName
from llmgw.core.facts import ShardReport
from llmgw.core.hosts import host_name
from llmgw.core.link import AgentMessage, Registration, Report
from llmgw.daemon.spans import Span, spans

LONGEST_WORDS = 4_096
"""Characters of any text from an agent: a line of an engine, a path, a reason."""

MOST_ITEMS = 1_000
"""Entries of any list: shards of a node, GPUs, features, arguments."""

MOST_LINES = 40
"""Of an engine's output with a failure; the last ones are kept."""

MOST_TEXT = 512 * 1024
"""Characters of all texts of a message, after cutting."""

_DESCRIPTION, _RECORDS = 10.0, 3

_RULE = "must be a DNS name without wildcard, or an IP address"

_ENGINE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}\Z")
"""Of an install: it is part of a name that watchers, metrics and operators are given."""

_MACHINE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}\Z")
"""Wider than systemd's: it is only compared, and kept."""

T = TypeVar("T")


def weight(said: AgentMessage) -> float:
    """What reading and judging a message costs, showing what came of it included, in heartbeats.

    Measured with 20 models: a heartbeat 1, an inventory of a few records 4 to 8, one of a thousand 330, one of three
    thousand 1270.
    """
    described = isinstance(said, Registration) or (
        isinstance(said, Report) and (said.inventory is not None or said.engines is not None)
    )
    return (_DESCRIPTION if described else 1.0) + _records(said) / _RECORDS


def _records(value: object) -> int:
    """The records in all lists of it."""
    if isinstance(value, tuple):
        return sum(1 + _records(item) for item in value if is_dataclass(item))
    if not is_dataclass(value):
        return 0
    return sum(_records(getattr(value, field.name)) for field in fields(value))


def is_machine(text: str) -> bool:
    """Whether this can be the id of a machine."""
    return _MACHINE.match(text) is not None


def _is_host(text: str) -> bool:
    """Whether routers can be sent there; a node that has no route to anywhere has no address, either."""
    try:
        return not text or bool(host_name(text))
    except BadName:
        return False


def bounded(said: T) -> T:
    """Return `said`, a message of an agent, with all texts cut; raises BadMessage when it is still too long.

    So does a number outside its span, a machine-id that is none (both go into the store, which must be readable) and
    an address that nobody can be sent to.
    """
    if isinstance(said, Registration) and not is_machine(said.machine):
        raise BadMessage("Registration", "machine", "must be letters and digits, at most 128")
    if isinstance(said, Registration) and not _is_host(said.address):
        raise BadMessage("Registration", "address", _RULE)
    return _Bounds(type(said).__name__).record(said)


class _Bounds:
    """Counts the text of one message."""

    def __init__(self, message: str) -> None:
        self._message, self._text = message, 0

    def record(self, value: T) -> T:
        changes: dict[str, object] = {}
        if isinstance(value, Install):
            self._install(value)
        if isinstance(value, ShardReport) and not _is_host(value.host):
            raise BadMessage(self._message, "host", _RULE)
        kind: type = type(value)
        numbers = spans(kind)
        for field in fields(value):  # type: ignore[arg-type] # every message is a dataclass
            before = getattr(value, field.name)
            if field.name in numbers:
                self._number(before, field.name, numbers[field.name])
            after = self._fit(before[-MOST_LINES:] if field.name == "last_lines" else before, field.name)
            if after is not before and after != before:
                changes[field.name] = after
        return replace(value, **changes) if changes else value  # type: ignore[type-var]

    def _install(self, install: Install) -> None:
        if not _ENGINE.match(install.engine):
            raise BadMessage(self._message, "engine", "must be letters, digits and ._-, at most 64")
        try:
            version_name(install.version)
        except BadName as error:
            raise BadMessage(self._message, "version", str(error)) from None

    def _fit(self, value: object, field: str) -> object:
        if isinstance(value, str):
            return self._words(value, field)
        if isinstance(value, tuple):
            if len(value) > MOST_ITEMS:
                raise BadMessage(self._message, field, f"must hold at most {MOST_ITEMS}, not {len(value)}")
            return tuple(self._fit(item, field) for item in value)
        return self.record(value) if is_dataclass(value) and not isinstance(value, type) else value

    def _number(self, value: object, field: str, span: Span) -> None:
        for one in value if isinstance(value, tuple) else (value,):
            if isinstance(one, int | float) and (rule := span.broken_by(one)):
                raise BadMessage(self._message, field, rule)

    def _words(self, text: str, field: str) -> str:
        fitting = text if len(text) <= LONGEST_WORDS else type(text)(text[: LONGEST_WORDS - 1] + "…")
        self._text += len(fitting)
        if self._text > MOST_TEXT:
            raise BadMessage(self._message, field, f"is too long: more than {MOST_TEXT} characters in all")
        return fitting
