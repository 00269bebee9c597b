"""Agents' streams: who may register, what a beat changes, and when a node is away.

The newest session of a machine wins. A second machine with a node's name is refused while the first is not lost.
"""

from collections.abc import Sequence
from dataclasses import fields, replace
from operator import attrgetter

from llmgw.core import descriptions, shards, skew
from llmgw.core.effects import Answer, EndSession
from llmgw.core.engines.terms import Install
from llmgw.core.events import EventKind
from llmgw.core.facts import Want
from llmgw.core.inputs import AgentBeat, AgentGone, AgentInstalls, AgentRegistered, AgentReported, AgentTurnedAway
from llmgw.core.inventory import Gpu, Usage
from llmgw.core.ledger import Ledger
from llmgw.core.link import Accepted, Refused, Registration
from llmgw.core.liveness import state_at
from llmgw.core.names import NodeName
from llmgw.core.presence import NodeState
from llmgw.core.provision import events as engine_events
from llmgw.core.provision import following
from llmgw.core.state import Node
from llmgw.core.units import NONE, Bytes, age, several

_MEMORY_STEP, _LOAD_STEP = 0.01, 0.1
"""A beat is shown when memory, or a GPU's, moved by this share of the total, or the load by this much."""

_MOVING = {"subject", "done", "total", "rate", "checked_at", "used"}
_steady = attrgetter(*(field.name for field in fields(Install) if field.name not in _MOVING))
"""What of an install is not another at each word of its node."""


def registered(ledger: Ledger, come: AgentRegistered) -> None:
    """Accept or refuse a registration."""
    registration = come.registration
    known = ledger.nodes.get(registration.node)
    refused = _refusal(ledger, known, registration)
    if refused is not None:
        if ledger.is_news(registration.node, registration.machine):
            ledger.emit(EventKind.NODE_REFUSED, registration.node, refused.text)
        ledger.do(Answer(come.session, refused))
        return
    if known is not None and known.session is not None and known.session > come.session:
        text = f"{registration.node} has opened a newer session since"
        ledger.do(Answer(come.session, Refused(code="superseded", text=text)))
        return
    if known is not None and known.session is not None:
        text = f"{registration.node} opened a newer session"
        ledger.do(EndSession(known.session, Refused(code="superseded", text=text)))
    if known is None:
        ledger.emit(EventKind.NODE_JOINED, registration.node, _describe(registration))
    elif known.state is not NodeState.READY:
        away = age(ledger.now - known.since)
        ledger.emit(
            EventKind.NODE_READY, known.name, f"{_again(known, registration)} after {away}; {_describe(registration)}"
        )
    same = known if known is not None and known.machine == registration.machine else None
    if same is None or same.inventory is None:
        engine_events.recall(ledger, registration.node, registration.installs)
    else:
        engine_events.tell(ledger, registration.node, same.installs, registration.installs)
    node = descriptions.take(ledger, same, _node(ledger, known, same, come))
    ledger.book.to_report.pop(node.name, None)  # what it registered with is its report
    ledger.put_node(node)
    ledger.do(
        Answer(come.session, Accepted(cluster=ledger.settings.cluster, epoch=ledger.epoch, heartbeat=ledger.beat))
    )
    shards.take(ledger, node.name, registration.shards)


def turned_away(ledger: Ledger, came: AgentTurnedAway) -> None:
    """A refused agent tries for ever; that is one event in a while, not one for each try."""
    if ledger.is_news(came.node, f"certificate of {came.holder}"):
        ledger.emit(EventKind.NODE_REFUSED, came.node, came.text)


