"""What happened, for people: a sequence number, a subject, a sentence and a cause.

An event's cause is the `seq` of the event that led to it, so "why did this happen" is a walk along causes.
"""

from dataclasses import dataclass
from enum import Enum


class EventKind(Enum):
    """The kinds of events; stable in `--json`."""

    CONTROL_STARTED = "control_started"
    SETTLED = "settled"
    MODEL_ADDED = "model_added"
    MODEL_CHANGED = "model_changed"
    MODEL_REMOVED = "model_removed"
    MODEL_SCALED = "model_scaled"
    OVERLAY_OVERRULED = "overlay_overruled"
    NODE_JOINED = "node_joined"
    NODE_READY = "node_ready"
    NODE_UNREACHABLE = "node_unreachable"
    NODE_LOST = "node_lost"
    NODE_REFUSED = "node_refused"
    ENGINES_CHANGED = "engines_changed"
    REPLICA_PLACED = "replica_placed"
    REPLICA_ADOPTED = "replica_adopted"
    REPLICA_DRAINED = "replica_drained"
    REPLICA_REMOVED = "replica_removed"
    SHARD_STARTING = "shard_starting"
    SHARD_READY = "shard_ready"
    SHARD_DRAINING = "shard_draining"
    SHARD_STOPPED = "shard_stopped"
    SHARD_FAILED = "shard_failed"
    PLACE_REFUSED = "place_refused"
    STRAY_FOUND = "stray_found"
    NODE_CHANGED = "node_changed"
    NODE_QUALIFIES = "node_qualifies"
    NODE_DISQUALIFIED = "node_disqualified"
    GPU_GONE = "gpu_gone"
    ADDRESS_UNREACHABLE = "address_unreachable"
    ADDRESS_REACHED = "address_reached"
    ROUTER_TWICE = "router_twice"
    ENGINE_WANTED = "engine_wanted"
    ENGINE_WANTED_NO_MORE = "engine_wanted_no_more"
    RELEASE_RESOLVED = "release_resolved"
    RELEASE_UNKNOWN = "release_unknown"
    ENGINE_LOCKED = "engine_locked"
    ENGINE_RETRIED = "engine_retried"
    ENGINE_INSTALLING = "engine_installing"
    ENGINE_INSTALLED = "engine_installed"
    ENGINE_FAILED = "engine_failed"
    ENGINE_BROKEN = "engine_broken"
    ENGINE_REPAIRED = "engine_repaired"
    ENGINE_REMOVED = "engine_removed"
    ROLL_STOPPED = "roll_stopped"


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """Something that happened."""

    seq: int
    at: float
    kind: EventKind
    subject: str
    """The node, model, replica or shard that it is about."""
    text: str
    cause: int = 0
    """The seq of the event that led here; 0 when it came from outside."""
    by: str = ""
    """Who asked, when it was an act."""
    lines: tuple[str, ...] = ()
    """An engine's last lines of output, where they explain it."""
