"""What people read: columns and cells, and the sentences above them.

Everything that a node, an engine or a client may have chosen passes `safe`; a cell with nothing in it shows `-`, so
that columns can be counted by a script all the same.
"""

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime

from llmgw.core.devices import gpus_in_short
from llmgw.core.events import Event
from llmgw.core.fold import Fold
from llmgw.core.hosts import host_port
from llmgw.core.names import ModelName
from llmgw.core.presence import NodeState
from llmgw.core.refusals import Refusal, Verdict, counts
from llmgw.core.safe import safe
from llmgw.core.shard import ShardState
from llmgw.core.units import age, several, size
from llmgw.core.views import AboutView, ModelState, ModelView, NodeView, ReplicaView, ShardView, Why
from llmgw.ctl.shapes import UNLISTED

Row = Sequence[str]


def align(rows: Iterable[Row]) -> list[str]:
    """Return the rows as lines, each column as wide as its widest cell; `safe` is applied here, to every cell."""
    cells = [[safe(cell) or "-" for cell in row] for row in rows]
    widths = [max(map(_width, column)) for column in zip(*cells, strict=True)]
    return ["  ".join(map(_pad, row, widths)).rstrip() for row in cells]


def _pad(cell: str, width: int) -> str:
    return cell + " " * (width - _width(cell))


def _width(text: str) -> int:
    if text.isascii():
        return len(text)
    # The console's own measure of wide characters; imported for those who have some.
    from rich.cells import cell_len

    return cell_len(text)


# --- nodes ------------------------------------------------------------------------------------------------------

_NODES = ("NAME", "STATE", "FOR", "ENGINES", "PROMISED", "GPUS", "WARNINGS")
_NODES_WIDE = ("ADDRESS", "AGENT", "CPU", "ARCH", "VIRTUAL", "AVAILABLE", "LOAD", "OS", "KERNEL")


def nodes(world: Fold, wide: bool) -> list[str]:
    """A line a node."""
    views = [world.nodes[name] for name in sorted(world.nodes)]
    if not views:
        return ["no node has joined yet"]
    head = (*_NODES, *_NODES_WIDE) if wide else _NODES
    return align([head, *(_node(view, world.now, wide) + (_node_wide(view) if wide else ()) for view in views)])


def _node(view: NodeView, now: float, wide: bool) -> tuple[str, ...]:
    return (
        view.name,
        view.state.value,
        age(now - view.since),
        _engines(view),
        f"{size(view.promised)} of {size(view.usable) if view.usable else '?'}",
        gpus_in_short(view.inventory, memory=wide) if view.inventory else "?",
        ", ".join(warning.code for warning in view.warnings),
    )


def _engines(view: NodeView) -> str:
    if view.engines is None:
        return "not said"
    named = [f"{one.engine} {'broken' if one.problem else one.version}".rstrip() for one in view.engines.engines]
    return ", ".join([*named, *view.installing]) or "none"


def _node_wide(view: NodeView) -> tuple[str, ...]:
    inventory, usage = view.inventory, view.usage
    return (
        view.address,
        view.agent_version,
        f"{inventory.cpu.cores}×{inventory.cpu.model or inventory.arch}" if inventory else "?",
        inventory.arch if inventory else "?",
        inventory.virtualization if inventory else "?",
        size(usage.memory_available) if usage else "?",
        f"{usage.load_average:.2f}" if usage else "?",
        inventory.os if inventory else "?",
        inventory.kernel if inventory else "?",
    )


# --- models -----------------------------------------------------------------------------------------------------

_OUTDATED = "runs an older profile; scale it down and up to change it"
_MODELS = ("NAME", "STATE", "READY", "ENGINE", "MEMORY", "ON", "NOTE")
_MODELS_WIDE = ("NAME", "STATE", "READY", "FOR", "NODE", "ENGINE", "ADDRESS", "PID", "NOTE")


