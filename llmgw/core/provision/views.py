"""The engines of a node as operators see them: installed, being installed, wanted, and written by hand."""

from llmgw.core.engines.terms import Install, InstallStep, engine_id
from llmgw.core.facts import EngineReport
from llmgw.core.ledger import Ledger
from llmgw.core.names import NodeName
from llmgw.core.provision.wanted import installs_for, said
from llmgw.core.state import Node
from llmgw.core.views import EngineView


def of_node(ledger: Ledger, name: NodeName) -> dict[str, EngineView]:
    """Return the engines of a node by `engine_id`; of one that is away as it said last."""
    node = ledger.nodes.get(name)
    if node is None:
        return {}
    views: dict[str, EngineView] = {}
    wanted = {(one.engine, one.version): one for one in installs_for(ledger, node)}
    for one in node.installs:
        key = (one.engine, one.version)
        install = wanted.get(key) or said(node.installs, *key) or one
        views[engine_id(name, *key)] = EngineView(node=name, wanted=key in wanted, install=install)
    for key, install in wanted.items():
        views.setdefault(engine_id(name, *key), EngineView(node=name, wanted=True, install=install))
    for report in node.engines.engines if node.engines else ():
        key = (report.engine, report.version)
        if report.by_hand or engine_id(name, *key) not in views:
            views[engine_id(name, *key)] = _reported(node, report, wanted=key in wanted)
    return views


def changed(ledger: Ledger, name: NodeName) -> list[str]:
    """Take the engines of a node as they are now for shown; return the names of those that are others than before."""
    before, now = ledger.book.shown.get(name, {}), of_node(ledger, name)
    ledger.book.shown[name] = now
    return sorted(one for one in before.keys() | now.keys() if before.get(one) != now.get(one))


def _reported(node: Node, report: EngineReport, *, wanted: bool) -> EngineView:
    assert node.engines is not None
    install = Install(
        engine=report.engine,
        version=report.version,
        variant=report.variant,
        step=InstallStep.READY,
        since=node.since,
        path=report.path,
        problem=report.problem,
        checked_at=node.engines.probed_at,
    )
    return EngineView(node=node.name, by_hand=report.by_hand, wanted=wanted, install=install)
