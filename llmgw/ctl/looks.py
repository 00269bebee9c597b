"""The looks: what each asks of the control plane and what it answers; with `--watch` again after each change."""

from collections.abc import AsyncIterator, Callable
from dataclasses import replace

from llmgw.client import ControlClient
from llmgw.core import views
from llmgw.core.errors import UnknownNode
from llmgw.core.events import Event
from llmgw.core.fold import Fold
from llmgw.core.names import NodeName
from llmgw.core.views import NodeView, Noun
from llmgw.ctl import nodeshape, shapes, tables
from llmgw.ctl.grammar import Asked
from llmgw.ctl.output import Answer, Output, answer
from llmgw.ctl.world import worlds

_NEVER = views.Revision(epoch=0, seq=0)
_ENTITIES = (Noun.NODES, Noun.MODELS, Noun.REPLICAS)


async def show(asked: Asked, client: ControlClient, out: Output) -> None:
    """Write the look that was asked for."""
    if asked.verb == "events":
        await _events(asked, client, out)
        return
    async for found in _LOOKS[asked.verb](asked, client):
        if asked.watch:
            out.show_again(found)
        else:
            out.show(found)


async def _status(asked: Asked, client: ControlClient) -> AsyncIterator[Answer]:
    async for world in worlds(client, _ENTITIES, follow=asked.watch):
        yield _sums(await client.about(), world)


def _sums(about: views.AboutView, world: Fold) -> Answer:
    return answer(
        world.revision,
        world.now,
        shape=lambda: shapes.status(about, world),
        lines=lambda _: tables.status(about, world),
        still=lambda _: tables.status(replace(about, now=about.started), replace(world, revision=_NEVER)),
        names=lambda: [about.cluster],
    )


async def _nodes(asked: Asked, client: ControlClient) -> AsyncIterator[Answer]:
    async for world in worlds(client, [Noun.NODES], follow=asked.watch):
        yield _every_node(world)


def _every_node(world: Fold) -> Answer:
    names = sorted(world.nodes)
    return answer(
        world.revision,
        world.now,
        shape=lambda: {"nodes": [nodeshape.node(world.nodes[name]) for name in names]},
        lines=lambda wide: tables.nodes(world, wide),
        still=lambda wide: tables.nodes(replace(world, now=0.0), wide),
        names=lambda: names,
    )


async def _node(asked: Asked, client: ControlClient) -> AsyncIterator[Answer]:
    async for world in worlds(client, [Noun.NODES, Noun.ENGINES], follow=asked.watch):
        view = world.nodes.get(NodeName(asked.node))
        if view is None:
            raise UnknownNode(asked.node, world.nodes)
        yield _one_node(world, view)


def _one_node(world: Fold, view: NodeView) -> Answer:
    from llmgw.ctl import portrait  # what the other looks do not need

    engines = world.engines_of(view.name)
    return answer(
        world.revision,
        world.now,
        shape=lambda: nodeshape.node(view),
        lines=lambda wide: portrait.node(view, engines, world.now, wide),
        still=lambda wide: portrait.node(view, engines, 0.0, wide),
        names=lambda: [view.name],
    )


async def _models(asked: Asked, client: ControlClient) -> AsyncIterator[Answer]:
    async for world in worlds(client, _ENTITIES, follow=asked.watch):
        yield _every_model(world)


def _every_model(world: Fold) -> Answer:
    return answer(
        world.revision,
        world.now,
        shape=lambda: {"models": shapes.models(world)},
        lines=lambda wide: tables.models(world, wide),
        still=lambda wide: tables.models(replace(world, now=0.0), wide),
        names=lambda: sorted([*world.models, *world.unlisted()]),
    )


async def _why(asked: Asked, client: ControlClient) -> AsyncIterator[Answer]:
    nouns = _ENTITIES if asked.watch else (Noun.MODELS,)
    last = None
    async for world in worlds(client, nouns, follow=asked.watch):
        said = await client.why_model(asked.model)
        model = world.model(asked.model)
        away = model.away if model else 0
        # Heartbeats change a node's view many times a minute; what is said here changes seldom.
        told = (replace(said, revision=_NEVER, now=0.0), away)
        if told != last:
            last = told
            yield _reasons(said, away)


def _reasons(said: views.Why, away: int) -> Answer:
    return answer(
        said.revision,
        said.now,
        shape=lambda: shapes.why(said, away),
        lines=lambda wide: tables.why(said, wide, away),
        names=lambda: [one.node for one in said.refusals],
    )


async def _engines(asked: Asked, client: ControlClient) -> AsyncIterator[Answer]:
    from llmgw.ctl import engines  # what the other looks do not need

    async for found in engines.show(asked, client):
        yield found


_LOOKS: dict[str, Callable[[Asked, ControlClient], AsyncIterator[Answer]]] = {
    "status": _status,
    "nodes": _nodes,
    "node": _node,
    "models": _models,
    "why": _why,
    "engines": _engines,
}


async def _events(asked: Asked, client: ControlClient, out: Output) -> None:
    seen = 0
    if asked.follow:
        out.head(tables.EVENT_HEAD)
    async for world in worlds(client, [Noun.EVENTS], follow=asked.follow, events=asked.last):
        if not asked.follow:
            out.show(_history(world))
            return
        if world.news and world.news[-1].seq < seen:
            seen = 0  # another history: the store was replaced
        for event in world.news:
            # A reader that was too slow gets a new snapshot, which holds some of what it had.
            if event.seq > seen:
                seen = event.seq
                out.show_line(_line(event))


def _history(world: Fold) -> Answer:
    return answer(
        world.revision,
        world.now,
        shape=lambda: {"events": [shapes.event(event) for event in world.news]},
        lines=lambda wide: tables.events(world.news, wide),
        names=lambda: [str(event.seq) for event in world.news],
    )


def _line(event: Event) -> Answer:
    return Answer(
        shape=lambda: shapes.event(event),
        lines=lambda wide: tables.event(event, wide),
        names=lambda: [str(event.seq)],
    )