def models(world: Fold, wide: bool) -> list[str]:
    """A line a model; `wide` has a line for each replica below it."""
    names = sorted([*world.models, *world.unlisted()])
    if not names:
        return ["no model is in the catalog; name one under `models:` in server.yaml"]
    if not wide:
        return align([_MODELS, *(_model(world.models.get(name), name, world) for name in names)])
    rows: list[Row] = [_MODELS_WIDE]
    for name in names:
        view = world.models.get(name)
        rows.append(
            (
                name,
                view.state.value if view else UNLISTED,
                _ready(view) if view else "",
                *("",) * 2,
                view.engine if view else "",
                *("",) * 2,
                _model_note(name, view, ()),
            )
        )
        rows += [_shard(one, shard, world) for one in world.replicas_of(name) for shard in one.shards]
    return align(rows)


def _model(view: ModelView | None, name: ModelName, world: Fold) -> tuple[str, ...]:
    replicas = world.replicas_of(name)
    return (
        name,
        view.state.value if view else UNLISTED,
        _ready(view) if view else "",
        view.engine if view else "",
        size(view.memory) if view else "",
        ", ".join(_on(replica, world) for replica in replicas),
        _model_note(name, view, replicas),
    )


def _ready(view: ModelView) -> str:
    return f"{view.ready}/{view.wanted}" + (f", {view.away} away" if view.away else "")


def _on(replica: ReplicaView, world: Fold) -> str:
    spans = "+".join(shard.node for shard in replica.shards)
    if replica.state is ShardState.READY:
        return f"{spans} (away)" if _away(replica, world) else spans
    return f"{spans} ({replica.state.value})"


def _away(replica: ReplicaView, world: Fold) -> bool:
    """A node of it says nothing now: what is known of it is what was said last."""
    known = (world.nodes.get(shard.node) for shard in replica.shards)
    return any(node is not None and node.state is not NodeState.READY for node in known)


def _model_note(name: str, view: ModelView | None, replicas: Sequence[ReplicaView]) -> str:
    if view is None:
        return f"not in the catalog; its replicas are still there; llmgw ctl scale {name} 0 ends them"
    notes = []
    if view.wanted != view.declared:
        notes.append(f"server.yaml says {view.declared}")
    if view.roll:
        notes.append(view.roll)
    old = [replica.id for replica in replicas if replica.outdated and not replica.leaving]
    if old:
        notes.append(f"{old[0]}{f' and {len(old) - 1} more' if old[1:] else ''} {_OUTDATED}")
    if view.refusals:
        notes.append(f"{_tally(view.refusals)}; see: llmgw ctl why {view.name}")
    return "; ".join(notes)


def _shard(replica: ReplicaView, shard: ShardView, world: Fold) -> tuple[str, ...]:
    return (
        f"  {replica.id}" if len(replica.shards) == 1 else f"  {replica.id}.{shard.rank}",
        shard.state.value,
        "",
        age(world.now - shard.since),
        shard.node,
        replica.engine,
        host_port(shard.host, shard.port) if shard.port else "",
        str(shard.pid or ""),
        _shard_note(replica, shard, world),
    )


def _shard_note(replica: ReplicaView, shard: ShardView, world: Fold) -> str:
    notes = ["node away, may still serve"] if shard.state is ShardState.READY and _away(replica, world) else []
    notes += [word for word, holds in (("leaving", replica.leaving), ("adopted", replica.adopted)) if holds]
    if replica.outdated and not replica.leaving:
        notes.append(_OUTDATED)
    if shard.failure and shard.state is not ShardState.READY:
        notes.append(shard.failure.text)
    if shard.retry_at is not None:
        notes.append(f"tried again in {age(shard.retry_at - world.now)}")
    return ", ".join(notes)


# --- why --------------------------------------------------------------------------------------------------------


def why(view: Why, wide: bool, away: int = 0) -> list[str]:
    """The sum in a sentence, then a line for each node; `away` of its replicas are on nodes that say nothing now."""
    del wide  # ctl refuses it: all of it is always shown
    head = (
        f"{view.model} is {view.state.value}: wants {several(view.wanted, 'replica')}, {view.placed} placed; "
        f"each takes {size(view.memory)} and {view.engine}"
    )
    lines = [safe(head, 1024), _one_more(view)]
    if away:
        lines.append(f"{several(away, 'replica')} on nodes that are away, and may still serve")
    rows = [(node, "fits", "", "") for node in view.fits]
    rows += [(one.node, one.verdict.value, str(one), one.clears) for one in view.refusals]
    return [*lines, *align([("NODE", "VERDICT", "REASON", "CLEARS WHEN"), *rows])] if rows else lines


