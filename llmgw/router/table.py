"""Which models are there, and which engines serve them? The route table as requests use it.

A new table replaces the old; an engine process that stays keeps its connections and its load, another launch of the
same replica is another engine. What an engine that left the table has begun to answer, it finishes; what it has not,
another is asked for.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import msgspec

from llmgw.core.names import NodeName
from llmgw.core.routes import Route, RouteReplica, Routes
from llmgw.core.routing import reachable
from llmgw.core.views import Revision
from llmgw.router.limits import Limits
from llmgw.router.upstream import EngineConnection, Upstream


@dataclass(frozen=True, slots=True)
class Entry:
    """One model."""

    route: Route
    upstreams: tuple[Upstream, ...]
    """The engines within reach."""
    elsewhere: tuple[NodeName, ...]
    """Nodes whose engines are not."""
    card: bytes
    """The model in OpenAI's shape."""


class Table:
    """All models by name and alias."""

    def __init__(self, machine: str, limits: Limits, clock: Callable[[], float]) -> None:
        self._machine, self._limits, self._clock = machine, limits, clock
        self._upstreams: dict[RouteReplica, Upstream] = {}
        self._leaving: set[Upstream] = set()
        self._entries: dict[str, Entry] = {}
        self.listing = _listing([])
        """The body of `GET /v1/models`."""
        self.revision: Revision | None = None
        """None until there was a table."""

    def entry(self, name: str) -> Entry | None:
        """The model of this name or alias."""
        return self._entries.get(name)

    @property
    def elsewhere(self) -> tuple[NodeName, ...]:
        """All nodes with engines out of reach, sorted."""
        return tuple(sorted({node for entry in self._entries.values() for node in entry.elsewhere}))

    def update(self, routes: Routes) -> None:
        """Take a new table."""
        old, self._upstreams = self._upstreams, {}
        entries = [self._entry(route, old) for route in routes.routes]
        names = {alias: entry for entry in entries for alias in entry.route.aliases}
        # A model's own name wins over another's alias.
        self._entries = names | {entry.route.model: entry for entry in entries}
        self.listing = _listing(entry.card for entry in entries)
        self.revision = routes.revision
        for replica, upstream in old.items():
            if replica not in self._upstreams:
                upstream.leave()
                self._leaving.add(upstream)
        # One that is only reached otherwise now works on.
        stay = {(replica.id, replica.launch) for replica in self._upstreams}
        for upstream in [u for u in self._leaving if (u.replica.id, u.replica.launch) not in stay]:
            upstream.withdraw()

    def _entry(self, route: Route, old: dict[RouteReplica, Upstream]) -> Entry:
        near, far = reachable(route, self._machine)
        for replica in near:
            self._upstreams[replica] = old.get(replica) or Upstream(replica, self._limits, self._clock)
        return Entry(route, tuple(self._upstreams[r] for r in near), far, _card(route))

    def sweep(self, now: float) -> None:
        """Look at the deadlines of all engine connections."""
        self._leaving = {u for u in self._leaving if u.open or u.in_flight}
        for connection in [c for c in self.connections() if c.deadline <= now]:
            connection.expired()

    def connections(self) -> Iterable[EngineConnection]:
        """Every open connection to an engine."""
        for upstream in (*self._upstreams.values(), *self._leaving):
            yield from upstream.open

    def close(self) -> None:
        """Close every connection to an engine."""
        for connection in list(self.connections()):
            connection.close()


def _card(route: Route) -> bytes:
    return msgspec.json.encode(
        {
            "id": route.model,
            "object": "model",
            "created": int(route.created),
            "owned_by": "llmgw",
            "aliases": route.aliases,
        }
    )


def _listing(cards: Iterable[bytes]) -> bytes:
    return b'{"object":"list","data":[' + b",".join(cards) + b"]}"
