"""What stands in the table of refusals, and in the lines over it?"""

from collections.abc import Iterable

from llmgw.core.refusals import Refusal, Verdict, counts
from llmgw.core.safe import Safe, safe
from llmgw.core.units import several, size
from llmgw.core.views import Why
from llmgw.tui.rows.row import Cell, Column, Entry, Row, Tone

COLUMNS = (
    Column(safe("NODE"), most=24),
    Column(safe("VERDICT"), most=8),
    Column(safe("REASON"), most=64, least=40),
    Column(safe("CLEARS WHEN"), most=60, least=16),
)


def entries(why: Why) -> Iterable[Entry]:
    """The nodes that would take one more replica, then those that would not, nearest to fitting first."""
    for node in why.fits:
        yield node, fit_row, (node,)
    for refusal in why.refusals:
        yield refusal.node, row, (refusal,)


def row(refusal: Refusal) -> Row:
    """The row of a node that refuses."""
    tone = Tone.BAD if refusal.verdict is Verdict.NEVER else Tone.WARN
    clears = safe(refusal.clears) if refusal.clears else safe("–")
    return Row(
        key=refusal.node,
        cells=(
            Cell(safe(refusal.node)),
            Cell(safe(refusal.verdict.value), tone),
            Cell(safe(str(refusal))),
            Cell(clears),
        ),
        detail=(safe(f"{refusal.node}: {refusal}"), safe(f"clears when: {clears}")),
    )


def fit_row(node: str) -> Row:
    """The row of a node that would take it."""
    return Row(
        key=node,
        cells=(
            Cell(safe(node)),
            Cell(safe("fits"), Tone.GOOD),
            Cell(safe("would take one more replica now")),
            Cell(safe("–"), Tone.QUIET),
        ),
    )


def head(why: Why, away: int = 0) -> tuple[Safe, Safe]:
    """What the model wants, and how many nodes say what; `away` of its replicas are on nodes that say nothing now."""
    of = counts(why.refusals)
    nodes = len(why.fits) + len(why.refusals)
    needs = f"each needs {size(why.memory)} of RAM and {why.engine}"
    return (
        safe(f"{why.model} is {why.state.value}: {why.placed} of {why.wanted} placed; {needs}"),
        safe(
            f"{several(nodes, 'node')}: {len(why.fits)} fit, {of[Verdict.NOT_NOW]} not now, {of[Verdict.NEVER]} never"
            + (f"; {several(away, 'replica')} away, may still serve" if away else "")
        ),
    )
