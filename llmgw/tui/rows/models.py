"""What stands in the table of models: a row each, with its replicas under it when it is open?"""

from collections.abc import Container, Iterable

from llmgw.core.refusals import Verdict, counts
from llmgw.core.safe import Safe, safe
from llmgw.core.shard import ShardState
from llmgw.core.units import several, size
from llmgw.core.views import ModelState, ModelView, ReplicaView
from llmgw.tui.rows import replicas as replica_rows
from llmgw.tui.rows.row import EMPTY, Cell, Column, Entry, Row, Tone, indented
from llmgw.tui.view import View

COLUMNS = (
    Column(safe("NAME"), most=36),
    Column(safe("STATE"), most=12),
    Column(safe("READY"), right=True),
    Column(safe("WHERE"), most=30),
    Column(safe("FOR"), right=True, most=7),
    Column(safe("CTX"), right=True, spare=3),
    Column(safe("SLOTS"), right=True, spare=4),
    Column(safe("MEMORY"), right=True, spare=2),
    Column(safe("ENGINE"), most=12, spare=5),
    Column(safe("WHAT"), most=60, least=40),
)

TONES = {
    ModelState.READY: Tone.GOOD,
    ModelState.DEGRADED: Tone.WARN,
    ModelState.STARTING: Tone.BUSY,
    ModelState.REFUSED: Tone.BAD,
    ModelState.FAILED: Tone.BAD,
    ModelState.STOPPED: Tone.QUIET,
}

_WORDS = 1024
"""The longest text of a line, in characters."""
_OPEN, _SHUT, _NONE, _UNDER = safe("▼ "), safe("▶ "), safe("  "), safe("    ")


def entries(view: View, opened: Container[str]) -> Iterable[Entry]:
    """All models, the replicas of the open ones under them.

    Replicas whose model is not in the catalog any more stand under a row of their own, at the end.
    """
    orphans = [name for name in view.replicas.models() if name not in view.models]
    for name in (*view.models, *orphans):
        replicas = view.replicas.of(name)
        mark = _NONE if not replicas else _OPEN if name in opened else _SHUT
        if name in view.models:
            yield name, row, (view.models[name], replicas, mark)
        else:
            yield name, orphan_row, (name, replicas, mark)
        if name in opened:
            for replica in replicas:
                yield replica.id, replica_row, (replica, view.is_away(replica))


def row(model: ModelView, replicas: tuple[ReplicaView, ...], mark: Safe) -> Row:
    """The row of one model."""
    ready = Tone.PLAIN if model.ready >= model.wanted else Tone.WARN
    cells = (
        Cell(safe(model.name)),
        Cell(safe(model.state.value), TONES[model.state]),
        Cell(ready_of(model.ready, model.wanted, model.away), ready, order=model.ready - model.wanted),
        Cell(_nodes(replicas), Tone.QUIET),
        Cell(safe("")),
        Cell(safe(f"{model.context}"), order=model.context),
        Cell(safe(f"{model.slots}"), order=model.slots),
        Cell(safe(size(model.memory)), order=model.memory),
        Cell(safe(model.engine)),
        _what(model, replicas),
    )
    return indented(Row(key=model.name, cells=cells, detail=tuple(_detail(model, replicas))), mark)


def orphan_row(name: str, replicas: tuple[ReplicaView, ...], mark: Safe) -> Row:
    """The row over replicas that no model of the catalog has."""
    quiet = (EMPTY,) * 5
    cells = (Cell(safe(name)), Cell(safe("unlisted"), Tone.WARN), EMPTY, Cell(_nodes(replicas), Tone.QUIET), *quiet)
    what = Cell(safe("not in the catalog; its replicas are still there"), Tone.WARN)
    return indented(Row(key=name, cells=(*cells, what)), mark)


def ready_of(ready: int, wanted: int, away: int) -> Safe:
    """`1/3`, or `0/3, 3 away`: those that were ready when their node was last heard may still serve."""
    return safe(f"{ready}/{wanted}" + (f", {away} away" if away else ""))


def replica_row(replica: ReplicaView, away: bool) -> Row:
    """The row of one replica, under its model; `away`: a node of it says nothing now."""
    cells = (
        Cell(safe(f"/{replica.id.rpartition('/')[2]}")),
        replica_rows.state(replica),
        Cell(safe("")),
        Cell(replica_rows.nodes(replica)),
        Cell(safe(""), Tone.QUIET, at=replica.since),
        *(Cell(safe("")),) * 4,
        replica_rows.what(replica, away),
    )
    return indented(Row(key=replica.id, cells=cells, detail=tuple(replica_rows.detail(replica)), depth=1), _UNDER)


def refused(model: ModelView) -> Safe:
    """`3 nodes: 2 not now, 1 never`."""
    of = counts(model.refusals)
    return safe(f"{several(len(model.refusals), 'node')}: {of[Verdict.NOT_NOW]} not now, {of[Verdict.NEVER]} never")


def _nodes(replicas: tuple[ReplicaView, ...]) -> Safe:
    names = sorted({shard.node for replica in replicas for shard in replica.shards})
    return safe(names[0] if len(names) == 1 else f"{len(names)} nodes" if names else "")


def _what(model: ModelView, replicas: tuple[ReplicaView, ...]) -> Cell:
    if model.refusals:
        return Cell(safe(f"{refused(model)} (w)"), Tone.BAD)
    failing = next((cell for cell in map(replica_rows.what, replicas) if cell.tone is Tone.BAD), None)
    if failing is not None:
        return failing
    if model.roll:
        return Cell(safe(model.roll), Tone.WARN)
    if any(replica.outdated for replica in replicas):
        return Cell(replica_rows.OUTDATED, Tone.WARN)
    if model.wanted != model.declared:
        return Cell(safe(f"scaled; the file says {model.declared}"), Tone.QUIET)
    return Cell(safe(""))


def _detail(model: ModelView, replicas: tuple[ReplicaView, ...]) -> list[Safe]:
    lines = [safe(f"{refusal.node}: {refusal.verdict.value}: {refusal}") for refusal in model.refusals]
    if model.roll:
        lines.append(safe(model.roll, _WORDS))
    for replica in replicas:
        if replica.state is ShardState.FAILED or replica.outdated:
            lines += replica_rows.detail(replica)
    if model.aliases:
        lines.append(safe(f"also called {', '.join(model.aliases)}"))
    return lines
