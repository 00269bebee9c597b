"""Which engines should each node have, what is it told about them, and how far is it?

    server.yaml ─▶ wishes ─▶ the nodes they are for ─▶ an order for each node ─▶ its install, as the node says

A wish is for the nodes that have all of its labels and do not name the engine by hand. Before a node said what it is
and probed its engines nothing is ordered: it might have the engine already.
"""

import hashlib
from collections.abc import Iterable
from dataclasses import replace

from llmgw.core.engine_book import Have, Known
from llmgw.core.engines.orders import EngineOrder, EngineWish, Holder, Release, WantedEngine, WantedEngines
from llmgw.core.engines.terms import AUTO, EngineKind, Install, InstallStep
from llmgw.core.ledger import Ledger
from llmgw.core.names import NodeName
from llmgw.core.presence import NodeState
from llmgw.core.state import Node

_HOLDERS = 3
"""Nodes that one node is told to fetch from."""

# --- who should have what ---------------------------------------------------------------------------------------


def wishes_for(ledger: Ledger, node: Node) -> tuple[EngineWish, ...]:
    """Return what this node should have, by name; nothing while it has not described itself."""
    return tuple(wish for wish in ledger.wishes.values() if is_for(wish, node))


def is_for(wish: EngineWish, node: Node) -> bool:
    """Whether the node is one of those that should have it."""
    if node.inventory is None or node.engines is None or is_by_hand(node, wish.engine):
        return False
    return all(label in node.inventory.labels for label in wish.labels)


def is_by_hand(node: Node, engine: str) -> bool:
    """Whether its agent.yaml names the engine."""
    return node.engines is not None and any(one.by_hand and one.engine == engine for one in node.engines.engines)


def releases_of(ledger: Ledger, wish: EngineWish) -> tuple[Known, ...]:
    """Return what is known of the files: one release, or one for each variant; empty while nothing is."""
    known = ledger.book.known.get((wish.engine, wish.version), ())
    return tuple(one for one in known if fits(wish, one.release))


def fits(wish: EngineWish, release: Release) -> bool:
    """Whether a release is of the variant wished for, and has the digests that are pinned."""
    if release.variant not in ("", wish.variant) and wish.variant != AUTO:
        return False
    pinned = {pin.name: pin.digest for pin in wish.pins}
    return all(pinned.get(file.name, file.digest) == file.digest for file in release.files) if pinned else True


def version_of(ledger: Ledger, engine: str) -> str:
    """Return the version that nodes should have; empty when none is wanted, or it is not known yet."""
    wish = ledger.wishes.get(engine)
    known = releases_of(ledger, wish) if wish else ()
    return known[0].release.version if known else ""


def problem_of(ledger: Ledger, wish: EngineWish) -> str:
    """Return why its files are not known, or not known anew; empty when they are."""
    search = ledger.book.searches.get(wish.engine)
    known = releases_of(ledger, wish)
    if search is not None and search.problem:
        return search.problem
    if known:
        return ""
    if not is_asked(wish):
        return f"{wish.engine} {wish.version} is not locked; run: llmgw ctl engine lock {wish.engine}=={wish.version}"
    return f"the files of {wish.engine} {wish.version} are being looked up"


def is_asked(wish: EngineWish) -> bool:
    """Whether somebody can be asked for its files: those of a Python engine are in a mirror, or locked by hand."""
    return wish.kind is EngineKind.ARCHIVE or bool(wish.mirror) or wish.served


# --- what one node is told --------------------------------------------------------------------------------------


def orders(ledger: Ledger, name: NodeName) -> tuple[EngineOrder, ...]:
    """Return the engines that a node should have, by name."""
    node = ledger.nodes.get(name)
    return tuple(_order(ledger, node, wish) for wish in wishes_for(ledger, node)) if node else ()


def _order(ledger: Ledger, node: Node, wish: EngineWish) -> EngineOrder:
    known, go = releases_of(ledger, wish), node.name in ledger.book.turns.holding
    version = known[0].release.version if known else wish.version
    return EngineOrder(
        engine=wish.engine,
        version=version,
        kind=wish.kind,
        variant=wish.variant,
        releases=tuple(one.ref for one in known),
        problem="" if known else problem_of(ledger, wish),
        mirror=wish.mirror,
        served=wish.served,
        holders=_holders(ledger, node, wish.engine, version) if go else (),
        go=go,
        asked=ledger.book.asked.get((node.name, wish.engine), 0),
    )


