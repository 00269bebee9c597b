"""Agents' streams: who may register, what a beat changes, and when a node is away.

The newest session of a machine wins. A second machine with a node's name is refused while the first is not lost.
"""

from dataclasses import replace

from llmgw.core import shards
from llmgw.core.effects import Answer, EndSession, SaveNode
from llmgw.core.events import EventKind
from llmgw.core.facts import Accepted, Engines, Refused, Registration, Usage, Want
from llmgw.core.inputs import AgentBeat, AgentGone, AgentRegistered, AgentReported
from llmgw.core.ledger import Ledger
from llmgw.core.liveness import state_at
from llmgw.core.names import NodeName
from llmgw.core.state import Node, NodeState
from llmgw.core.units import age, several

_MEMORY_STEP, _LOAD_STEP = 0.01, 0.1
"""A beat is shown when free memory moved by this share of the total, or the load by this much."""


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
    node = _node(ledger, known, come)
    if known is None or known.machine != registration.machine:
        ledger.do(SaveNode(node.name, node.machine))
    if known is None:
        ledger.emit(EventKind.NODE_JOINED, node.name, _describe(registration))
    elif known.state is not NodeState.READY:
        away = age(ledger.now - known.since)
        again = "rebooted and back" if known.boot not in ("", registration.boot) else "back"
        ledger.emit(EventKind.NODE_READY, node.name, f"{again} after {away}; {_describe(registration)}")
    ledger.put_node(node)
    ledger.do(
        Answer(come.session, Accepted(cluster=ledger.settings.cluster, epoch=ledger.epoch, heartbeat=ledger.beat))
    )
    shards.take(ledger, node.name, registration.shards)


def beat(ledger: Ledger, came: AgentBeat) -> None:
    """Take a heartbeat; shown only where it changed enough to see."""
    node = _of_session(ledger, came.session, came.node)
    if node is None:
        return
    usage = came.heartbeat.usage
    shown = _visible(node, usage)
    node = replace(_heard(ledger, node), usage=usage if shown else node.usage)
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
    node = _heard(ledger, node)
    if report.engines is not None:
        _say_engines(ledger, node, report.engines)
        node = replace(node, engines=report.engines)
    if report.inventory is not None:
        node = replace(node, inventory=report.inventory)
    ledger.put_node(node)
    shards.take(ledger, node.name, report.shards)


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
            ledger.nodes[node.name] = given = replace(node, heard=min(ledger.now, node.heard + seconds))
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


def _node(ledger: Ledger, known: Node | None, come: AgentRegistered) -> Node:
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
        usage=known.usage if known else None,
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


def _visible(node: Node, usage: Usage) -> bool:
    if node.usage is None or node.inventory is None:
        return True
    memory = abs(usage.memory_available - node.usage.memory_available)
    load = abs(usage.load_average - node.usage.load_average)
    return memory >= _MEMORY_STEP * node.inventory.memory or load >= _LOAD_STEP


def _say_engines(ledger: Ledger, node: Node, engines: Engines) -> None:
    before = node.engines.engines if node.engines else ()
    if before == engines.engines:
        return
    words = [f"{e.engine} {e.version}" if not e.problem else f"{e.engine}: {e.problem}" for e in engines.engines]
    ledger.emit(EventKind.ENGINES_CHANGED, node.name, "; ".join(words) or "none")


def _describe(registration: Registration) -> str:
    running = len(registration.shards)
    return f"agent {registration.agent_version} at {registration.address}, {several(running, 'shard')} running"
