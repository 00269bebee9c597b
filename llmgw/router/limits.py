"""How much of anything the router takes from a client or an engine before it says no."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Sizes in bytes, durations in seconds."""

    max_body: int = 32 << 20
    """One request's body."""
    bodies: int = 256 << 20
    """All bodies held at one time, so that many large requests cannot take the machine's memory."""
    request_line: int = 8 << 10
    field: int = 8 << 10
    fields: int = 100
    head: int = 32 << 10
    """All header fields of a request together."""
    engine_head: int = 64 << 10
    ahead: int = 64 << 10
    """What a client may send beyond the request that is being answered; then reading is paused."""
    connections: int = 20_000
    header_time: float = 10.0
    """From a request's first byte to the end of its head."""
    body_grace: float = 10.0
    """After that a body must have come at `body_rate` on average."""
    body_rate: int = 1 << 10
    idle_time: float = 75.0
    """Between two requests of one connection."""
    write_time: float = 60.0
    """How long a client may leave an answer unread."""
    linger_time: float = 2.0
    """How long a refused client is listened to, so that it can read why."""
    linger: int = 1 << 20
    connect_time: float = 1.0
    engine_idle: float = 600.0
    """Silence of an engine that works on a request, before its first byte or between two."""
    keep: float = 4.0
    """An unused engine connection is closed after this; llama.cpp closes it after five."""
    kept: int = 64
    """Unused connections kept for each engine."""
    tick: float = 0.5
    """How often deadlines are looked at."""


LIMITS = Limits()
