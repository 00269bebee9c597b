"""What stands in the table of events, and which events tell one story?"""

import time
from collections.abc import Iterable, Sequence

from llmgw.core.events import Event, EventKind
from llmgw.core.safe import Safe, safe
from llmgw.tui.rows.row import EMPTY, Cell, Column, Entry, Row, Tone, indented

COLUMNS = (
    Column(safe("SEQ"), most=16),
    Column(safe("AT"), most=8),
    Column(safe("KIND"), most=18),
    Column(safe("SUBJECT"), most=28),
    Column(safe("WHAT"), most=80, least=24),
    Column(safe("CAUSE"), right=True, spare=1),
    Column(safe("BY"), most=16, spare=3),
)

_TONES = {
    EventKind.NODE_READY: Tone.GOOD,
    EventKind.SHARD_READY: Tone.GOOD,
    EventKind.ENGINE_INSTALLED: Tone.GOOD,
    EventKind.ENGINE_REPAIRED: Tone.GOOD,
    EventKind.NODE_UNREACHABLE: Tone.WARN,
    EventKind.RELEASE_UNKNOWN: Tone.WARN,
    EventKind.NODE_REFUSED: Tone.WARN,
    EventKind.ROUTER_TWICE: Tone.WARN,
    EventKind.OVERLAY_OVERRULED: Tone.WARN,
    EventKind.NODE_LOST: Tone.BAD,
    EventKind.SHARD_FAILED: Tone.BAD,
    EventKind.PLACE_REFUSED: Tone.BAD,
    EventKind.ENGINE_FAILED: Tone.BAD,
    EventKind.ENGINE_BROKEN: Tone.BAD,
    EventKind.ROLL_STOPPED: Tone.BAD,
}

_STORY = 200
"""Events of one story that are shown at most."""


def entries(events: Iterable[Event], subject: str) -> Iterable[Entry]:
    """The events about a subject (empty: all), oldest first. A replica's shards and a model's replicas belong to it."""
    for event in events:
        if not subject or event.subject == subject or event.subject.startswith((f"{subject}/", f"{subject}.")):
            yield str(event.seq), row, (event, 0)


def story(events: Sequence[Event], seq: int) -> list[Entry]:
    """An event's causes, oldest first, then it, then what followed from it; as a tree."""
    by_seq = {event.seq: event for event in events}
    if seq not in by_seq:
        return []
    chain = [by_seq[seq]]
    # A cause is always older: whatever the other end sends, this ends.
    while (cause := by_seq.get(chain[0].cause)) is not None and cause.seq < chain[0].seq:
        chain.insert(0, cause)
    depths = {event.seq: depth for depth, event in enumerate(chain)}
    told = list(chain)
    for event in sorted(events, key=lambda event: event.seq):
        if event.seq > seq and event.cause in depths and depths[event.cause] >= depths[seq]:
            depths[event.seq] = depths[event.cause] + 1
            told.append(event)
    return [(str(event.seq), row, (event, depths[event.seq])) for event in told[:_STORY]]


def row(event: Event, level: int) -> Row:
    """The row of one event; in a story `level` events led to it."""
    tone = _TONES.get(event.kind, Tone.PLAIN)
    made = Row(
        key=str(event.seq),
        cells=(
            Cell(safe(str(event.seq)), order=event.seq),
            Cell(clock(event.at), Tone.QUIET, order=event.at),
            Cell(safe(event.kind.value), tone),
            Cell(safe(event.subject)),
            Cell(safe(event.text)),
            Cell(safe(str(event.cause)), Tone.QUIET, order=event.cause) if event.cause else EMPTY,
            Cell(safe(event.by)) if event.by else EMPTY,
        ),
        detail=tuple(_detail(event)),
        depth=level,
    )
    return indented(made, safe("  " * min(level - 1, 6) + "└ ")) if level else made


def clock(at: float) -> Safe:
    """`14:02:11`, in the time zone of whoever looks."""
    return _local(at, "%H:%M:%S")


def _local(at: float, form: str) -> Safe:
    return safe(time.strftime(form, time.localtime(at)) if 0 <= at < 1e11 else "?")


def _detail(event: Event) -> list[Safe]:
    day = _local(event.at, "%Y-%m-%d %H:%M:%S")
    by = f", asked by {event.by}" if event.by else ""
    return [safe(f"{day}  {event.subject}: {event.text}{by}"), *(safe(f"  {line}") for line in event.lines)]
