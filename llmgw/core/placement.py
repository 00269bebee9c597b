"""Which node takes one more replica of a model, or why none does.

    rooms (a node each) → checks in order, the first that fails is that node's refusal → score → best

Checks that can never pass come before those that may pass later, so that "never" is not hidden behind "not now".
Exactly one refusal per node. Same input, same answer: ties break by name.
"""

import heapq
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from llmgw.core import serving
from llmgw.core.engines.terms import Install
from llmgw.core.facts import EngineReport, Profile
from llmgw.core.inventory import Inventory, memory_stated
from llmgw.core.names import ModelName, NodeName
from llmgw.core.presence import NodeState
from llmgw.core.refusals import (
    AddressNotTried,
    EngineBroken,
    EngineInstalling,
    EngineMissing,
    EngineNotProbed,
    EngineVersion,
    NodeAway,
    NotEnoughMemory,
    Refusal,
    RefusedByNode,
    UnreachableAddress,
    Unreached,
    Verdict,
    WillNotObey,
)
from llmgw.core.serving import NO_PREFERENCE, Preference
from llmgw.core.state import Node
from llmgw.core.units import GIB, NONE, Bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Need:
    """One more replica of this model."""

    model: ModelName
    profile: Profile
    preference: Preference = NO_PREFERENCE


@dataclass(frozen=True, slots=True, kw_only=True)
class Room:
    """A node as placement sees it."""

    node: Node
    promised: Bytes = NONE
    """RAM of all replicas that are placed there, running or not."""
    same: int = 0
    """Replicas of the same model that are placed there."""
    epoch: int = 0
    """Ours; a node that obeyed a later one will not obey us."""
    refused: tuple[str, float] | None = None
    """The node's own words when it would not start this model, and when it is asked again."""
    unreached: Unreached | None = None
    """What is against the node's address."""
    coming: tuple[Install, ...] = ()
    """Of each engine that server.yaml wants there the version that it wants: on its way, or there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """The node that takes it, and all that would, best first."""

    node: NodeName
    fits: tuple[NodeName, ...]
    refusals: tuple[Refusal, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Unplaced:
    """No node takes it: one refusal per node, nearest to fitting first."""

    refusals: tuple[Refusal, ...]


def place(need: Need, rooms: Iterable[Room], now: float) -> Placement | Unplaced:
    """Return where one more replica goes, or each node's refusal."""
    fitting: list[Room] = []
    refusals: list[Refusal] = []
    for room in rooms:
        refusal = refusal_of(need, room, now)
        if refusal is None:
            fitting.append(room)
        else:
            refusals.append(refusal)
    refusals.sort(key=_nearness)
    if not fitting:
        return Unplaced(refusals=tuple(refusals))
    fitting.sort(key=lambda room: _score(need, room))
    fits = tuple(room.node.name for room in fitting)
    return Placement(node=fits[0], fits=fits, refusals=tuple(refusals))


def fill(need: Need, rooms: Iterable[Room], count: int, now: float) -> tuple[tuple[NodeName, ...], tuple[Refusal, ...]]:
    """Return the nodes for up to `count` replicas, placed one after the other, and what each node says to the next.

    The refusals are empty when all `count` have a node.
    """
    fitting: list[tuple[Score, Room]] = []
    refusals: list[Refusal] = []
    for room in rooms:
        refusal = refusal_of(need, room, now)
        if refusal is None:
            fitting.append((_score(need, room), room))
        else:
            refusals.append(refusal)
    heapq.heapify(fitting)
    nodes: list[NodeName] = []
    while fitting and len(nodes) < count:
        _, room = heapq.heappop(fitting)
        nodes.append(room.node.name)
        room = replace(room, promised=Bytes(room.promised + need.profile.memory), same=room.same + 1)
        refusal = refusal_of(need, room, now)
        if refusal is None:
            heapq.heappush(fitting, (_score(need, room), room))
        else:
            refusals.append(refusal)
    return tuple(nodes), () if len(nodes) == count else tuple(sorted(refusals, key=_nearness))


def refusal_of(need: Need, room: Room, now: float) -> Refusal | None:
    """Return why this node cannot take it, or None when it can."""
    for check in CHECKS:
        refusal = check(need, room, now)
        if refusal is not None:
            return refusal
    return None


def chosen(need: Need, room: Room) -> EngineReport | None:
    """Return the engine of the node that would serve it; None when none does now."""
    return serving.choose(need.profile, need.preference, room.node.engines, _coming(need, room))


def has_memory(need: Need, room: Room) -> bool:
    """Whether the node has the memory for it, whatever else is against it."""
    return room.node.inventory is not None and _memory(need, room, 0.0) is None


