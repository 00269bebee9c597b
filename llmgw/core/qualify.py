"""Which models could a node run by what it is, and what does a change of it make of that?

A node qualifies for a model when placement would take it if it were there, empty and willing: what stands against it
then is what it *is* (engines, memory in all), and only the node can change that.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from llmgw.core.brief import cut, some
from llmgw.core.catalog import Model
from llmgw.core.engines.terms import Install
from llmgw.core.names import ModelName
from llmgw.core.placement import Need, Room, chosen, refusal_of, usable
from llmgw.core.presence import NodeState
from llmgw.core.refusals import (
    EngineBroken,
    EngineInstalling,
    EngineMissing,
    EngineNotProbed,
    EngineVersion,
    NotEnoughMemory,
    Refusal,
)
from llmgw.core.state import Node
from llmgw.core.units import size, sizes

_NAMED = 5
"""Models named in one event."""

_NO_TIME = 0.0
"""Nothing that a node is depends on the time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shift:
    """What a change of a node made of the models it qualifies for, with words for each side."""

    gained: tuple[ModelName, ...] = ()
    gained_text: str = ""
    lost: tuple[ModelName, ...] = ()
    lost_text: str = ""


Coming = Callable[[Node], tuple[Install, ...]]
"""The installs of all engines that server.yaml wants on a node."""


def bars(node: Node, models: Iterable[Model], coming: Coming) -> dict[ModelName, Refusal]:
    """By model what bars the node from it; a model that it qualifies for is not in it."""
    room = as_empty(node, coming(node))
    found = ((model.name, bar(room, model)) for model in models)
    return {name: refusal for name, refusal in found if refusal is not None}


def as_empty(node: Node, coming: tuple[Install, ...] = ()) -> Room:
    """The node as if it were there, with nothing on it, and would obey.

    What is coming has a part in the words of what bars it, never in whether it is barred.
    """
    return Room(node=replace(node, state=NodeState.READY), epoch=node.epoch, coming=coming)


def bar(empty: Room, model: Model) -> Refusal | None:
    """What bars a node, given `as_empty`, from a model by what it is."""
    return refusal_of(Need(model=model.name, profile=model.profile), empty, _NO_TIME)


def shift(before: Node, after: Node, models: Mapping[ModelName, Model], coming: Coming) -> Shift:
    """Return what the change from `before` to `after` made of it."""
    barred, bars_now = bars(before, models.values(), coming), bars(after, models.values(), coming)
    there = as_empty(after, coming(after))
    gained = tuple(name for name in sorted(models) if name in barred and name not in bars_now)
    lost = tuple(name for name in sorted(models) if name not in barred and name in bars_now)
    why = {name: _cleared(barred[name], models[name], before, there) for name in gained}
    why_not = {name: _arisen(bars_now[name], before, after) for name in lost}
    return Shift(
        gained=gained,
        gained_text=_grouped("for", why),
        lost=lost,
        lost_text=_grouped("no longer for", why_not),
    )


def at_first(node: Node, models: Mapping[ModelName, Model], coming: Coming) -> Shift:
    """Return what a node that is new here is good for: gained what it qualifies for; lost is all when that is none."""
    barred = bars(node, models.values(), coming)
    gained = tuple(name for name in sorted(models) if name not in barred)
    if gained or not barred:
        return Shift(gained=gained, gained_text=f"for {some(gained, _NAMED)}" if gained else "")
    why = {name: cut(str(barred[name])) for name in sorted(barred)}
    return Shift(lost=tuple(why), lost_text=_grouped("not for", why))


def how_many(model: Model, empty: Sequence[Room]) -> str:
    """`3 of 5 nodes qualify`, of rooms given by `as_empty`."""
    fit = sum(1 for room in empty if bar(room, model) is None)
    return f"{fit} of {len(empty)} {'node' if len(empty) == 1 else 'nodes'} {'qualifies' if fit == 1 else 'qualify'}"


def _cleared(refusal: Refusal, model: Model, before: Node, there: Room) -> str:
    """What changed, by what barred the node before."""
    match refusal:
        case NotEnoughMemory():
            return _memory(before, there.node)
        case EngineMissing() | EngineNotProbed() | EngineInstalling():
            return f"engine {cut(_engine(model, there))} is newly there"
        case EngineBroken() if not refusal.installed:
            return f"engine {cut(_engine(model, there))} is newly there"
        case EngineBroken():
            return f"engine {cut(_engine(model, there))} works now"
        case EngineVersion():
            return f"engine {cut(_engine(model, there))} is there now, it was {cut(refusal.has)}"
        case _:
            return f"no more {cut(str(refusal))}"


def _arisen(refusal: Refusal, before: Node, after: Node) -> str:
    """What bars the node now; of memory also what changed, since how much is free has no part in it."""
    words = cut(str(refusal))
    return f"{words} ({_memory(before, after)})" if isinstance(refusal, NotEnoughMemory) else words


def _memory(before: Node, after: Node) -> str:
    assert before.inventory is not None and after.inventory is not None
    was, now = before.inventory, after.inventory
    if size(was.memory) != size(now.memory):
        return f"memory {size(was.memory)} → {size(now.memory)}"
    return "memory for engines {} → {}".format(*sizes(usable(was), usable(now)))


def _engine(model: Model, there: Room) -> str:
    """The engine that serves the model there: its name and version."""
    profile = model.profile
    engine = chosen(Need(model=model.name, profile=profile), there)
    return f"{profile.engine} {engine.version if engine else profile.version}".strip()


def _grouped(lead: str, why: Mapping[ModelName, str]) -> str:
    """`for a, b: reason; for c: another`, at most five models in all."""
    groups: dict[str, list[ModelName]] = {}
    for name, reason in list(why.items())[:_NAMED]:
        groups.setdefault(reason, []).append(name)
    text = "; ".join(f"{lead} {', '.join(names)}: {reason}" for reason, names in groups.items())
    return text if len(why) <= _NAMED else f"{text}; and {len(why) - _NAMED} more"
