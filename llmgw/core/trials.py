"""Who is asked when whether a node can be reached, and what is done with the answers?

    a node or a router comes, or time is over ─▶ waits for its turn ─▶ AskAddress ─▶ AgentListens ─▶ AskRouters
    ─▶ RouterTried from each, or time is over ─▶ judged ─▶ tried again later

What already runs on a node stays there whatever comes out, and an unsettled control plane tries like any other.
"""

from dataclasses import replace

from llmgw.core import reach, rollout
from llmgw.core.brief import cut
from llmgw.core.due import ReachDue, ReasonsDue, RouterDue
from llmgw.core.effects import AskAddress, AskRouters
from llmgw.core.errors import BadName
from llmgw.core.events import EventKind
from llmgw.core.facts import Exposure
from llmgw.core.hosts import host_name, host_port
from llmgw.core.inputs import AgentListens, RouterCame, RouterGone, RouterTried
from llmgw.core.ledger import Ledger
from llmgw.core.link import TryAddress
from llmgw.core.names import ModelName, NodeName
from llmgw.core.placement import refusal_of
from llmgw.core.reach import Standing, Trial
from llmgw.core.refusals import AddressNotTried, UnreachableAddress
from llmgw.core.rooms import room
from llmgw.core.routes import Attempt
from llmgw.core.state import Node
from llmgw.core.views import Reach

_PORTS = range(1, 1 << 16)
_LOOPBACK = ("127.0.0.1", "::1")


# --- nodes ------------------------------------------------------------------------------------------------------


def registered(ledger: Ledger, name: NodeName, session: int) -> None:
    """A node has a new session, if it was taken: what routers said of another machine or address is of no use."""
    node = ledger.nodes.get(name)
    if node is None or node.session != session:
        return
    before = ledger.reach.standings.get(name)
    coming = ledger.turn.first_event
    fresh = Standing(session=session, machine=node.machine, address=node.address, since=ledger.now, event=coming)
    if before is not None:
        _take_back(ledger, name, before)
        same = (before.machine, before.address) == (node.machine, node.address)
        fresh = replace(fresh, told=before.told, results=before.results if same else (), refusal=before.refusal)
    _want(ledger, name, fresh)
    described(ledger, name, session)
    _ask_next(ledger)


def described(ledger: Ledger, name: NodeName, session: int) -> None:
    """A node said anew what it is: what that made of it is why it gets what it gets once it was tried."""
    standing = ledger.reach.standings.get(name)
    if standing is None or standing.session != session or not isinstance(standing.refusal, AddressNotTried):
        return
    news = {model: seq for model, seq in ledger.turn.because.items() if model in ledger.models}
    if news:
        because = {**standing.because, **{ModelName(model): seq for model, seq in news.items()}}
        ledger.reach.standings[name] = replace(standing, because=because)


def gone(ledger: Ledger, name: NodeName, session: int) -> None:
    """A node's session ended."""
    standing = ledger.reach.standings.get(name)
    if standing is None or standing.session != session:
        return
    _take_back(ledger, name, standing)
    _put(ledger, name, replace(standing, session=None, trial=None, again=None))
    _ask_next(ledger)


def listens(ledger: Ledger, came: AgentListens) -> None:
    """A node said where it listens: let the routers try it.

    A node that has no port to listen on, or no address, has another problem than its address: its launches say so.
    One that says it listens where no engine of its would is not tried there: routers connect to nodes, not to whatever
    a node names.
    """
    standing, said = ledger.reach.standings.get(came.node), came.listening
    node = ledger.nodes.get(came.node)
    if node is None or standing is None or standing.session != came.session:
        return
    trial = standing.trial
    if trial is None or trial.token != said.token or trial.asked:
        return
    routers = ledger.reach.routers
    if said.host and (elsewhere := _elsewhere(ledger, node, said.host)):
        if ledger.is_news(node.name, "listens elsewhere"):
            ledger.emit(EventKind.ADDRESS_UNREACHABLE, node.name, elsewhere)
        _end(ledger, came.node, standing)
        _ask_next(ledger)
        return
    if said.port not in _PORTS or not said.host or not routers:
        _end(ledger, came.node, standing)
        _ask_next(ledger)
        return
    assert said.port is not None  # it is in the range
    trial = replace(trial, asked=frozenset(routers), routers=frozenset(routers.values()))
    trial = replace(trial, host=said.host, port=said.port, problem=said.problem)
    _put(ledger, came.node, replace(standing, trial=trial))
    attempt = Attempt(token=trial.token, node=node.name, machine=node.machine, host=trial.host, port=trial.port)
    ledger.do(AskRouters(attempt))


def _elsewhere(ledger: Ledger, node: Node, host: str) -> str:
    """Why no router is sent to `host` for this node; empty when it is where the node's engines would listen."""
    if ledger.settings.exposure is Exposure.LOOPBACK:
        return (
            "" if host in _LOOPBACK else f"not tried at {cut(host)}: with exposure: loopback engines are on 127.0.0.1"
        )
    if _same_host(host, node.address):
        return ""
    own = f"the node's address is {node.address}" if node.address else "the node has registered without an address"
    return f"not tried at {cut(host)}: {own}"