def beat(ledger: Ledger, came: AgentBeat) -> None:
    """Take a heartbeat; shown only where it changed enough to see."""
    node = _of_session(ledger, came.session, came.node)
    if node is None:
        return
    usage = came.heartbeat.usage
    beats = skew.heard(node.beats, at=came.heartbeat.at, now=ledger.now, apart=ledger.settings.heartbeat / 2)
    behind = skew.shown(node.skew, beats)
    shown = _visible(node, usage) or behind != node.skew
    node = replace(_heard(ledger, node), usage=usage if shown else node.usage, beats=beats, skew=behind)
    if shown or node.state is not ledger.nodes[node.name].state:
        ledger.put_node(node)
    else:
        ledger.nodes[node.name] = node
        ledger.watch_node(node)


def reported(ledger: Ledger, came: AgentReported) -> None:
    """Take a report."""
    node = _of_session(ledger, came.session, came.node)
    if node is None:
        return
    report = came.report
    before = _heard(ledger, node)
    node = replace(before, engines=report.engines or before.engines, inventory=report.inventory or before.inventory)
    if report.engines is not None:
        installs = engine_events.reported(ledger, before.installs, before.engines, report.engines)
        engine_events.tell(ledger, node.name, before.installs, installs)
        node = replace(node, installs=installs)
    if report.engines is not None or report.inventory is not None:
        node = descriptions.take(ledger, before, node)
    ledger.put_node(node)
    shards.take(ledger, node.name, report.shards)


def installs(ledger: Ledger, came: AgentInstalls) -> None:
    """Take how far a node's engines are; bytes alone change nothing but what is shown of them."""
    known = _of_session(ledger, came.session, came.node)
    if known is None:
        return
    heard = known if known.state is NodeState.READY else _heard(ledger, known)
    node = replace(heard, heard=ledger.now, installs=came.installs.installs)
    if node.installs != known.installs:
        following.moved(ledger, node.name)
    if node.state is known.state and _same_steps(known.installs, node.installs):
        ledger.nodes[node.name] = node
        ledger.watch_node(node)
        return
    engine_events.tell(ledger, node.name, known.installs, node.installs)
    ledger.put_node(node)


def gone(ledger: Ledger, left: AgentGone) -> None:
    """A stream ended: the node is unreachable at once."""
    node = _of_session(ledger, left.session, left.node)
    if node is None:
        return
    since = ledger.now if node.state is NodeState.READY else node.since
    state = NodeState.UNREACHABLE if node.state is NodeState.READY else node.state
    if node.state is NodeState.READY:
        text = f"its agent left: {left.reason}" if left.clean else f"its stream ended: {left.reason}"
        ledger.emit(EventKind.NODE_UNREACHABLE, node.name, text)
    ledger.put_node(replace(node, session=None, state=state, since=since))


def overslept(ledger: Ledger, seconds: float) -> None:
    """Nobody could be heard while we were deaf: every connected node is given that time, and so is a start."""
    ledger.started += seconds
    for node in list(ledger.nodes.values()):
        if node.session is not None:
            heard = min(ledger.now, node.heard + seconds)
            ledger.nodes[node.name] = given = replace(node, heard=heard, beats=())  # what lies unread would look late
            ledger.watch_node(given)


def refresh(ledger: Ledger, node: Node) -> None:
    """Let time pass for one node: it may have become unreachable, or lost."""
    state, since = state_at(
        node,
        ledger.now,
        beat=ledger.beat,
        lost_after=ledger.settings.lost_after,
        not_before=ledger.none_lost_before,
    )
    if state is node.state:
        ledger.watch_node(node)
        return
    silent = age(ledger.now - node.heard)
    if state is NodeState.LOST:
        ends = sum(1 for replica in ledger.replicas_on(node.name) if replica.want is Want.RUN)
        text = f"not heard for {silent}; {several(ends, 'replica')} to be replaced"
        event = ledger.emit(EventKind.NODE_LOST, node.name, text)
        for replica in ledger.replicas_on(node.name):
            ledger.turn.because[replica.model] = event.seq
    elif state is NodeState.UNREACHABLE:
        ledger.emit(EventKind.NODE_UNREACHABLE, node.name, f"silent for {silent}")
    ledger.put_node(replace(node, state=state, since=since))


