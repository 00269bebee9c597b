"""How long does an HTTP server want to be left alone? Read from the headers of its answer."""

from collections.abc import Mapping
from email.utils import parsedate_to_datetime

LONGEST = 86_400.0
"""Seconds that are believed."""


def wanted_pause(headers: Mapping[str, str], now: float) -> float | None:
    """Seconds by `Retry-After`, or until its limit of requests ends; None where it says nothing of the kind."""
    if (after := headers.get("Retry-After", "").strip()) and (seconds := _seconds(after, now)) is not None:
        return min(max(seconds, 1.0), LONGEST)
    reset = headers.get("X-RateLimit-Reset", "").strip()
    if headers.get("X-RateLimit-Remaining", "").strip() == "0" and (at := _number(reset)) is not None:
        return min(max(at - now, 1.0), LONGEST)
    return None


def _seconds(text: str, now: float) -> float | None:
    if (number := _number(text)) is not None:
        return number
    try:
        return parsedate_to_datetime(text).timestamp() - now
    except (ValueError, OverflowError):
        return None


def _number(text: str) -> float | None:
    return float(text) if text.isascii() and text.isdecimal() and len(text) <= 12 else None
