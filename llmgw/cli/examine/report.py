"""How is a look at a host told: as lines for people, or as one JSON object?"""

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime

from llmgw.core.checks import Check, Examined, Result, worst
from llmgw.core.safe import LINE, safe
from llmgw.core.units import several

_COLOURS = {Result.OK: "32", Result.WARNING: "33", Result.FAULT: "31"}
_RESULT = 8
"""Columns of a result: the longest word and a space."""


def lines(examined: Sequence[Examined], *, colour: bool, ascii_only: bool) -> Iterator[str]:
    """A head for each subject, a line for each check and one for what to do, the sum at the end."""
    checks = [check for one in examined for check in one.checks]
    width = max((len(check.name) for check in checks), default=0) + 1
    for one in examined:
        yield str(safe(one.subject, LINE))
        for check in one.checks:
            yield f"  {_word(check.result, colour=colour)}{check.name:<{width}}{safe(check.fact, LINE)}"
            if check.fix and check.result is not Result.OK:
                arrow = "->" if ascii_only else "→"
                yield f"  {'':<{_RESULT + width}}{arrow} {safe(check.fix, LINE)}"
        yield ""
    yield summary(checks)


def summary(checks: Sequence[Check]) -> str:
    """`1 fault, 2 warnings, 14 ok`."""
    count = Counter(check.result for check in checks)
    told = [several(count[one], one.value) for one in (Result.FAULT, Result.WARNING) if count[one]]
    return ", ".join([*told, f"{count[Result.OK]} ok"])


def shape(examined: Sequence[Examined], host: str, now: float) -> str:
    """The same as one JSON object."""
    checks = [check for one in examined for check in one.checks]
    return json.dumps(
        {
            "at": datetime.fromtimestamp(now, UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
            "host": host,
            "result": worst(checks).value,
            "checks": [
                {
                    "subject": one.subject,
                    "name": check.name,
                    "result": check.result.value,
                    "fact": check.fact,
                    "fix": check.fix,
                }
                for one in examined
                for check in one.checks
            ],
        },
        indent=2,
    )


def _word(result: Result, *, colour: bool) -> str:
    word = f"{result.value:<{_RESULT}}"
    return f"\x1b[{_COLOURS[result]}m{word}\x1b[0m" if colour else word
