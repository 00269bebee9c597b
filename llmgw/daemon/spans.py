"""Which numbers may an agent say? By the field that holds them: beyond are some that no machine has.

Sums of what all nodes say, the store's columns and JSON must hold them all. A field without a span is an error of ours.
"""

import typing
from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import cache

from llmgw.core.facts import Profile
from llmgw.core.units import BOUND, Bytes


@dataclass(frozen=True, slots=True)
class Span:
    """From `least` to `most`, both included."""

    least: float
    most: float

    def broken_by(self, value: float) -> str:
        """The rule that `value` breaks; empty when it is within the span."""
        if self.least <= value <= self.most:  # no comparison with NaN holds
            return ""
        return f"must be from {_written(self.least)} to {_written(self.most)}, not {_written(value)}"


SIZE = Span(0, BOUND)

_COUNT = Span(0, (1 << 31) - 1)
_PLACE = Span(0, 1 << 20)
"""Of a processor, a GPU or a NUMA node among its like."""
_TIME = Span(-62135596800.0, 253402300799.0)
"""The years 1 to 9999: a certificate that never ends has the last second of these (RFC 5280, 4.1.2.5)."""
_AMOUNT = Span(0.0, 1e9)

_BY_NAME: Mapping[str, Span] = {
    "cores": _PLACE,
    "index": _PLACE,
    "numa": _PLACE,
    "pid": Span(0, 1 << 22),  # PID_MAX_LIMIT of the kernel
    "port": Span(1, 65535),
    "files_port": Span(1, 65535),
    "rate": Span(0.0, float(BOUND)),
    "launch": _COUNT,
    "attempts": _COUNT,
    "context": _COUNT,
    "slots": _COUNT,
    "threads": _COUNT,
    "epoch": Span(0, 1 << 53),  # exact in JSON; seconds since 1970
    "exit_status": Span(0, 1 << 16),
    "signal": Span(0, 128),
    "quota": Span(1e-6, 1e9),
    "load_average": _AMOUNT,
    "drain": _AMOUNT,
    "at": _TIME,
    "since": _TIME,
    "probed_at": _TIME,
    "retry_at": _TIME,
    "checked_at": _TIME,
    "certificate_ends": _TIME,
}

_IN_CLASS: Mapping[tuple[type, str], Span] = {
    (Profile, "memory"): Span(0, BOUND >> 10),
}
"""What a node is promised is a sum: a thousand shards that run unasked must not have more than the wire holds."""


def _written(number: float) -> str:
    return str(number) if isinstance(number, int) else f"{number:.12g}"


@cache
def spans(kind: type) -> Mapping[str, Span]:
    """The span of each field of the dataclass `kind` that holds a number, or several; raises TypeError without one."""
    hints, found = typing.get_type_hints(kind), dict[str, Span]()
    for field in fields(kind):
        number = _number(hints[field.name])
        if number is None:
            continue
        own = _IN_CLASS.get((kind, field.name))
        span = own or (SIZE if number is Bytes else _BY_NAME.get(field.name))
        if span is None:
            raise TypeError(f"{kind.__name__}.{field.name} has no span")
        found[field.name] = span
    return found


def _number(hint: object) -> object:
    """What kind of number a field of this type holds; None for one that holds none."""
    if hint in (int, float, Bytes):
        return hint
    return next((found for one in typing.get_args(hint) if (found := _number(one)) is not None), None)
