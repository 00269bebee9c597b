"""Which ports may a local cluster use? A block that nobody listens on, below those that the kernel gives to clients."""

import random
import socket

from llmgw.config.agent import Ports
from llmgw.core.errors import ClusterCannot

_FIRST, _LAST = 21000, 32000
_TRIES = 50


def lease(count: int) -> Ports:
    """A block of `count` ports, all of them free now.

    Chosen at random, so that two clusters that start at once do not meet. It is no lock: whoever binds a port late must
    be ready to find it taken.
    """
    for _ in range(_TRIES):
        first = random.randrange(_FIRST, _LAST - count)
        block = Ports(first, first + count - 1)
        if all(map(_free, block)):
            return block
    raise ClusterCannot(f"no block of {count} free ports between {_FIRST} and {_LAST}; something holds them")


def _free(port: int) -> bool:
    with socket.socket() as one:
        # As a server does it: what lingers of an old connection is no obstacle.
        one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            one.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