def usable(inventory: Inventory) -> Bytes:
    """RAM that engines may use in all.

    What agent.yaml states is taken whole. Of what was measured a tenth, at most 1 GiB, stays with the system: an
    engine that the kernel kills for memory serves nobody.
    """
    if memory_stated(inventory):
        return inventory.memory
    return Bytes(inventory.memory - min(inventory.memory // 10, GIB))


def lacking(need: Bytes, inventory: Inventory) -> Bytes:
    """What its memory lacks for engines to use `need`: the other way round than `usable`."""
    memory = need if memory_stated(inventory) else need + min(max(need - 1, 0) // 9, GIB)
    return Bytes(max(0, memory - inventory.memory))


# --- checks: (need, room, now) -> the refusal, or None -----------------------------------------------------------

Check = Callable[[Need, Room, float], Refusal | None]


def _engine_never(need: Need, room: Room, now: float) -> Refusal | None:
    coming = _coming(need, room)
    if coming is not None and need.profile.version in ("", coming.version):
        return None
    refusal = _engine(need, room, now)
    return refusal if refusal is not None and refusal.verdict is Verdict.NEVER else None


def _memory_never(need: Need, room: Room, now: float) -> Refusal | None:
    refusal = _memory(need, room, now)
    return refusal if refusal is not None and refusal.verdict is Verdict.NEVER else None


def _away(need: Need, room: Room, now: float) -> Refusal | None:
    node = room.node
    if node.state is NodeState.READY and node.inventory is not None:
        return None
    lost = node.state is NodeState.LOST
    return NodeAway(node=node.name, lost=lost, seconds=max(0.0, now - node.since))


def _unreachable_address(need: Need, room: Room, now: float) -> Refusal | None:
    return room.unreached if isinstance(room.unreached, UnreachableAddress) else None


def _address_not_tried(need: Need, room: Room, now: float) -> Refusal | None:
    return room.unreached if isinstance(room.unreached, AddressNotTried) else None


def _will_not_obey(need: Need, room: Room, now: float) -> Refusal | None:
    if room.node.epoch <= room.epoch:
        return None
    return WillNotObey(node=room.node.name, obeyed=room.node.epoch, ours=room.epoch)


def _engine(need: Need, room: Room, now: float) -> Refusal | None:
    if chosen(need, room) is not None:
        return None
    node, install = room.node, _coming(need, room)
    return serving.against(need.profile, need.preference, node.name, node.engines, install, now)


def _memory(need: Need, room: Room, now: float) -> NotEnoughMemory | None:
    inventory = room.node.inventory
    if inventory is None:
        return None
    total = usable(inventory)
    free = Bytes(max(0, total - room.promised))
    if need.profile.memory <= free:
        return None
    by_hand = memory_stated(inventory)
    return NotEnoughMemory(
        node=room.node.name,
        need=need.profile.memory,
        free=free,
        total=total,
        more=lacking(need.profile.memory, inventory),
        by_hand=by_hand,
        limited=inventory.memory_limit is not None and not by_hand,
    )


def _refused_by_node(need: Need, room: Room, now: float) -> Refusal | None:
    if room.refused is None or room.refused[1] <= now:
        return None
    text, until = room.refused
    return RefusedByNode(node=room.node.name, model=need.model, text=text, seconds=until - now)


CHECKS: tuple[Check, ...] = (
    # can never pass on this node as it is
    _engine_never,
    _memory_never,
    # may pass later
    _away,
    _unreachable_address,
    _address_not_tried,
    _will_not_obey,
    _engine,
    _memory,
    _refused_by_node,
)


def _coming(need: Need, room: Room) -> Install | None:
    return next((install for install in room.coming if install.engine == need.profile.engine), None)


# --- order ------------------------------------------------------------------------------------------------------


Score = tuple[bool, int, int, str]


def _score(need: Need, room: Room) -> Score:
    """The engine's wanted version first, then fewest replicas of the same model, then the tightest fit, then the name.

    Two replicas of a model on one node die together, so spreading comes before filling.
    """
    engine = chosen(need, room)
    assert engine is not None
    other = serving.is_second_best(need.profile, need.preference, engine, _coming(need, room))
    total = usable(room.node.inventory) if room.node.inventory else 0
    return other, room.same, total - room.promised, room.node.name


_NEAREST: tuple[type[Refusal], ...] = (
    NotEnoughMemory,
    RefusedByNode,
    EngineInstalling,
    EngineBroken,
    EngineNotProbed,
    EngineVersion,
    EngineMissing,
    WillNotObey,
    AddressNotTried,
    UnreachableAddress,
    NodeAway,
)


def _nearness(refusal: Refusal) -> tuple[bool, int, bool, int, str]:
    """Not now before never; then by what is between the node and the replica, a lost node last; then the bytes."""
    lost = isinstance(refusal, NodeAway) and refusal.lost
    short = refusal.need - refusal.free if isinstance(refusal, NotEnoughMemory) else 0
    return refusal.verdict is Verdict.NEVER, _NEAREST.index(type(refusal)), lost, short, refusal.node
