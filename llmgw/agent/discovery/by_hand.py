"""What does agent.yaml state about the node, and what is measured in its place?"""

import asyncio
import socket

from llmgw.agent.discovery.address import address_towards
from llmgw.config.agent import AgentConfig
from llmgw.core.inventory import ByHand
from llmgw.core.units import Bytes, sizes

_NEAR = 0.02
"""The share by which a stated size may differ: people write 64GiB of a machine that shows 62.8 to its kernel."""

_DNS_TIME = 5.0


async def by_hand(config: AgentConfig, measured: Bytes) -> tuple[ByHand, ...]:
    """The fields that agent.yaml states, each beside what was measured; `measured` is the memory.

    Takes at most some ten seconds, where names are not resolved.
    """
    found = list[ByHand]()
    if config.address is not None:
        found.append(await _address(config, config.address))
    if config.memory is not None:
        far = abs(config.memory - measured) > _NEAR * measured
        stated, shown = sizes(config.memory, measured)
        below = far and config.memory < measured
        found.append(ByHand(field="memory", stated=stated, measured=shown, differs=far, below=below))
    return tuple(found)


async def _address(config: AgentConfig, stated: str) -> ByHand:
    """Against the addresses of the routes to each control plane: any of them may be meant."""
    routes = await asyncio.gather(*(address_towards(target.host, target.port) for target in config.control))
    measured = [route for route in routes if route is not None]
    if not measured:
        return ByHand(field="address", stated=stated)
    meant = await _resolved(stated)
    differs = bool(meant) and meant.isdisjoint(measured)
    return ByHand(field="address", stated=stated, measured=measured[0], differs=differs)


async def _resolved(host: str) -> frozenset[str]:
    """The addresses of a host; empty when it is not known, which says nothing about where routers look it up."""
    try:
        async with asyncio.timeout(_DNS_TIME):
            found = await asyncio.get_running_loop().getaddrinfo(host, None, type=socket.SOCK_DGRAM)
    except (OSError, TimeoutError):
        return frozenset()
    return frozenset(str(where[0]) for *_, where in found)