def _refusal(ledger: Ledger, known: Node | None, registration: Registration) -> Refused | None:
    ours = ledger.settings.cluster
    if registration.cluster and registration.cluster != ours:
        text = (
            f"node {registration.node} runs engines of cluster {registration.cluster}, this is {ours}; "
            "stop them and remove desired.json from its state directory to let it change over"
        )
        return Refused(code="other_cluster", text=text)
    if known is None or known.machine == registration.machine or known.state is NodeState.LOST:
        return None
    text = (
        f"node {registration.node} is machine {known.machine} at {known.address or 'an unknown address'}; this is "
        f"machine {registration.machine} at {registration.address}; give one of them another name, or let the first "
        "be lost"
    )
    return Refused(code="name_taken", text=text)


def _node(ledger: Ledger, known: Node | None, same: Node | None, come: AgentRegistered) -> Node:
    """The node as it registered; `same` is what is known of this very machine."""
    registration = come.registration
    was_ready = known is not None and known.state is NodeState.READY
    return Node(
        name=registration.node,
        machine=registration.machine,
        state=NodeState.READY,
        since=known.since if known is not None and was_ready else ledger.now,
        session=come.session,
        heard=ledger.now,
        address=registration.address,
        agent_version=registration.agent_version,
        boot=registration.boot,
        epoch=registration.epoch,
        inventory=registration.inventory,
        engines=registration.engines,
        installs=registration.installs,
        files_port=registration.files_port,
        usage=same.usage if same else None,
        skew=same.skew if same else 0.0,
    )


def _of_session(ledger: Ledger, session: int, name: NodeName) -> Node | None:
    """The node, if it is on this session; what an ended session still says is no news."""
    node = ledger.nodes.get(name)
    return node if node is not None and node.session == session else None


def _heard(ledger: Ledger, node: Node) -> Node:
    if node.state is NodeState.READY:
        return replace(node, heard=ledger.now)
    ledger.emit(EventKind.NODE_READY, node.name, f"heard again after {age(ledger.now - node.heard)}")
    return replace(node, heard=ledger.now, state=NodeState.READY, since=ledger.now)


def _same_steps(before: Sequence[Install], after: Sequence[Install]) -> bool:
    """Whether installs are others only in what is counted and looked at on the way."""
    return len(before) == len(after) and all(map(_same_step, before, after))


def _same_step(before: Install, after: Install) -> bool:
    if before.turn and bool(before.total) is not bool(after.total):
        return False  # it begins to download, or ends
    return bool(_steady(before) == _steady(after))


def _visible(node: Node, usage: Usage) -> bool:
    if node.usage is None or node.inventory is None:
        return True
    memory = abs(usage.memory_available - node.usage.memory_available)
    load = abs(usage.load_average - node.usage.load_average)
    moved = memory >= _MEMORY_STEP * node.inventory.memory or load >= _LOAD_STEP
    return moved or _gpus_moved(node.inventory.gpus, node.usage.gpu_used, usage.gpu_used)


def _gpus_moved(gpus: Sequence[Gpu], before: Sequence[Bytes], after: Sequence[Bytes]) -> bool:
    if len(before) != len(after):
        return True
    sizes = [gpu.memory or NONE for gpu in gpus]
    moves = zip(before, after, sizes, strict=False)  # a beat may be of other GPUs than the inventory that is on its way
    return any(was != now and abs(was - now) >= _MEMORY_STEP * total for was, now, total in moves)


def _again(known: Node, registration: Registration) -> str:
    if known.machine != registration.machine:
        return "another machine under its name"
    return "rebooted and back" if known.boot not in ("", registration.boot) else "back"


def _describe(registration: Registration) -> str:
    running = len(registration.shards)
    return f"agent {registration.agent_version} at {registration.address}, {several(running, 'shard')} running"
