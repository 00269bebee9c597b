"""A node said anew what it is: what is remembered of that, what is told, and which models does it change?

    what the node said, or installed → NODE_CHANGED, ENGINES_CHANGED → NODE_QUALIFIES → what is placed because of it

Each is the cause of the next, so that "why there, why now" is a walk along causes. A node that is another all the time
is told of now and then, summed up (`telling.py`).
"""

from dataclasses import replace
from functools import partial

from llmgw.core import qualify
from llmgw.core.changes import cards, changes, gone, lasting, listed
from llmgw.core.due import TellDue
from llmgw.core.effects import SaveNode
from llmgw.core.events import Event, EventKind
from llmgw.core.inventory import Gpu, Inventory, memory_stated
from llmgw.core.ledger import Ledger
from llmgw.core.names import NodeName
from llmgw.core.provision import wanted
from llmgw.core.state import Node
from llmgw.core.telling import Telling, holding, may_tell, refilled, told
from llmgw.core.units import NONE, Bytes, age, several

_CARDS_TOLD, _CARDS_KEPT = 8, 64
"""Cards that are gone: so many have an event each, so many are remembered of a node."""


def take(ledger: Ledger, before: Node | None, node: Node) -> Node:
    """Return `node` with what is remembered of it, and tell what changed.

    `before` is the same machine as it was known; None for one that is new under this name. Of one that only the store
    knows nothing can be said to have changed.
    """
    node = _remember(ledger, before, node)
    if before is None:
        ledger.tellings.pop(node.name, None)
        ledger.deadlines.set(TellDue(node.name), None)
        _judge(ledger, node, qualify.at_first(node, ledger.models, partial(wanted.installs_for, ledger)))
        return node
    if before.inventory is None or node.inventory is None:
        return node
    said, judged = _said(before, node), _is_another(before, node)
    if said or judged:
        _tell_or_hold(ledger, before, node, said)
    return node


def sum_up(ledger: Ledger, name: NodeName) -> None:
    """Tell what was held of a node."""
    node, telling = ledger.nodes[name], refilled(ledger.tellings[name], ledger.now)
    if telling.before is None:
        return
    said = _said(telling.before, node)
    now = "; ".join(said) or "as it was before"
    if telling.held > 1:
        said = [f"changed {telling.held} times in {age(ledger.now - telling.since)}; now: {now}"]
    ledger.turn.because[name] = 0  # whatever else happens to be due now is not why
    event = _tell(ledger, telling.before, node, said)
    ledger.tellings[name] = told(telling, event or telling.last)


def _tell_or_hold(ledger: Ledger, before: Node, node: Node, said: list[str]) -> None:
    """Tell a change now, or with others later: then the last that was told stands for it as a cause."""
    telling = refilled(ledger.tellings.get(node.name) or Telling(at=ledger.now), ledger.now)
    if may_tell(telling):
        event = _tell(ledger, before, node, said)
        if event:
            ledger.tellings[node.name] = told(telling, event)
        return
    counts = bool(said) or _engines(before) != _engines(node)
    ledger.tellings[node.name] = telling = holding(telling, before, counts=counts)
    ledger.deadlines.set(TellDue(node.name), telling.due)
    ledger.turn.first_event = ledger.turn.first_event or telling.last


def _said(before: Node, node: Node) -> list[str]:
    assert node.inventory is not None
    return changes(_known(before), node.inventory)


def _known(node: Node) -> Inventory:
    """What it said, with the GPUs that it has for all we know."""
    assert node.inventory is not None
    return replace(node.inventory, gpus=node.gpus)


def _is_another(before: Node, node: Node) -> bool:
    """Whether it may qualify for other models."""
    assert before.inventory is not None and node.inventory is not None
    return _engines(before) != _engines(node) or lasting(before.inventory) != lasting(node.inventory)


def _tell(ledger: Ledger, before: Node, node: Node, said: list[str]) -> int:
    """Tell how the node is another than `before`; return the seq of the event that led to the others, 0 for none."""
    events = [_tell_changes(ledger, before, node, said), _tell_engines(ledger, before, node)]
    cause = next((event for event in reversed(events) if event is not None), None)
    if cause is not None:
        ledger.turn.because[node.name] = cause.seq
    judged: Event | None = None
    if _is_another(before, node):
        judged = _judge(ledger, node, qualify.shift(before, node, ledger.models, partial(wanted.installs_for, ledger)))
    ledger.turn.because.pop(node.name, None)
    event = cause or judged
    return event.seq if event else 0


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


def _tell_changes(ledger: Ledger, before: Node, node: Node, said: list[str]) -> Event | None:
    if not said:
        return None
    assert node.inventory is not None
    event = ledger.emit(EventKind.NODE_CHANGED, node.name, "; ".join(said))
    ledger.turn.because[node.name] = event.seq
    missing = gone(_known(before), node.inventory)
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
    led = ledger.book.to_report.pop(node.name, None)  # an install ended, and so the report is another
    if node.engines is None:
        return ledger.emit(EventKind.ENGINES_CHANGED, node.name, "not probed yet", cause=led)
    words = [f"{e.engine} {e.version}" if not e.problem else f"{e.engine}: {e.problem}" for e in node.engines.engines]
    return ledger.emit(EventKind.ENGINES_CHANGED, node.name, "; ".join(words) or "none", cause=led)


def _engines(node: Node) -> object:
    """What a probe found, without its time; None while there was none."""
    return node.engines.engines if node.engines else None


def _judge(ledger: Ledger, node: Node, shift: qualify.Shift) -> Event | None:
    """Say which models it qualifies for now, and no longer; what follows for these models follows from that."""
    event: Event | None = None
    for kind, names, text in (
        (EventKind.NODE_QUALIFIES, shift.gained, shift.gained_text),
        (EventKind.NODE_DISQUALIFIED, shift.lost, shift.lost_text),
    ):
        if names:
            event = ledger.emit(kind, node.name, text)
            ledger.turn.because |= {name: event.seq for name in names}
    return event
