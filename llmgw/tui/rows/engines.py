"""What stands in the table of engines: a row for each engine on each node, with a bar while it is installed?"""

from collections.abc import Iterable

from llmgw.core import engine_words
from llmgw.core.engine_words import EngineState
from llmgw.core.engines import progress
from llmgw.core.engines.terms import Install, InstallStep
from llmgw.core.groups import bar
from llmgw.core.presence import NodeState
from llmgw.core.safe import Safe, safe
from llmgw.core.units import age
from llmgw.core.views import EngineView, ModelView
from llmgw.tui.rows.row import EMPTY, Cell, Column, Entry, Row, Tone, rough_age
from llmgw.tui.view import Steps, View

COLUMNS = (
    Column(safe("NODE"), most=24),
    Column(safe("ENGINE"), most=12),
    Column(safe("VERSION"), most=12),
    Column(safe("VARIANT"), most=10, spare=1, sparse=True),
    Column(safe("STEP"), most=10),
    Column(safe("PROGRESS"), most=16, sparse=True),
    Column(safe("LEFT"), right=True, most=7, sparse=True),
    Column(safe("DETAIL"), most=72, least=16),
)

TONES = {
    EngineState.READY: Tone.GOOD,
    EngineState.INSTALLING: Tone.BUSY,
    EngineState.WAITING: Tone.QUIET,
    EngineState.FAILED: Tone.BAD,
    EngineState.BROKEN: Tone.BAD,
}

_ORDER = (EngineState.BROKEN, EngineState.FAILED, EngineState.WAITING, EngineState.INSTALLING, EngineState.READY)
"""Sorted by STEP: what is wrong first."""
_STEPS = tuple(InstallStep)
_LATER = Cell(EMPTY.text, Tone.QUIET)
"""Reads like `EMPTY` and keeps its column: there will be something in it, at another step."""
_WORDS = 1024
"""The longest text of a line, in characters."""


def entries(view: View) -> Iterable[Entry]:
    """All engines, by node, name and version."""
    for name, one in sorted(view.engines.items()):
        yield name, row, (name, one, _away(view, one))


def row(name: str, view: EngineView, away: bool) -> Row:
    """The row of one engine; `away`: its node says nothing now."""
    install, how = view.install, engine_words.state(view.install)
    tone = Tone.QUIET if away else TONES[how]
    step = safe(engine_words.step(install))
    return Row(
        key=name,
        cells=(
            Cell(safe(view.node)),
            Cell(safe(install.engine)),
            Cell(safe(install.version)),
            Cell(safe(install.variant)) if install.variant else EMPTY,
            Cell(step, tone, order=_ORDER.index(how) + _STEPS.index(install.step) / 10),
            _progress(view, away),
            _left(install, away),
            _detail(view, away),
        ),
    )


def about(view: View, name: str) -> tuple[Safe, ...]:
    """What there is to say about one engine; made for the row under the cursor alone, since hundreds may move."""
    one = view.engines.get(name)
    return () if one is None else tuple(_about(one, view.steps.get(name, ()), _away(view, one)))


def _away(view: View, one: EngineView) -> bool:
    node = view.nodes.get(one.node)
    return node is not None and node.state is not NodeState.READY


def waiting(models: Iterable[ModelView], node: str) -> list[str]:
    """The models that this node refuses because of its engines."""
    codes = {"engine_installing", "engine_broken", "engine_version", "engine_missing"}
    return [one.name for one in models if any(no.node == node and no.code in codes for no in one.refusals)]


def _progress(view: EngineView, away: bool) -> Cell:
    install, share = view.install, progress.percent(view.install)
    if engine_words.state(install) is EngineState.READY and install.checked_at is not None:
        words = "probed " if view.by_hand else "proven "
        return Cell(safe(words), Tone.QUIET, at=install.checked_at, behind=" ago", order=101 + install.checked_at)
    if share is None:
        return EMPTY
    tone = Tone.QUIET if away else Tone.BAD if install.problem else Tone.BUSY
    return Cell(safe(f"{bar(share, 100)} {share:3} %"), tone, order=share)


def _left(install: Install, away: bool) -> Cell:
    left = progress.left(install)
    if left is None or away:
        moves = engine_words.state(install) is EngineState.INSTALLING or progress.is_repaired(install)
        return _LATER if moves and not away else EMPTY
    return Cell(safe(f"~{rough_age(left)}"), order=left)


def _detail(view: EngineView, away: bool) -> Cell:
    install = view.install
    how = engine_words.state(install)
    remarks = [*(["by hand"] if view.by_hand else []), *engine_words.remarks(view)]
    if install.problem:
        repaired = progress.is_repaired(install)
        again = install.retry_at is not None and not repaired
        doing = [progress.repairing(install)] if repaired else []
        said = safe("; ".join([*doing, install.problem, *remarks]) + ("; again in " if again else ""), _WORDS)
        return Cell(said, Tone.QUIET if away else TONES[how], at=install.retry_at if again else None, until=again)
    if away:
        remarks.insert(0, "its node is away")
    moving = [engine_words.moved(install), progress.rate(install), install.subject]
    told = [*remarks, *(moving if how is EngineState.INSTALLING and not away else [])]
    return Cell(safe(", ".join(filter(None, told)), _WORDS), Tone.QUIET if away else Tone.PLAIN)


# --- the lines about it -----------------------------------------------------------------------------------------


def _about(view: EngineView, steps: Steps, away: bool) -> Iterable[Safe]:
    """Its steps, then what is wrong, then what else there is to know."""
    install = view.install
    yield safe(f"{view.node}  {'by hand' if view.by_hand else _way(install, steps)}")
    if progress.is_repaired(install):
        yield safe(progress.repairing(install), _WORDS)
    if install.problem:
        mark = "! " if engine_words.state(install) in (EngineState.BROKEN, EngineState.FAILED) else ""
        tries = f" (tried {install.attempts} times)" if install.attempts > 1 else ""
        yield safe(f"{mark}{install.problem}{tries}", _WORDS)
    for remark in (*(["its node is away: this is what it said last"] if away else []), *engine_words.remarks(view)):
        yield safe(remark, _WORDS)
    if install.subject and install.step is not InstallStep.READY:
        yield safe(", ".join(filter(None, (install.subject, engine_words.moved(install)))), _WORDS)
    if install.path:
        yield safe(install.path + ("  (models run with it)" if install.used else ""), _WORDS)


def _way(install: Install, steps: Steps) -> str:
    """`resolve 0.2s  download now  verify  unpack  libraries  prove  ready`; a time where it was seen."""
    at, seen = _STEPS.index(install.step), dict(steps)
    how = engine_words.state(install)
    here = {EngineState.INSTALLING: " now", EngineState.READY: ""}.get(how, f" {how.value}")
    told = []
    for index, one in enumerate(_STEPS):
        begun, ended = seen.get(one), next((seen[after] for after in _STEPS[index + 1 :] if after in seen), None)
        if index == at:
            told.append(f"[{one.value}{here}]")
        elif index < at and begun is not None and ended is not None:
            told.append(f"{one.value} {_short(ended - begun)}")
        else:
            told.append(one.value)
    return "  ".join(told)


def _short(seconds: float) -> str:
    return f"{seconds:.1f}s" if 0 <= seconds < 10 else age(seconds)