def _same_host(one: str, other: str) -> bool:
    try:
        return host_name(one).lower() == host_name(other).lower()
    except BadName:
        return False


# --- routers ----------------------------------------------------------------------------------------------------


def router_came(ledger: Ledger, came: RouterCame) -> None:
    """A router can be asked: every node that it has said nothing of is tried."""
    state = ledger.reach
    known = came.router in state.left or came.router in state.connected
    state.routers[came.session] = came.router
    state.left.discard(came.router)
    ledger.deadlines.set(RouterDue(came.router), None)
    for name, standing in list(state.standings.items()):
        if standing.again is not None and any(one.router == came.router for one in standing.results):
            continue
        waited = standing if known or standing.results else replace(standing, since=ledger.now)
        _want(ledger, name, waited)
    _ask_next(ledger)


def router_gone(ledger: Ledger, left: RouterGone) -> None:
    """A router's stream ended: nobody waits for its answers, and what it said counts for a while."""
    state = ledger.reach
    router = state.routers.pop(left.session, None)
    if router is None:
        return
    if router not in state.connected:
        state.left.add(router)
        ledger.deadlines.set(RouterDue(router), ledger.now + ledger.settings.lost_after)
    for name in list(state.trials.values()):
        standing = state.standings[name]
        assert standing.trial is not None  # it is among the trials
        fewer = replace(standing, trial=replace(standing.trial, asked=standing.trial.asked - {left.session}))
        _put_or_end(ledger, name, fewer, over=standing.trial.asked == {left.session})
    if not state.routers:
        _let_all_through(ledger)
    _ask_next(ledger)


def forget(ledger: Ledger, router: str) -> None:
    """A router did not come back: what it said is forgotten."""
    state = ledger.reach
    state.left.discard(router)
    for name, standing in list(state.standings.items()):
        results = tuple(one for one in standing.results if one.router != router)
        if results != standing.results:
            _put(ledger, name, replace(standing, results=results))


def tried(ledger: Ledger, came: RouterTried) -> None:
    """A router answered; an answer to an older question is no news.

    Where several answer under one name, one that reaches the node stands for them: it is one more way to reach it, and
    of those the fastest is mostly the one that fails.
    """
    name = ledger.reach.trials.get(came.tried.token)
    if name is None:
        return
    standing = ledger.reach.standings[name]
    trial = standing.trial
    assert trial is not None  # it is among the trials
    router = ledger.reach.routers.get(came.session)
    if router is None or came.session not in trial.asked - trial.heard:
        return
    twice = any(ledger.reach.routers.get(one) == router for one in trial.heard)
    trial = replace(trial, heard=trial.heard | {came.session})
    error = came.tried.error
    if error and trial.problem:
        error = f"{error}; the node's own words: {trial.problem}"
    if not error or router not in trial.reached:
        result = Reach(router=router, host=trial.host, port=trial.port, error=error, at=ledger.now)
        standing = replace(standing, results=reach.with_result(standing.results, result))
    if not error:
        trial = replace(trial, reached=trial.reached | {router})
    _put_or_end(ledger, name, replace(standing, trial=trial), over=False)
    _ask_next(ledger)
    if twice and ledger.is_news(router, "twice"):  # after what follows from the answer: this is the cause of nothing
        text = f"two routers use the certificate of router {router}; issue one for each (was its key copied?)"
        ledger.emit(EventKind.ROUTER_TWICE, router, text)


# --- time -------------------------------------------------------------------------------------------------------


def refresh(ledger: Ledger, name: NodeName) -> None:
    """Let time pass for one node: its trial may be over, or its next one due."""
    standing = ledger.reach.standings[name]
    if standing.trial is not None and ledger.now >= standing.trial.ends:
        _end(ledger, name, standing)
    elif standing.again is not None and ledger.now >= standing.again:
        _want(ledger, name, replace(standing, again=None))
    else:
        _put(ledger, name, standing)
    _ask_next(ledger)


def _want(ledger: Ledger, name: NodeName, standing: Standing) -> None:
    """Let a node be tried when its turn comes; a trial that runs is followed by another where it must be."""
    state = ledger.reach
    if standing.session is not None and standing.trial is None and state.routers:
        state.waiting.setdefault(name)
    _put(ledger, name, standing)


def _ask_next(ledger: Ledger) -> None:
    """Ask the nodes whose turn it is.

    A token tells a node's listener from whatever else may answer there. It opens nothing, so it need not be a secret.
    """
    state = ledger.reach
    while state.waiting and len(state.trials) < reach.AT_ONCE:
        name = next(iter(state.waiting))
        del state.waiting[name]
        state.count += 1
        trial = Trial(token=f"{ledger.epoch}-{state.count}", ends=ledger.now + reach.TRIAL)
        state.trials[trial.token] = name
        _put(ledger, name, replace(state.standings[name], trial=trial, again=None))
        question = TryAddress(token=trial.token, exposure=ledger.settings.exposure, seconds=reach.LISTEN)
        ledger.do(AskAddress(name, question))


