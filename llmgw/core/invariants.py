"""What must hold of a cluster between two inputs? Asserted by tests, after each of them."""

from collections.abc import Callable, Mapping
from dataclasses import replace

from llmgw.core.ledger import Ledger
from llmgw.core.link import Desired
from llmgw.core.names import NodeName
from llmgw.core.presence import NodeState
from llmgw.core.provision import views as engine_views
from llmgw.core.provision.wanted import haves

_LOOKED_INTO = 12
"""Of a large fleet so many nodes are looked into after each input, others after the next."""


def check(ledger: Ledger, desired: Callable[[NodeName], Desired], sent: Mapping[NodeName, tuple[int, Desired]]) -> None:
    """Assert all of it; `desired` says what a node should run, `sent` what each session was told last."""
    _check_replicas(ledger)
    _check_reach(ledger)
    _check_turns(ledger)
    names = list(ledger.nodes)
    first = ledger.change * _LOOKED_INTO % max(1, len(names))
    for name in (names[first:] + names[:first])[:_LOOKED_INTO]:
        order = desired(name)
        _check_shards(ledger, name, order)
        _check_engines(ledger, name, order)
        session, told = sent.get(name, (None, order))
        news = session == ledger.nodes[name].session and replace(told, revision=order.revision) != order
        assert not news, f"{name} was not sent its orders"


def _check_replicas(ledger: Ledger) -> None:
    for replica in ledger.replicas.values():
        assert all(replica in ledger.replicas_on(node) for node in replica.nodes), f"{replica.id} is not indexed"
        assert replica in ledger.replicas_of(replica.model), f"{replica.id} is not indexed by its model"
    for node in ledger.nodes.values():
        assert (node.state is not NodeState.READY) or node.session is not None, f"{node.name} is ready, not there"
    for model in ledger.refusals:
        given = [refusal.node for refusal in ledger.refusals[model]]
        assert len(given) == len(set(given)), f"{model} has two refusals of one node"


def _check_shards(ledger: Ledger, name: NodeName, desired: Desired) -> None:
    ordered = [order.shard for order in desired.shards]
    assert len(ordered) == len(set(ordered)), f"{name} is ordered a shard twice"
    strays = (report.order for report in ledger.strays.get(name, {}).values())
    profiles = [replica.profile for replica in ledger.replicas_on(name)]
    profiles += [order.profile for order in strays if order]
    held = sum(profile.memory for profile in profiles)
    assert ledger.promised(name) == held, f"{name} is promised what it does not hold"


def _check_reach(ledger: Ledger) -> None:
    out = {one.trial.token: name for name, one in ledger.reach.standings.items() if one.trial}
    assert ledger.reach.trials == out, "a trial is lost"
    for name in ledger.reach.waiting:
        assert ledger.reach.standings[name].session is not None, f"{name} waits to be tried and is away"


def _check_engines(ledger: Ledger, name: NodeName, desired: Desired) -> None:
    book, engines = ledger.book, [order.engine for order in desired.engines]
    assert len(engines) == len(set(engines)), f"{name} is ordered an engine twice"
    wanting = {engine for engine, nodes in book.wanting.items() if name in nodes}
    assert set(engines) == wanting, f"{name} is ordered other engines than are wanted there"
    assert book.shown.get(name, {}) == engine_views.of_node(ledger, name), f"{name} has engines that nobody was shown"
    has = haves(ledger.nodes[name])
    assert {have for have, nodes in book.having.items() if name in nodes} == has, f"{name} gives what it has not"


def _check_turns(ledger: Ledger) -> None:
    turns = ledger.book.turns
    assert len(turns.holding) <= ledger.settings.downloads, "more nodes download than may"
    assert not turns.holding.keys() & turns.waiting.keys(), "a node waits for the turn that it has"
    assert len(turns.holding) == ledger.settings.downloads or not turns.waiting, "a node waits while a turn is free"
    for name in (*turns.holding, *turns.waiting):
        assert ledger.nodes[name].state is NodeState.READY, f"{name} is away and has, or waits for, a turn"
