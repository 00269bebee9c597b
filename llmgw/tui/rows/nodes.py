"""What stands in the table of nodes?"""

from collections.abc import Iterable

from llmgw.core.safe import Safe, safe
from llmgw.core.state import NodeState
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
    Column(safe("LOAD"), right=True, spare=3),
    # Not beside PROMISED: what the kernel says is free and what was promised are no parts of one sum.
    Column(safe("OS FREE"), right=True, spare=2),
    Column(safe("ENGINES"), most=30, least=20, spare=1),
    Column(safe("ADDRESS"), most=24, spare=5),
    Column(safe("AGENT"), most=12, spare=4),
    Column(safe("WARNS"), right=True),
)

TONES = {NodeState.READY: Tone.GOOD, NodeState.UNREACHABLE: Tone.WARN, NodeState.LOST: Tone.BAD}

BAR = 8
"""Cells of a bar."""


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
            Cell(safe(node.address)) if node.address else EMPTY,
            Cell(safe(node.agent_version)) if node.agent_version else EMPTY,
            Cell(safe(f"! {len(node.warnings)}"), Tone.WARN, order=len(node.warnings)) if node.warnings else EMPTY,
        ),
        detail=tuple(detail(node)),
    )


def detail(node: NodeView) -> list[Safe]:
    """What the node is, and what is wrong with it."""
    lines = [safe(f"! {warning.text}" + (f"; {warning.fix}" if warning.fix else "")) for warning in node.warnings]
    for engine in node.engines.engines if node.engines is not None else ():
        if engine.problem:
            lines.append(safe(f"! engine {engine.engine}: {engine.problem}"))
    inventory = node.inventory
    if inventory is None:
        return [*lines, safe("known from before; its agent has not come back yet")]
    if inventory.gpu_problem:
        lines.append(safe(f"! GPUs: {inventory.gpu_problem}"))
    gpus = ", ".join(gpu.name or f"GPU {gpu.index}" for gpu in inventory.gpus) or "no GPU"
    by_hand = f"; by hand: {', '.join(inventory.by_hand)}" if inventory.by_hand else ""
    cpu = f"{inventory.cpu.cores} cores {inventory.cpu.model}".rstrip()
    lines.append(safe(f"{inventory.os}, {inventory.arch}, {cpu}, {size(inventory.memory)} RAM, {gpus}{by_hand}"))
    return lines


def bar(part: int, whole: int) -> Safe:
    """`▓▓▓░░░░░`; something is never drawn as nothing, and more than all is drawn as all."""
    full = 0 if whole <= 0 or part <= 0 else min(BAR, max(1, round(BAR * part / whole)))
    return safe("▓" * full + "░" * (BAR - full))


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


def _engines(node: NodeView) -> Cell:
    if node.engines is None:
        return Cell(safe("not said yet"), Tone.QUIET)
    if not node.engines.engines:
        return Cell(safe("none"), Tone.WARN)
    words = [
        f"{engine.engine} {'broken' if engine.problem else engine.version}".rstrip() for engine in node.engines.engines
    ]
    broken = any(engine.problem for engine in node.engines.engines)
    return Cell(safe(", ".join(words)), Tone.WARN if broken else Tone.PLAIN)
