"""How is a record written as a row of the store, and read back? Pure.

Reading a row that no version of ours wrote raises ValueError, TypeError, KeyError or BadName.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, assert_never

from sqlalchemy import Delete, delete
from sqlalchemy.dialects.sqlite import Insert, insert
from sqlalchemy.sql.schema import Table

from llmgw.core.catalog import Scaled
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
)
from llmgw.core.events import Event, EventKind
from llmgw.core.facts import Profile, Want
from llmgw.core.names import ModelName, NodeName, ReplicaId, model_name, node_name
from llmgw.core.units import Bytes
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
        case SaveNode(node, machine):
            return put(schema.nodes, name=node, machine=machine)
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
        case AppendEvent(event):
            return "event", event.seq
    assert_never(effect)


def assignment(row: Mapping[str, Any]) -> Assignment:
    """Read an assignment back."""
    profile = json.loads(row["profile"])
    if not isinstance(profile, dict):
        raise ValueError(f"profile of {row['replica']} is not an object")  # noqa: TRY004 # one kind of error for a bad row
    return Assignment(
        replica=ReplicaId(row["replica"]),
        model=model_name(row["model"]),
        nodes=tuple(node_name(name) for name in json.loads(row["nodes"])),
        want=Want(row["want"]),
        profile=Profile(
            **{**profile, "memory": Bytes(int(profile["memory"])), "arguments": tuple(profile["arguments"])}
        ),
        placed_at=float(row["placed_at"]),
        adopted=bool(row["adopted"]),
    )


def overlay(row: Mapping[str, Any]) -> Scaled:
    """Read an overlay back."""
    return Scaled(
        model=model_name(row["model"]), replicas=int(row["replicas"]), declared=int(row["declared"]), by=row["by"]
    )


def ordinal(row: Mapping[str, Any]) -> tuple[ModelName, int]:
    """Read a model's next ordinal back."""
    return model_name(row["model"]), int(row["next"])


def machine(row: Mapping[str, Any]) -> tuple[NodeName, str]:
    """Read a node's machine-id back."""
    return node_name(row["name"]), str(row["machine"])


def event(row: Mapping[str, Any]) -> Event:
    """Read an event back."""
    return Event(**{**row, "kind": EventKind(row["kind"]), "lines": tuple(json.loads(row["lines"]))})


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
