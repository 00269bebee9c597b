"""The engines of all nodes: a line for each, and its object in `--json`."""

from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from math import isfinite

from llmgw.client import ControlClient
from llmgw.core import engine_words
from llmgw.core.engines import progress
from llmgw.core.engines.orders import WantedEngine, WantedEngines
from llmgw.core.engines.terms import Install, engine_id
from llmgw.core.fold import Fold
from llmgw.core.units import age
from llmgw.core.views import EngineView, Noun
from llmgw.ctl.grammar import Asked
from llmgw.ctl.output import Answer, answer
from llmgw.ctl.tables import align
from llmgw.ctl.values import Shape, at
from llmgw.ctl.world import worlds

_HEAD = ("NODE", "ENGINE", "VERSION", "VARIANT", "STEP", "PROGRESS", "RATE", "LEFT", "DETAIL")
_HEAD_WIDE = ("FOR", "CHECKED", "TRIES", "PATH")


async def show(asked: Asked, client: ControlClient) -> AsyncIterator[Answer]:
    """Every engine on every node; with `--watch` again after each change."""
    basis: object = None
    wanted = WantedEngines()
    async for world in worlds(client, [Noun.ENGINES], follow=asked.watch):
        # Progress comes twice a second from each node, and what is wanted changes seldom.
        now = {name: (view.wanted, view.install.step, view.install.problem) for name, view in world.engines.items()}
        if now != basis:
            basis, wanted = now, await client.engines_wanted()
        yield _every(world, wanted)


def _every(world: Fold, wanted: WantedEngines) -> Answer:
    views = [world.engines[name] for name in sorted(world.engines)]
    return answer(
        world.revision,
        world.now,
        shape=lambda: {"engines": [engine(one) for one in views], "wanted": [_wanted(one) for one in wanted.engines]},
        lines=lambda wide: table(views, wanted.engines, world.now, wide),
        still=lambda wide: table(views, wanted.engines, None, wide),
        names=lambda: sorted(world.engines),
    )


# --- the table --------------------------------------------------------------------------------------------------


def table(views: Sequence[EngineView], wanted: Sequence[WantedEngine], now: float | None, wide: bool) -> list[str]:
    """A line an engine, then one for each that is wanted and that no node has; without `now` no ages."""
    seen = {(one.install.engine, one.install.version) for one in views}
    rows = [_row(one, now, wide) for one in views]
    rows += [_nowhere(one, wide) for one in wanted if (one.wish.engine, one.version or one.wish.version) not in seen]
    if not rows:
        return ["no engine is wanted, and no node has one; name some under `engines:` in server.yaml"]
    return align([(*_HEAD, *_HEAD_WIDE) if wide else _HEAD, *rows])


def _row(view: EngineView, now: float | None, wide: bool) -> tuple[str, ...]:
    install = view.install
    left = progress.left(install)
    row = (
        view.node,
        install.engine,
        install.version,
        install.variant,
        engine_words.step(install),
        _progress(view, now),
        progress.rate(install),
        "" if left is None else age(left),
        _detail(view, now),
    )
    return (*row, *_wide(install, now)) if wide else row


def _progress(view: EngineView, now: float | None) -> str:
    share, checked = progress.percent(view.install), view.install.checked_at
    if share is not None:
        return f"{share} %"
    return "" if checked is None or now is None else engine_words.proven(view, age(now - checked))


def _detail(view: EngineView, now: float | None) -> str:
    install = view.install if now is not None else replace(view.install, retry_at=None)
    stuck, by_hand = engine_words.stuck(install, now or 0.0), "by hand" if view.by_hand else ""
    moving = "" if stuck else ", ".join(filter(None, (engine_words.moved(install), install.subject)))
    return "; ".join(filter(None, (stuck, moving, by_hand, *engine_words.remarks(view))))


def _wide(install: Install, now: float | None) -> tuple[str, ...]:
    checked = "" if install.checked_at is None or now is None else f"{age(now - install.checked_at)} ago"
    since = "" if now is None else age(now - install.since)
    return since, checked, str(install.attempts or ""), install.path


def _nowhere(one: WantedEngine, wide: bool) -> tuple[str, ...]:
    labels = f"; only for nodes with {', '.join(one.wish.labels)}" if one.wish.labels else ""
    detail = one.problem or f"wanted, and no node has or installs it{labels}"
    version = one.version or one.wish.version
    row = ("", one.wish.engine, version, one.wish.variant, "resolve" if one.problem else "", "", "", "", detail)
    return (*row, *("",) * len(_HEAD_WIDE)) if wide else row


# --- the objects ------------------------------------------------------------------------------------------------


def engine(view: EngineView) -> Shape:
    """One of `engines`."""
    install = view.install
    return {
        "id": engine_id(view.node, install.engine, install.version),
        "node": view.node,
        "engine": install.engine,
        "version": install.version,
        "variant": install.variant,
        "state": engine_words.state(install).value,
        "step": install.step.value,
        "since": at(install.since),
        "subject": install.subject,
        "bytes": install.done,
        "total": install.total or None,
        "rate": round(install.rate, 1) if isfinite(install.rate) else 0.0,
        "percent": progress.percent(install),
        "left": progress.left(install),
        "text": progress.words(replace(install, retry_at=None), 0.0),
        "wanted": view.wanted,
        "by_hand": view.by_hand,
        "problem": install.problem,
        "note": install.note,
        "path": install.path,
        "attempts": install.attempts,
        "retry_at": at(install.retry_at),
        "checked_at": at(install.checked_at),
        "used": install.used,
    }


def _wanted(one: WantedEngine) -> Shape:
    wish = one.wish
    return {
        "engine": wish.engine,
        "version": one.version or None,
        "asked": wish.version,
        "variant": wish.variant,
        "labels": list(wish.labels),
        "releases": [{"id": ref.id, "variant": ref.variant} for ref in one.releases],
        "problem": one.problem,
        "nodes": one.nodes,
    }
