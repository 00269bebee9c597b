"""What does placement see of a node? Put together from the ledger."""

from llmgw.core.ledger import Ledger
from llmgw.core.names import ModelName
from llmgw.core.placement import Room
from llmgw.core.state import Node


def room(ledger: Ledger, node: Node, model: ModelName, *, same: int = 0) -> Room:
    """A node as it is seen for one more replica of `model`, of which it has `same`."""
    words = ledger.words.get((model, node.name))
    return Room(
        node=node,
        promised=ledger.promised(node.name),
        same=same,
        epoch=ledger.epoch,
        refused=(words.text, words.until) if words else None,
        unreached=ledger.reach.refusal(node.name),
    )
