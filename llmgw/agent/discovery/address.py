"""By which of its addresses does this node reach the control plane?"""

import asyncio
import socket
from collections.abc import Iterable

from llmgw.config.address import Address


async def own_address(stated: str | None, control: Iterable[Address]) -> str | None:
    """The node's address: what agent.yaml states, else the one on the route to the first of the control plane's
    addresses that there is a route to. What registers it and what listens at it must agree."""
    if stated is not None:
        return stated
    for target in control:
        if (found := await address_towards(target.host, target.port)) is not None:
            return found
    return None


async def address_towards(host: str, port: int) -> str | None:
    """The node's address on the route to `host`, or None where there is no route. Nothing is sent."""
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(5):
            found = await loop.getaddrinfo(host, port, type=socket.SOCK_DGRAM)
    except (OSError, TimeoutError):
        return None
    for family, kind, protocol, _, where in found:
        with socket.socket(family, kind, protocol) as probe:
            try:
                probe.connect(where)
            except OSError:
                continue
            return str(probe.getsockname()[0])
    return None
