"""How is a single value written in the objects of `--json`?"""

from datetime import UTC, datetime

Shape = dict[str, object]

_LAST = datetime(9999, 12, 31, tzinfo=UTC).timestamp()


def at(time: float | None) -> str | None:
    """`2026-12-01T05:37:10.250Z`; a time that no calendar holds reads as the nearest that one does."""
    if time is None:
        return None
    moment = datetime.fromtimestamp(min(max(time, 0.0), _LAST), UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
