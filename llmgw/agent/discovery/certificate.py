"""Until when may the agent dial? By the certificate file that it dials with."""

from pathlib import Path

from llmgw.core.errors import BadConfig
from llmgw.wire import der
from llmgw.wire.tls import certificates


def ends(path: Path) -> float | None:
    """When the first certificate of the chain in the file ends; None when it cannot be read.

    A chain is as good as its shortest link: an issuing certificate that ends takes the node's own with it.
    """
    try:
        return min(der.certificate(one).not_after.timestamp() for one in certificates(path))
    except (BadConfig, der.NotACertificate, OverflowError):
        return None
