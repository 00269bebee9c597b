"""What does placement see of a node? Put together from the ledger."""

from llmgw.core.catalog import Model
from llmgw.core.ledger import Ledger
from llmgw.core.placement import Room
from llmgw.core.provision import wanted
from llmgw.core.state import Node


def room(ledger: Ledger, node: Node, model: Model, *, same: int = 0) -> Room:
    """A node as it is seen for one more replica of `model`, of which it has `same`."""
    words = ledger.words.get((model.name, node.name))
    install = wanted.install_of(ledger, node, model.profile.engine)
    return Room(
        node=node,
        promised=ledger.promised(node.name),
        same=same,
        epoch=ledger.epoch,
        refused=(words.text, words.until) if words else None,
        unreached=ledger.reach.refusal(node.name),
        coming=(install,) if install else (),
    )