def _holders(ledger: Ledger, node: Node, engine: str, version: str) -> tuple[Holder, ...]:
    """Return a few nodes of its fabrics that have the files, others for each node: so that no holder has them all."""
    having = ledger.book.having
    near = {one for fabric in _fabrics(node) for one in having.get((fabric, engine, version), ())} - {node.name}
    ranked = sorted(near, key=lambda one: hashlib.sha256(f"{node.name} {one}".encode()).digest())
    found = (ledger.nodes[one] for one in ranked[:_HOLDERS])
    return tuple(Holder(node=one.name, host=one.address, port=one.files_port or 0) for one in found)


def haves(node: Node) -> frozenset[Have]:
    """Return what a node can give to others, while it is there."""
    if node.state is not NodeState.READY or node.files_port is None or not node.address:
        return frozenset()
    whole = [one for one in node.installs if one.step is InstallStep.READY and not one.problem]
    return frozenset((fabric, one.engine, one.version) for fabric in _fabrics(node) for one in whole)


def _fabrics(node: Node) -> Iterable[str]:
    return {fabric.name for fabric in node.inventory.fabrics} if node.inventory else ()


# --- how far it is ----------------------------------------------------------------------------------------------


def install_of(ledger: Ledger, node: Node, engine: str) -> Install | None:
    """Return a node's install of the version that is wanted; None when the engine is not to be installed there.

    One that the node says nothing of is at `resolve`, with what it waits for as its problem.
    """
    wish = ledger.wishes.get(engine)
    if wish is None:
        return None
    record, install = ledger.turn.coming.get((node.name, engine), (None, None))
    if record is not node:  # all models ask, one after the other
        install = _wanted_install(ledger, node, wish) if is_for(wish, node) else None
        ledger.turn.coming[node.name, engine] = node, install
    return install


def installs_for(ledger: Ledger, node: Node) -> tuple[Install, ...]:
    """Return how far the node is with each engine that it should have, as `install_of`."""
    return tuple(_wanted_install(ledger, node, wish) for wish in wishes_for(ledger, node))


def said(installs: Iterable[Install], engine: str, version: str) -> Install | None:
    """Return what a node says of an engine at a version; of two variants the one that works, then the newer."""
    found = [one for one in installs if (one.engine, one.version) == (engine, version)]
    return max(found, key=lambda one: (is_whole(one), one.since, one.variant), default=None)


def is_whole(install: Install) -> bool:
    """Whether it is installed, and nothing is broken in it."""
    return install.step is InstallStep.READY and not install.problem


def installing(ledger: Ledger, node: Node) -> tuple[str, ...]:
    """Return `llama.cpp b10991: download` for each engine that the node should have and has not."""
    left = (one for one in installs_for(ledger, node) if one.step is not InstallStep.READY)
    return tuple(f"{one.engine} {one.version}: {one.step.value}" for one in left)


def _wanted_install(ledger: Ledger, node: Node, wish: EngineWish) -> Install:
    known = releases_of(ledger, wish)
    version = known[0].release.version if known else wish.version
    install = said(node.installs, wish.engine, version)
    if install is not None and (install.step is not InstallStep.RESOLVE or install.problem):
        return install
    waits = _waits_for(ledger, node) if known else problem_of(ledger, wish)
    if install is not None:
        return replace(install, problem=waits)
    since = max(node.since, ledger.book.since.get(wish.engine, 0.0))
    return Install(engine=wish.engine, version=version, step=InstallStep.RESOLVE, since=since, problem=waits)


def _waits_for(ledger: Ledger, node: Node) -> str:
    if node.state is not NodeState.READY:
        return "not begun; the node is away"
    if node.name in ledger.book.turns.holding:
        return "about to begin"
    return "waits for its turn to download"


# --- for operators ----------------------------------------------------------------------------------------------


def engines(ledger: Ledger) -> WantedEngines:
    """Return all engines that nodes should have, by name."""
    return WantedEngines(engines=tuple(_engine(ledger, wish) for wish in ledger.wishes.values()))


def _engine(ledger: Ledger, wish: EngineWish) -> WantedEngine:
    return WantedEngine(
        wish=wish,
        version=version_of(ledger, wish.engine),
        releases=tuple(one.ref for one in releases_of(ledger, wish)),
        problem=problem_of(ledger, wish),
        nodes=len(ledger.book.wanting.get(wish.engine, ())),
    )
