"""What is said of one engine on a node in a table? The same words in every front end.

Texts that the node chose are as they came: whoever shows them to a terminal makes them safe.
"""

from collections.abc import Iterable
from enum import Enum

from llmgw.core.engines.progress import again, failed, is_repaired, repairing
from llmgw.core.engines.terms import Install, InstallStep
from llmgw.core.units import size
from llmgw.core.views import EngineView


class EngineState(Enum):
    """How an engine on a node is, where one word has to do."""

    READY = "ready"
    INSTALLING = "installing"
    WAITING = "waiting"
    """Nothing failed, and it does not go on: for its files, or its turn."""
    FAILED = "failed"
    """It was tried and did not get ready."""
    BROKEN = "broken"
    """It was ready."""


_ORDER = (EngineState.INSTALLING, EngineState.WAITING, EngineState.FAILED, EngineState.BROKEN, EngineState.READY)


def state(install: Install) -> EngineState:
    """Return how it is."""
    if install.step is InstallStep.READY:
        return EngineState.BROKEN if install.problem else EngineState.READY
    if not install.problem:
        return EngineState.INSTALLING
    return EngineState.FAILED if failed(install) else EngineState.WAITING


def step(install: Install) -> str:
    """Return the step it is at, or the word for why it is not at one: `waiting`, `failed`, `broken`, `repair`."""
    if is_repaired(install):
        return "repair"
    how = state(install)
    return install.step.value if how in (EngineState.INSTALLING, EngineState.READY) else how.value


def tally(views: Iterable[EngineView]) -> str:
    """Return `2 installing, 1 broken, 7 ready`, of what there is."""
    seen = [state(view.install) for view in views]
    return ", ".join(f"{seen.count(one)} {one.value}" for one in _ORDER if one in seen)


def moved(install: Install) -> str:
    """Return `9.1 of 16.1 MiB`, `900 KiB of 16.1 MiB`; empty where the step is not counted in bytes."""
    if install.total <= 0:
        return ""
    done, total = size(install.done), size(install.total)
    return f"{done.removesuffix(f' {total.split()[1]}')} of {total}"


def remarks(view: EngineView) -> list[str]:
    """Return what else there is to know of it, one thing a text: who keeps it, what is not as it was asked for."""
    install = view.install
    found = []
    if not (view.wanted or view.by_hand):
        found.append("models run with it, another version is wanted" if install.used else "not wanted any more")
    return [*found, *([install.note] if install.note else [])]


def proven(view: EngineView, ago: str) -> str:
    """Return `proven 2m ago`, of an engine that was seen to work so long ago; empty when it does not."""
    install = view.install
    if state(install) is not EngineState.READY or install.checked_at is None:
        return ""
    return f"{'probed' if view.by_hand else 'proven'} {ago} ago"


def stuck(install: Install, now: float) -> str:
    """Return why it does not go on, and when it will; empty when it does."""
    if not install.problem:
        return ""
    if is_repaired(install):
        return f"{repairing(install)}; {install.problem}"
    return f"{install.problem}{again(install, now)}"
