"""What do server.yaml and operators want of engines, and what changes by that?"""

from dataclasses import replace

from llmgw.core.brief import some
from llmgw.core.engine_book import Search
from llmgw.core.engines.orders import EngineWish
from llmgw.core.engines.terms import AUTO
from llmgw.core.errors import EngineNotWanted, UnknownNode
from llmgw.core.events import EventKind
from llmgw.core.inputs import CatalogLoaded, RetryEngine
from llmgw.core.ledger import Ledger
from llmgw.core.names import NodeName
from llmgw.core.provision import resolving
from llmgw.core.provision.wanted import is_asked, is_by_hand, is_for, version_of, wishes_for
from llmgw.core.state import Node
from llmgw.core.units import several


def load(ledger: Ledger, loaded: CatalogLoaded, *, first: bool) -> None:
    """Take the engines of server.yaml; at the start (`first`) that is part of the start's own event."""
    book = ledger.book
    before = book.wishes
    book.wishes = {wish.engine: wish for wish in sorted(loaded.engines, key=lambda one: one.engine)}
    for engine in sorted(before.keys() | book.wishes.keys()):
        old, new = before.get(engine), book.wishes.get(engine)
        if old == new:
            continue
        _take(ledger, engine, old, new)
        if first:
            book.led[engine] = ledger.turn.first_event
        else:
            _say(ledger, engine, old, new)
    if before != book.wishes:
        ledger.turn.engines |= ledger.nodes.keys()
        ledger.turn.nodes |= ledger.nodes.keys()
        ledger.turn.replicas |= ledger.replicas.keys()  # whether they are outdated may be another now


def _take(ledger: Ledger, engine: str, old: EngineWish | None, new: EngineWish | None) -> None:
    book = ledger.book
    resolving.renew(ledger, engine, old, new)
    if old is None or new is None or (old.version, old.variant) != (new.version, new.variant):
        book.since[engine] = ledger.now
        book.led_on = {key: seq for key, seq in book.led_on.items() if key[1] != engine}


def _say(ledger: Ledger, engine: str, old: EngineWish | None, new: EngineWish | None) -> None:
    if new is None:
        ledger.emit(EventKind.ENGINE_WANTED_NO_MORE, engine, "no longer in server.yaml; nodes keep what they have")
        ledger.book.led.pop(engine, None)
        return
    nodes = sum(1 for node in ledger.nodes.values() if is_for(new, node))
    was, now = _named(old) if old else "", _named(new)
    change = now if not was else f"{was} → {now}" if was != now else f"{now}, its entry in server.yaml changed"
    event = ledger.emit(EventKind.ENGINE_WANTED, engine, f"{change}; for {several(nodes, 'node')}")
    ledger.book.led[engine] = event.seq


def _named(wish: EngineWish) -> str:
    return wish.version if wish.variant == AUTO else f"{wish.version} ({wish.variant})"


def retry(ledger: Ledger, asked: RetryEngine) -> None:
    """Let a node try at once what it should have; raises UnknownNode or EngineNotWanted, then nothing changed."""
    node = ledger.nodes.get(NodeName(asked.node))
    if node is None:
        raise UnknownNode(asked.node, ledger.nodes)
    wishes = wishes_for(ledger, node)
    chosen = [wish for wish in wishes if asked.engine in ("", wish.engine)]
    if not chosen:
        raise EngineNotWanted(node.name, asked.engine, _why_not(ledger, node, asked.engine, wishes))
    text = ", ".join(f"{wish.engine} {version_of(ledger, wish.engine) or wish.version}" for wish in chosen)
    event = ledger.emit(EventKind.ENGINE_RETRIED, node.name, text, by=asked.by)
    book = ledger.book
    for wish in chosen:
        key = (node.name, wish.engine)
        book.asked[key] = book.asked.get(key, 0) + 1
        book.led_on[key] = event.seq
        if is_asked(wish):  # what is known of its files may have been wrong when it was found out
            book.searches[wish.engine] = replace(book.searches.get(wish.engine, Search()), stale=True, again=None)
    ledger.turn.engines.add(node.name)
    ledger.turn.orders.add(node.name)


def _why_not(ledger: Ledger, node: Node, engine: str, wishes: tuple[EngineWish, ...]) -> str:
    if node.inventory is None or node.engines is None:
        return "the node has not described itself yet"
    named = [name for name in ledger.wishes if is_by_hand(node, name) and engine in ("", name)]
    if named:
        return f"its agent.yaml names {some(named, 8)} by hand"
    return f"wanted there: {some([wish.engine for wish in wishes], 8)}" if wishes else "no engine is wanted there"
