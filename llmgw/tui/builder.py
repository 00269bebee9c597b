"""How do the pages of a watch become views?"""

from collections import deque

from llmgw.core.engines.terms import Install, InstallStep
from llmgw.core.events import Event
from llmgw.core.fold import Fold
from llmgw.core.safe import Safe
from llmgw.core.views import AboutView, Noun, Page
from llmgw.tui.view import Link, Replicas, Steps, View

EVENTS_HELD = 500
"""Older events are forgotten here."""


class Builder:
    """Takes pages in, gives views out. Only parts that changed since the last view are copied for the next."""

    def __init__(self) -> None:
        self._fold = Fold()
        self._events: deque[Event] = deque(maxlen=EVENTS_HELD)
        self._changed = set(Noun)
        self._last = View()

    def take(self, page: Page) -> bool:
        """Take one page in, in the order in which they came; False while nothing of it can be seen yet."""
        changed = self._fold.take(page)
        if changed is None:
            return False
        if page.snapshot:
            self._events.clear()
        self._events.extend(self._fold.news)
        self._changed |= changed
        return True

    def view(self, about: AboutView | None, link: Link, since: float, problem: Safe) -> View:
        """The moment as it is now."""
        fold, last, changed = self._fold, self._last, self._changed
        self._last = View(
            about=about,
            revision=fold.revision if fold.whole else None,
            nodes=dict(fold.nodes.items()) if Noun.NODES in changed else last.nodes,
            models=dict(fold.models.items()) if Noun.MODELS in changed else last.models,
            replicas=Replicas(dict(fold.replicas.items())) if Noun.REPLICAS in changed else last.replicas,
            engines=dict(fold.engines.items()) if Noun.ENGINES in changed else last.engines,
            steps=self._follow() if Noun.ENGINES in changed else last.steps,
            events=tuple(self._events) if Noun.EVENTS in changed else last.events,
            whole=fold.whole,
            link=link,
            since=since,
            problem=problem,
        )
        self._changed = set()
        return self._last

    def _follow(self) -> dict[str, Steps]:
        """The steps of each install as they were, with the one that it is at now."""
        last = self._last.steps
        return {name: _with(last.get(name, ()), view.install) for name, view in self._fold.engines.items()}


def _with(steps: Steps, install: Install) -> Steps:
    now = (install.step, install.since)
    if steps and steps[-1] == now:
        return steps
    order = list(InstallStep)
    # What begins again has nothing behind it.
    before = [one for one in steps if order.index(one[0]) < order.index(install.step) and one[1] <= install.since]
    return (*before, now)
