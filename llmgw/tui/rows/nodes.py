"""What stands in the table of nodes?"""

from collections.abc import Iterable

from llmgw.core.devices import gpus_in_short
from llmgw.core.groups import BAR, bar
from llmgw.core.portrait import AWAY
from llmgw.core.presence import NodeState
from llmgw.core.safe import Safe, safe
from llmgw.core.units import size
from llmgw.core.views import NodeView
from llmgw.tui.rows.row import EMPTY, Cell, Column, Entry, Row, Tone
from llmgw.tui.view import View

COLUMNS = (
    Column(safe("NAME"), most=24),
    Column(safe("STATE"), most=12),
    Column(safe("FOR"), right=True, most=7),
    Column(safe("REPL"), right=True),
    Column(safe("PROMISED"), most=34),
    Column(safe("LOAD"), right=True, spare=4),
    # Not beside PROMISED: what the kernel says is free and what was promised are no parts of one sum.
    Column(safe("OS FREE"), right=True, spare=3),
    Column(safe("ENGINES"), most=30, least=28, spare=1),
    Column(safe("GPUS"), most=28, spare=2, sparse=True),
    Column(safe("ADDRESS"), most=24, spare=6),
    Column(safe("AGENT"), most=12, spare=5),
    Column(safe("WARNS"), right=True),
)

TONES = {NodeState.READY: Tone.GOOD, NodeState.UNREACHABLE: Tone.WARN, NodeState.LOST: Tone.BAD}


def entries(view: View) -> Iterable[Entry]:
    """All nodes."""
    for name, node in view.nodes.items():
        yield name, row, (node, len(view.replicas.on(name)))


def row(node: NodeView, replicas: int) -> Row:
    """The row of one node."""
    away = node.state is not NodeState.READY
    return Row(
        key=node.name,
        cells=(
            Cell(safe(node.name)),
            Cell(safe(node.state.value), TONES[node.state]),
            Cell(safe(""), Tone.QUIET, at=node.since),
            Cell(safe(str(replicas)), order=replicas),
            _promised(node),
            _load(node, away),
            _free(node, away),
            _engines(node),
            _gpus(node),
            Cell(safe(node.address)) if node.address else EMPTY,
            Cell(safe(node.agent_version)) if node.agent_version else EMPTY,
            Cell(safe(f"! {len(node.warnings)}"), Tone.WARN, order=len(node.warnings)) if node.warnings else EMPTY,
        ),
        detail=tuple(detail(node)),
    )


def detail(node: NodeView) -> list[Safe]:
    """What the node is, and what is wrong with it."""
    lines = [safe(f"! {warning}" + (f"; {warning.fix}" if warning.fix else "")) for warning in node.warnings]
    inventory = node.inventory
    if inventory is None:
        return [*lines, safe(AWAY)]
    gpus = f"GPUs: {gpus_in_short(inventory, memory=True) or 'none'}"
    by_hand = f"; by hand: {', '.join(one.field for one in inventory.by_hand)}" if inventory.by_hand else ""
    cpu = f"{inventory.cpu.cores} cores {inventory.cpu.model}".rstrip()
    lines.append(safe(f"{inventory.os}, {inventory.arch}, {cpu}, {size(inventory.memory)} RAM, {gpus}{by_hand}"))
    return lines


def _promised(node: NodeView) -> Cell:
    if not node.usable:
        return Cell(safe(f"{'?' * BAR} {size(node.promised)} of ?"), Tone.QUIET, order=node.promised)
    over = node.promised > node.usable
    text = safe(f"{bar(node.promised, node.usable)} {size(node.promised)} of {size(node.usable)}")
    return Cell(text, Tone.BAD if over else Tone.PLAIN, order=node.promised)


def _free(node: NodeView, away: bool) -> Cell:
    if node.usage is None:
        return EMPTY
    free = node.usage.memory_available
    return Cell(safe(size(free)), Tone.QUIET if away else Tone.PLAIN, order=free)


def _load(node: NodeView, away: bool) -> Cell:
    if node.usage is None:
        return EMPTY
    return Cell(
        safe(f"{node.usage.load_average:.1f}"), Tone.QUIET if away else Tone.PLAIN, order=node.usage.load_average
    )


def _gpus(node: NodeView) -> Cell:
    if node.inventory is None:
        return EMPTY
    gpus = gpus_in_short(node.inventory, memory=False)
    return Cell(safe(gpus), Tone.WARN if node.inventory.gpu_problem else Tone.PLAIN) if gpus else EMPTY


def _engines(node: NodeView) -> Cell:
    if node.engines is None and not node.installing:
        return Cell(safe("not said yet"), Tone.QUIET)
    engines = node.engines.engines if node.engines else ()
    words = [f"{engine.engine} {'broken' if engine.problem else engine.version}".rstrip() for engine in engines]
    if not words and not node.installing:
        return Cell(safe("none"), Tone.WARN)
    broken = any(engine.problem for engine in engines)
    tone = Tone.WARN if broken else Tone.BUSY if node.installing else Tone.PLAIN
    return Cell(safe(", ".join([*words, *node.installing])), tone)
