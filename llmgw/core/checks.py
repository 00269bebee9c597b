"""What is right or wrong with a host: one line a check, with the fact and what to do. `llmgw doctor` prints them."""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum


class Result(Enum):
    """How a check came out; stable in `--json`."""

    OK = "ok"
    WARNING = "warning"
    """It works, and will not for ever, or not as well as it could; or it could not be looked at."""
    FAULT = "fault"
    """It does not work."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One thing that was looked at."""

    name: str
    """Which kind of check: `configuration`, `certificate`, `clock`, `control plane`, …"""
    result: Result
    fact: str
    """Subject and what was found, with numbers."""
    fix: str = ""
    """What to do; empty only where nothing has to be done."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Examined:
    """What was found out about one subject: the host, or a file and what belongs to it."""

    subject: str
    checks: tuple[Check, ...]


def ok(name: str, fact: str) -> Check:
    """A check that found nothing wrong."""
    return Check(name=name, result=Result.OK, fact=fact)


def warning(name: str, fact: str, fix: str) -> Check:
    """A check that found what should be mended."""
    return Check(name=name, result=Result.WARNING, fact=fact, fix=fix)


def fault(name: str, fact: str, fix: str) -> Check:
    """A check that found what keeps things from working."""
    return Check(name=name, result=Result.FAULT, fact=fact, fix=fix)


def worst(checks: Iterable[Check]) -> Result:
    """The worst result of all; OK when there is none."""
    order = list(Result)
    return max((check.result for check in checks), key=order.index, default=Result.OK)
