"""What follows for the engines of nodes from what one input touched?

    nodes, wishes, releases ─▶ who should have what ─▶ what is asked ─▶ whose turn it is ─▶ whose orders are others

Bytes alone of an install are no such touch: they are shown, and refusals say them now and then.
"""

from collections.abc import Sequence
from dataclasses import replace

from llmgw.core.due import TurnDue, WordsDue
from llmgw.core.engines import progress, turns
from llmgw.core.engines.orders import EngineWish
from llmgw.core.engines.terms import Install, InstallStep
from llmgw.core.engines.turns import Claim
from llmgw.core.ledger import Ledger
from llmgw.core.names import NodeName
from llmgw.core.presence import NodeState
from llmgw.core.provision import resolving
from llmgw.core.provision.wanted import haves, install_of, releases_of, said, wishes_for
from llmgw.core.refusals import EngineBroken, EngineInstalling, Refusal
from llmgw.core.state import Node

_WORDS, _WORDS_EACH = 1.0, 0.01
"""Seconds until refusals say how far installs are, and more of them for each node: each says so of all that moved."""


def follow(ledger: Ledger) -> None:
    """Bring up to date what follows from what was touched."""
    if not ledger.turn.engines:
        return
    ledger.turn.coming.clear()
    for name in sorted(ledger.turn.engines & ledger.nodes.keys()):
        _follow_node(ledger, name)
    resolving.ask(ledger)
    for name in sorted(ledger.book.turns.give()):
        has = name in ledger.book.turns.holding
        ledger.deadlines.set(TurnDue(name), ledger.now + turns.STALL if has else None)
        ledger.turn.orders.add(name)
        ledger.turn.engines.add(name)
    say_later(ledger, ledger.turn.engines)


def turn_due(ledger: Ledger, name: NodeName) -> None:
    """A node made no use of its turn, or tries again."""
    if ledger.book.turns.stalled(name):
        ledger.turn.orders.add(name)
    elif name in ledger.book.turns.holding:
        ledger.deadlines.set(TurnDue(name), ledger.now + turns.STALL)
    ledger.turn.engines.add(name)


def moved(ledger: Ledger, name: NodeName) -> None:
    """A node got on with an install, if by some bytes alone."""
    if name in ledger.book.turns.holding:
        ledger.deadlines.set(TurnDue(name), ledger.now + turns.STALL)
    ledger.turn.progress.add(name)
    say_later(ledger, {name})


def say_later(ledger: Ledger, names: set[NodeName]) -> None:
    """Let refusals say soon how far these nodes are: once for all that move meanwhile."""
    book = ledger.book
    if not names or not ledger.refusals:
        return
    if not book.reworded:
        ledger.deadlines.set(WordsDue(), ledger.now + _WORDS + _WORDS_EACH * len(ledger.nodes))
    book.reworded |= names


def reword(ledger: Ledger) -> None:
    """Let the refusals of models say how far installs are; plan anew only where more than words is another."""
    names, ledger.book.reworded = ledger.book.reworded, set()
    installs = dict[tuple[NodeName, str], Install | None]()
    for model in sorted(ledger.refusals.keys() - ledger.turn.models):
        before, after = ledger.refusals[model], list[Refusal]()
        for one in before:
            now: Refusal | None = one
            if isinstance(one, EngineInstalling | EngineBroken) and one.node in names:
                now = _reworded(ledger, one, installs)
            if now is None:
                ledger.turn.models.add(model)
                break
            after.append(now)
        else:
            if tuple(after) != before:
                ledger.refusals[model] = tuple(after)
                ledger.turn.reworded.add(model)


def _reworded(
    ledger: Ledger, refusal: EngineInstalling | EngineBroken, installs: dict[tuple[NodeName, str], Install | None]
) -> Refusal | None:
    """The refusal with the words of now; None where there is more to it. `installs` are those looked up so far."""
    key = (refusal.node, refusal.engine)
    if key not in installs:
        node = ledger.nodes.get(refusal.node)
        installs[key] = install_of(ledger, node, refusal.engine) if node else None
    install = installs[key]
    if install is None:
        return None
    if isinstance(refusal, EngineBroken):
        return refusal if progress.failed(install) and install.problem == refusal.text else None
    if install.step is InstallStep.READY or progress.failed(install):
        return None
    text = progress.words(install, ledger.now)
    return refusal if text == refusal.text else replace(refusal, version=install.version, step=install.step, text=text)


def _follow_node(ledger: Ledger, name: NodeName) -> None:
    book, node = ledger.book, ledger.nodes[name]
    wishes = wishes_for(ledger, node)
    wanted = {wish.engine for wish in wishes}
    for engine in book.wanting.keys() | wanted:
        of_engine = book.wanting.setdefault(engine, set())
        (of_engine.add if engine in wanted else of_engine.discard)(name)
    if book.turns.put(name, _claim(ledger, node, wishes)):
        ledger.turn.orders.add(name)
    _take_haves(ledger, node)


def _claim(ledger: Ledger, node: Node, wishes: Sequence[EngineWish]) -> Claim | None:
    """Why the node needs a turn; with a look at it again when one that failed is tried again."""
    if node.state is not NodeState.READY:
        return None
    claims, again = list[Claim](), list[float]()
    for wish in wishes:
        known = releases_of(ledger, wish)
        if not known:
            continue
        install = said(node.installs, wish.engine, known[0].release.version)
        claim = turns.claim_of(install, ledger.now)
        if claim is not None:
            claims.append(claim)
        elif install is not None and install.retry_at is not None and install.retry_at > ledger.now:
            again.append(install.retry_at)
    if not claims:
        ledger.deadlines.set(TurnDue(node.name), min(again, default=None))
    return min(claims, default=None)


def _take_haves(ledger: Ledger, node: Node) -> None:
    """Keep who can give what; those whose turn it is are told."""
    book, has = ledger.book, haves(node)
    had = book.gives.get(node.name, frozenset())
    if has == had:
        return
    book.gives[node.name] = has
    for one in had - has:
        book.having[one].discard(node.name)
    for one in has - had:
        book.having.setdefault(one, set()).add(node.name)
    ledger.turn.orders |= book.turns.holding.keys()
