"""How far is a node's clock from ours? Estimated from the times in its heartbeats.

A beat that says `at` and comes in at `now` is `now - at` old by our clock: what its clock is behind, and how long it
travelled. Travelling takes no negative time, so of several beats the least is nearest to the clocks' difference.
"""

from dataclasses import dataclass

BEATS = 3
"""Beats that the estimate is taken from: one that is late must not look like a clock that is behind."""

WARN_FROM, GONE_BELOW = 3.0, 2.0
"""Seconds. NTP keeps clocks within a tenth of one, and a beat travels for less; from three seconds on lines of two logs
cannot be put side by side. A warning that is shown stays until the difference is clearly smaller."""

_MOVED = 0.1
"""A shown difference is shown anew when it moved by this share."""

_MOST = 100 * 365.25 * 86400
"""A century: a clock further away is as wrong."""


@dataclass(frozen=True, slots=True)
class Beat:
    """A beat, or several that came in a bunch: when it came in by our clock, and how much less its own said."""

    came: float
    offset: float


def heard(beats: tuple[Beat, ...], *, at: float, now: float, apart: float) -> tuple[Beat, ...]:
    """Return the last beats with this one.

    Beats that come in less than `apart` seconds after one another lay somewhere together, all but the last too long:
    they count as one.
    """
    offset = max(-_MOST, min(_MOST, now - at))
    if beats and now - beats[-1].came < apart:
        return (*beats[:-1], Beat(now, min(offset, beats[-1].offset)))
    return (*beats, Beat(now, offset))[-BEATS:]


def shown(before: float, beats: tuple[Beat, ...]) -> float:
    """Return the difference to show, positive when the node is behind, 0 for none; `before` is what is shown now."""
    if len(beats) < BEATS:
        return before
    now = min(beat.offset for beat in beats)
    if abs(now) < (GONE_BELOW if before else WARN_FROM):
        return 0.0
    if before and abs(now - before) < max(1.0, _MOVED * abs(before)):
        return before
    return now
