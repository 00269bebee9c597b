"""How fast may files come? One limit for all downloads of an agent, so that engines keep their share of the network."""

import asyncio


class Limit:
    """So many bytes per second, shared by all who take from it, in the order in which they ask."""

    def __init__(self, rate: float) -> None:
        if rate <= 0:
            raise ValueError("a limit is more than 0 bytes per second")
        self._rate = rate
        self._free_at = 0.0
        """When what was taken so far will have been worth its time; nothing is saved up while nobody takes."""

    async def take(self, count: int) -> None:
        """Wait until `count` more bytes may come."""
        now = asyncio.get_running_loop().time()
        begins = max(now, self._free_at)
        self._free_at = begins + count / self._rate
        if begins > now:
            await asyncio.sleep(begins - now)