def _put_or_end(ledger: Ledger, name: NodeName, standing: Standing, *, over: bool) -> None:
    if over or (standing.trial is not None and standing.trial.answered):
        _end(ledger, name, standing)
    else:
        _put(ledger, name, standing)


def _end(ledger: Ledger, name: NodeName, standing: Standing) -> None:
    """A trial is over: judge by what was heard, and try again in a while; at once for routers that came meanwhile."""
    state, trial = ledger.reach, standing.trial
    assert trial is not None  # of the caller
    del state.trials[trial.token]
    loopback = ledger.settings.exposure is Exposure.LOOPBACK
    standing = replace(standing, trial=None, again=ledger.now + reach.pause(standing, loopback=loopback))
    if trial.host and not state.connected <= trial.routers:
        _want(ledger, name, replace(standing, again=None))
    else:
        _put(ledger, name, standing)


def _take_back(ledger: Ledger, name: NodeName, standing: Standing) -> None:
    """Whatever was asked of this node, nobody will answer it."""
    ledger.reach.waiting.pop(name, None)
    if standing.trial is not None:
        del ledger.reach.trials[standing.trial.token]


def _let_all_through(ledger: Ledger) -> None:
    """No router is there to try anything."""
    state = ledger.reach
    state.waiting.clear()
    for name in list(state.trials.values()):
        _end(ledger, name, state.standings[name])
    for name, standing in list(state.standings.items()):
        if isinstance(standing.refusal, AddressNotTried):
            _put(ledger, name, standing)


# --- writing ----------------------------------------------------------------------------------------------------


def _put(ledger: Ledger, name: NodeName, standing: Standing) -> None:
    """Replace a standing with its refusal as it follows now; say what is different, and be woken in time."""
    state, before = ledger.reach, ledger.reach.standings.get(name)
    pending = standing.trial is not None or name in state.waiting
    refusal = reach.refusal_of(name, standing, ledger.now, pending=pending)
    standing = _told(ledger, name, replace(standing, refusal=refusal))
    state.standings[name] = standing
    ledger.deadlines.set(ReachDue(name), _due(standing))
    if _kind(before) is not _kind(standing):
        _reconsider(ledger, name, standing)
    if before is None or _shown(before) != _shown(standing):
        ledger.turn.nodes.add(name)


def _reconsider(ledger: Ledger, name: NodeName, standing: Standing) -> None:
    """Models that want a node get this one now if it does; what they are told otherwise is renewed for many at once.

    With a thousand nodes that are tried one after the other, looking at all of them for each would take minutes.
    """
    state, node = ledger.reach, ledger.nodes[name]
    for model in ledger.refusals if standing.refusal is None else ():
        wanted = ledger.models[model]
        if refusal_of(rollout.need(ledger, wanted), room(ledger, node, wanted), ledger.now) is None:
            ledger.turn.models.add(model)
            cause = standing.because.get(model, standing.event)
            if cause and not ledger.turn.first_event:
                ledger.turn.because.setdefault(model, cause)
    if ledger.refusals and not state.stale:
        state.stale = True
        ledger.deadlines.set(ReasonsDue(), ledger.now + reach.REASONS)


def renew_reasons(ledger: Ledger) -> None:
    """Let models without a node say why that is now."""
    ledger.reach.stale = False
    ledger.turn.models.update(ledger.refusals)


def _due(standing: Standing) -> float | None:
    held = standing.since + reach.HOLD if isinstance(standing.refusal, AddressNotTried) else None
    ends = standing.trial.ends if standing.trial else None
    return min((at for at in (held, ends, standing.again) if at is not None), default=None)


def _told(ledger: Ledger, name: NodeName, standing: Standing) -> Standing:
    """An event when the verdict is another than the last that was told, not for each trial."""
    reached, refusal = standing.reached, standing.refusal
    if isinstance(refusal, UnreachableAddress) and not standing.told:
        text = f"router {refusal.router} does not reach {host_port(refusal.address, refusal.port)}: {refusal.error}"
        ledger.emit(EventKind.ADDRESS_UNREACHABLE, name, text)
        return replace(standing, told=True)
    if reached is not None and standing.told:
        text = f"router {reached.router} reaches {host_port(reached.host, reached.port)}"
        ledger.emit(EventKind.ADDRESS_REACHED, name, text)
        return replace(standing, told=False)
    return standing


def _kind(standing: Standing | None) -> type | None:
    return None if standing is None or standing.refusal is None else type(standing.refusal)


def _shown(standing: Standing) -> list[tuple[str, str, str]]:
    """What a reader would call different: each trial has another port, and another time."""
    return [(one.router, one.host, one.error) for one in standing.results]
