"""Where on this node may something of ours listen, and on which port, so that no two of ours get the same?"""

from collections.abc import Collection, Iterator
from contextlib import contextmanager

from llmgw.agent.discovery.address import own_address
from llmgw.agent.launch.ports import ephemeral, lease
from llmgw.config.agent import AgentConfig
from llmgw.core.facts import Exposure


class NoAddress(Exception):
    """The node has no address to expose; the text says so, with the way out."""


class Leases:
    """The addresses and ports of this node's launches and trials."""

    def __init__(self, config: AgentConfig) -> None:
        self._config = config
        self._held = set[int]()

    async def host(self, exposure: Exposure) -> str:
        """Where engines listen with this exposure; raises NoAddress."""
        if exposure is Exposure.LOOPBACK:
            return "127.0.0.1"
        found = await own_address(self._config.address, self._config.control)
        if found is not None:
            return found
        raise NoAddress("this node has no route to its control plane, so no address to expose; set `address:`")

    @contextmanager
    def port(self, host: str, in_use: Collection[int]) -> Iterator[int]:
        """A free port of engine_ports that is ours for the time of the block; raises NoPort.

        `in_use`: ports of engines that run, which may not listen yet.
        """
        port = lease(self._config.engine_ports, host, {*in_use, *self._held}, avoid=ephemeral())
        self._held.add(port)
        try:
            yield port
        finally:
            self._held.discard(port)
