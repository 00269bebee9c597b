"""The acts on engines: let a node try again at once, find out and keep the files of a Python engine."""

import asyncio
import time
from collections.abc import Iterable
from dataclasses import dataclass, field

from llmgw.client import ControlClient
from llmgw.core import engine_words
from llmgw.core.engines import progress
from llmgw.core.engines.orders import Release, WantedEngine, release_id
from llmgw.core.engines.terms import AUTO, KINDS, EngineKind
from llmgw.core.errors import ClusterCannot, Rejected
from llmgw.core.fold import Fold
from llmgw.core.names import NodeName
from llmgw.core.safe import safe
from llmgw.core.units import age
from llmgw.core.views import Done, EngineView, Noun
from llmgw.ctl import lock_options, shapes
from llmgw.ctl.grammar import Asked
from llmgw.ctl.output import Answer, Output, answer, talk
from llmgw.ctl.values import Shape
from llmgw.ctl.world import worlds

_LOOK = 5.0
"""Seconds for the first look, however short the wait."""
_MOST_REASONS = 6

# --- retry ------------------------------------------------------------------------------------------------------


async def retry(asked: Asked, client: ControlClient, out: Output) -> None:
    """Let a node try again; ClusterCannot when `--wait` ended before its engines were ready."""
    started = time.monotonic()
    done = await client.retry_engine(asked.node, asked.engine)
    if asked.wait is None:
        out.show(_retried(done, asked, (), None))
        return
    talk(f"{done.event.subject}: {done.event.text}; waiting at most {age(asked.wait)}")
    ready = await _wait(_Goal(node=NodeName(asked.node), engine=asked.engine, done=done), asked.wait, client)
    out.show(_retried(done, asked, ready, time.monotonic() - started))


@dataclass(slots=True, kw_only=True)
class _Goal:
    """The engines that are waited for, and how far they were when last seen."""

    node: NodeName
    engine: str
    done: Done
    views: tuple[EngineView, ...] = ()
    now: float = 0.0
    said: set[str] = field(default_factory=set)
    """By engine and step, what was talked about."""

    def look(self, world: Fold) -> bool:
        """Whether all of them are ready; ClusterCannot when none is wanted any more."""
        asked, seen = self.done.revision, world.revision
        if seen.epoch == asked.epoch and seen.seq < asked.seq:
            return False  # what was so before the act
        of_node = world.engines_of(self.node)
        self.views = tuple(one for one in of_node if one.wanted and self.engine in ("", one.install.engine))
        self.now = world.now
        if not self.views:
            what = f"{self.engine} is not" if self.engine else "no engine is"
            raise ClusterCannot(f"{self.node}: {what} wanted there any more")
        return all(engine_words.state(one.install) is engine_words.EngineState.READY for one in self.views)

    def talk(self) -> None:
        """Say each step once."""
        for one in self.views:
            said = f"{_named(one)}: {engine_words.step(one.install)}"
            if said not in self.said:
                self.said.add(said)
                talk(f"{_named(one)}: {progress.words(one.install, self.now)}")

    def missing(self) -> str:
        """What is not ready yet, and why, on one line."""
        if not self.views:
            return "the control plane did not say how it is"
        left = [one for one in self.views if engine_words.state(one.install) is not engine_words.EngineState.READY]
        return "; ".join(f"{_named(one)}: {progress.words(one.install, self.now)}" for one in left[:_MOST_REASONS])


def _named(view: EngineView) -> str:
    return f"{view.install.engine} {view.install.version}"


async def _wait(goal: _Goal, seconds: float, client: ControlClient) -> tuple[EngineView, ...]:
    ends = asyncio.get_running_loop().time() + seconds
    try:
        async with asyncio.timeout(max(seconds, _LOOK)) as limit:
            async for world in worlds(client, [Noun.ENGINES], follow=True):
                if goal.look(world):
                    return goal.views
                goal.talk()
                limit.reschedule(ends)
    except TimeoutError:
        raise ClusterCannot(
            f"{goal.node} after {age(seconds)}: {goal.missing()}; it goes on trying; see: llmgw ctl engines"
        ) from None
    raise AssertionError("a watch that follows ends only by raising")


def _retried(done: Done, asked: Asked, ready: Iterable[EngineView], waited: float | None) -> Answer:
    outcome = "" if waited is None else f": ready after {age(waited)}"
    names = [one.install.engine for one in ready]
    return answer(
        done.revision,
        done.event.at,
        shape=lambda: {
            "event": shapes.event(done.event),
            "node": asked.node,
            "engine": asked.engine,
            "ready": None if waited is None else names,
            "waited": None if waited is None else round(waited, 3),
        },
        lines=lambda _: [_line(done, outcome)],
        names=lambda: [asked.node],
    )


def _line(done: Done, outcome: str = "") -> str:
    return safe(f"event {done.event.seq}: {done.event.subject}: {done.event.text}{outcome}", 1024)


# --- lock -------------------------------------------------------------------------------------------------------


async def lock(asked: Asked, client: ControlClient, out: Output) -> None:
    """Resolve the packages of an engine and let the control plane keep them; CannotLock, ClusterCannot."""
    engine, version = asked.spec
    if KINDS.get(engine) is not EngineKind.PYTHON:
        python = ", ".join(name for name, kind in KINDS.items() if kind is EngineKind.PYTHON)
        raise Rejected(f"engine {engine[:80]!r} is not made of packages; those that are: {python}")
    wanted = {one.wish.engine: one for one in (await client.engines_wanted()).engines}
    options = _filled(dict(asked.lock), wanted.get(engine))
    _remark(engine, version, wanted)
    from llmgw.ctl.lock import make  # what resolves and measures is not cheap to import

    release = await make(lock_options.locking(engine, version, options), talk)
    out.show(_locked(await client.lock_engine(release), release))


def _filled(said: dict[str, object], wanted: WantedEngine | None) -> dict[str, object]:
    """What was said, and what server.yaml says of the rest."""
    if wanted is None:
        return said
    wish = wanted.wish
    if wish.variant != AUTO:
        said.setdefault("variant", wish.variant)
    packages = {package.variant: package.requirement for package in wish.packages}
    if "variant" not in said and len(packages) == 1:
        said["variant"] = next(iter(packages))
    named = {"index": wish.source, "python": wish.python, "package": packages.get(str(said.get("variant", "cpu")), "")}
    for key, value in named.items():
        if value:
            said.setdefault(key, value)
    return said


def _remark(engine: str, version: str, wanted: dict[str, WantedEngine]) -> None:
    """What whoever locks another version than the wanted one may want to know: it is kept, and nobody installs it."""
    one = wanted.get(engine)
    if one is None:
        talk(f"server.yaml does not want {engine}; it is locked, and installed once `engines:` names it")
    elif one.wish.version != version:
        talk(f"server.yaml wants {engine} {one.wish.version}, not {version}; it is locked, and installed once it does")


def _locked(done: Done, release: Release) -> Answer:
    return answer(
        done.revision,
        done.event.at,
        shape=lambda: {"event": shapes.event(done.event), "release": _release(release)},
        lines=lambda _: [_line(done)],
        names=lambda: [release_id(release)],
    )


def _release(release: Release) -> Shape:
    return {
        "id": release_id(release),
        "engine": release.engine,
        "version": release.version,
        "variant": release.variant,
        "python": release.python,
        "files": [
            {"name": file.name, "package": file.package, "bytes": file.size, "digest": file.digest, "url": file.url}
            for file in release.files
        ],
    }