def _one_more(view: Why) -> str:
    if not view.fits and not view.refusals:
        return "no node has joined, so there is none to ask"
    asked = len(view.fits) + len(view.refusals)
    tally = f" ({_tally(view.refusals)})" if view.refusals else ""
    return f"one more would fit on {len(view.fits)} of {several(asked, 'node')}{tally}"


def _tally(refusals: tuple[Refusal, ...]) -> str:
    found = counts(refusals)
    return f"{found[Verdict.NOT_NOW]} not now, {found[Verdict.NEVER]} never"


# --- events -----------------------------------------------------------------------------------------------------


def events(found: Iterable[Event], wide: bool) -> list[str]:
    """A line an event, oldest first; `wide` adds an engine's last lines below it."""
    found = list(found)
    if not found:
        return ["nothing has happened yet"]
    rows = align([("SEQ", "AT", "KIND", "SUBJECT", "CAUSE", "TEXT"), *map(_event, found)])
    if not wide:
        return rows
    return [rows[0], *(line for row, one in zip(rows[1:], found, strict=True) for line in (row, *_output(one)))]


def event(one: Event, wide: bool) -> list[str]:
    """One event in columns of a fixed width, since those to come are not known."""
    seq, when, kind, subject, cause, text = map(safe, _event(one))
    line = f"{seq:<6}  {when:<19}  {kind:<17}  {subject:<16}  {cause or '-':<6}  {text}"
    return [line, *_output(one)] if wide else [line]


EVENT_HEAD = f"{'SEQ':<6}  {'AT':<19}  {'KIND':<17}  {'SUBJECT':<16}  {'CAUSE':<6}  TEXT"
"""Over the lines of `event`."""


def _event(one: Event) -> tuple[str, ...]:
    by = f" (by {one.by})" if one.by else ""
    return (str(one.seq), clock(one.at), one.kind.value, one.subject, str(one.cause or ""), one.text + by)


def _output(one: Event) -> list[str]:
    return [f"        | {safe(line)}" for line in one.lines]


def clock(time: float) -> str:
    """A time of day here; the day too, since events are kept for long."""
    try:
        return datetime.fromtimestamp(time, UTC).astimezone().strftime("%Y-%m-%d %H:%M:%S")
    except (OverflowError, ValueError, OSError):
        return "?"


# --- status -----------------------------------------------------------------------------------------------------


_SAID_FOR_ALL = "engines_exposed"
"""The warning that every node has when the cluster's own line says it."""


def status(about: AboutView, world: Fold) -> list[str]:
    """The cluster in a few lines."""
    counted = ("ready", "wanted", "away")
    ready, wanted, away = (sum(getattr(one, name) for one in world.models.values()) for name in counted)
    up = age(about.now - about.started)
    lines = [
        safe(f"cluster   {about.cluster}: llmgwd {about.version}, up {up}, revision {world.revision}"),
        f"nodes     {_states([node.state for node in world.nodes.values()], NodeState)}",
        f"models    {_states([model.state for model in world.models.values()], ModelState)}",
        f"replicas  {ready} of {wanted} ready" + (f", {away} on nodes that are away, may still serve" if away else ""),
    ]
    if not about.settled:
        lines.append("settling  it waits for nodes to come back before it moves anything")
    if about.exposure != "loopback":
        lines.append(safe(f"warning   engines listen with exposure: {about.exposure}, in plain HTTP with a key each"))
    for name in sorted(world.nodes):
        lines += [
            safe(f"warning   {name}: {warning}" + (f"; {warning.fix}" if warning.fix else ""), 1024)
            for warning in world.nodes[name].warnings
            if warning.code != _SAID_FOR_ALL or about.exposure == "loopback"
        ]
    return lines


def _states(seen: Sequence[NodeState | ModelState], of: type[NodeState] | type[ModelState]) -> str:
    return ", ".join(f"{seen.count(state)} {state.value}" for state in of if state in seen) or "none"
