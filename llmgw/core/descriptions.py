"""A node said anew what it is: what is remembered of that, what is told, and which models does it change?

    what the node said → NODE_CHANGED, ENGINES_CHANGED → NODE_QUALIFIES → what is placed because of it

Each is the cause of the next, so that "why there, why now" is a walk along causes.
"""

from dataclasses import replace

from llmgw.core import qualify
from llmgw.core.changes import cards, changes, gone, lasting, listed
from llmgw.core.effects import SaveNode
from llmgw.core.events import Event, EventKind
from llmgw.core.inventory import Gpu, Inventory, memory_stated
from llmgw.core.ledger import Ledger
from llmgw.core.state import Node
from llmgw.core.units import NONE, Bytes, several

_CARDS_TOLD, _CARDS_KEPT = 8, 64
"""Cards that are gone: so many have an event each, so many are remembered of a node."""


def take(ledger: Ledger, before: Node | None, node: Node) -> Node:
    """Return `node` with what is remembered of it, and tell what changed.

    `before` is the same machine as it was known; None for one that is new under this name. Of one that only the store
    knows nothing can be said to have changed.
    """
    node = _remember(ledger, before, node)
    if before is None:
        _judge(ledger, node, qualify.at_first(node, ledger.models))
        return node
    if before.inventory is None or node.inventory is None:
        return node
    known = replace(before.inventory, gpus=before.gpus)
    told = [_tell_changes(ledger, node, known), _tell_engines(ledger, before, node)]
    cause = next((event for event in reversed(told) if event is not None), None)
    if cause is not None:
        ledger.turn.because[node.name] = cause.seq
    if _engines(before) != _engines(node) or lasting(before.inventory) != lasting(node.inventory):
        _judge(ledger, node, qualify.shift(before, node, ledger.models))
    ledger.turn.because.pop(node.name, None)
    return node


def _remember(ledger: Ledger, before: Node | None, node: Node) -> Node:
    inventory = node.inventory
    if inventory is None:
        return node
    memory, gpus, missing = _baseline(before, inventory), inventory.gpus, list[Gpu]()
    if before is not None:
        gpus = listed(before.gpus, inventory)
        there = cards(gpus)
        missing = [gpu for name, gpu in cards(before.gone_gpus).items() if name not in there]
        missing += [gpu for name, gpu in cards(before.gpus).items() if name not in there]
    if before is None or before.registered != memory:
        ledger.do(SaveNode(node.name, node.machine, memory))
    return replace(node, registered=memory, gpus=gpus, gone_gpus=tuple(missing[-_CARDS_KEPT:]))


def _baseline(before: Node | None, inventory: Inventory) -> Bytes:
    """The RAM that it should have: the most that was seen, or what was stated by hand since."""
    was = before.inventory if before else None
    if memory_stated(inventory) or (was is not None and memory_stated(was)):
        return inventory.memory
    return Bytes(max(before.registered if before else NONE, inventory.memory))


def _tell_changes(ledger: Ledger, node: Node, known: Inventory) -> Event | None:
    assert node.inventory is not None
    said = changes(known, node.inventory)
    if not said:
        return None
    event = ledger.emit(EventKind.NODE_CHANGED, node.name, "; ".join(said))
    ledger.turn.because[node.name] = event.seq
    missing = gone(known, node.inventory)
    for gpu in missing[:_CARDS_TOLD]:
        left = f"{several(len(cards(node.gpus)), 'GPU')} left"
        text = f"GPU {gpu.index} {gpu.name}".strip() + f" ({gpu.uuid or 'without uuid'}) was there and is gone; {left}"
        ledger.emit(EventKind.GPU_GONE, node.name, text)
    if len(missing) > _CARDS_TOLD:
        more = several(len(missing) - _CARDS_TOLD, "GPU")
        ledger.emit(EventKind.GPU_GONE, node.name, f"and {more} more that were there and are gone")
    return event


def _tell_engines(ledger: Ledger, before: Node, node: Node) -> Event | None:
    if _engines(before) == _engines(node):
        return None
    if node.engines is None:
        return ledger.emit(EventKind.ENGINES_CHANGED, node.name, "not probed yet")
    words = [f"{e.engine} {e.version}" if not e.problem else f"{e.engine}: {e.problem}" for e in node.engines.engines]
    return ledger.emit(EventKind.ENGINES_CHANGED, node.name, "; ".join(words) or "none")


def _engines(node: Node) -> object:
    """What a probe found, without its time; None while there was none."""
    return node.engines.engines if node.engines else None


def _judge(ledger: Ledger, node: Node, shift: qualify.Shift) -> None:
    """Say which models it qualifies for now, and no longer; what follows for these models follows from that."""
    for kind, names, text in (
        (EventKind.NODE_QUALIFIES, shift.gained, shift.gained_text),
        (EventKind.NODE_DISQUALIFIED, shift.lost, shift.lost_text),
    ):
        if names:
            event = ledger.emit(kind, node.name, text)
            ledger.turn.because |= {name: event.seq for name in names}
