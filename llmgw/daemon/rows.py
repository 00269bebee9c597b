"""How is a record written as a row of the store? Pure; `readback` reads it."""

import json
from dataclasses import asdict
from typing import Any, assert_never

from sqlalchemy import Delete, delete
from sqlalchemy.dialects.sqlite import Insert, insert
from sqlalchemy.sql.schema import Table

from llmgw.core.effects import (
    AppendEvent,
    Assignment,
    DropAssignment,
    DropOverlay,
    Persist,
    SaveAssignment,
    SaveNode,
    SaveOrdinal,
    SaveOverlay,
    SaveRelease,
)
from llmgw.core.engines.orders import Release
from llmgw.core.engines.releases import written
from llmgw.core.events import Event
from llmgw.daemon import schema


def statement(effect: Persist) -> Insert | Delete:
    """The one statement that stores `effect`; doing it twice leaves the same."""
    match effect:
        case SaveAssignment(assignment):
            return put(schema.assignments, **_assignment_row(assignment))
        case DropAssignment(replica):
            return delete(schema.assignments).where(schema.assignments.c.replica == replica)
        case SaveOrdinal(model, following):
            return put(schema.ordinals, model=model, next=following)
        case SaveOverlay(overlay):
            return put(schema.overlays, **asdict(overlay))
        case DropOverlay(model):
            return delete(schema.overlays).where(schema.overlays.c.model == model)
        case SaveNode(node, machine, memory):
            return put(schema.nodes, name=node, machine=machine, memory=memory)
        case SaveRelease(release, wanted):
            return put(schema.releases, **_release_row(release, wanted))
        case AppendEvent(event):
            return put(schema.events, **_event_row(event))
    assert_never(effect)


def subject(effect: Persist) -> tuple[str, object]:
    """What `effect` is about: a later effect about the same makes it needless."""
    match effect:
        case SaveAssignment(assignment):
            return "assignment", assignment.replica
        case DropAssignment(replica):
            return "assignment", replica
        case SaveOrdinal(model):
            return "ordinal", model
        case SaveOverlay(overlay):
            return "overlay", overlay.model
        case DropOverlay(model):
            return "overlay", model
        case SaveNode(node):
            return "node", node
        case SaveRelease(release):
            return "release", release_name(release)
        case AppendEvent(event):
            return "event", event.seq
    assert_never(effect)


def put(table: Table, **values: Any) -> Insert:
    """Insert a row, or replace the one with the same key."""
    (key,) = table.primary_key.columns
    insertion = insert(table).values(values)
    rest = {name: insertion.excluded[name] for name in values if name != key.name}
    return insertion.on_conflict_do_update(index_elements=[key], set_=rest)


def _assignment_row(assignment: Assignment) -> dict[str, Any]:
    return {
        "replica": assignment.replica,
        "model": assignment.model,
        "nodes": json.dumps(assignment.nodes),
        "want": assignment.want.value,
        "profile": json.dumps(asdict(assignment.profile)),
        "placed_at": assignment.placed_at,
        "adopted": assignment.adopted,
    }


def release_name(release: Release) -> str:
    """What a release is kept by: one for each engine, version and variant."""
    return f"{release.engine}/{release.version}/{release.variant}"


def _release_row(release: Release, wanted: str) -> dict[str, Any]:
    return {"name": release_name(release), "wanted": wanted, "release": written(release)}


def _event_row(event: Event) -> dict[str, Any]:
    return {
        "seq": event.seq,
        "at": event.at,
        "kind": event.kind.value,
        "subject": event.subject,
        "text": event.text,
        "cause": event.cause,
        "by": event.by,
        "lines": json.dumps(event.lines),
    }
