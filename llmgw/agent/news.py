"""Is there something new to tell the control plane? One bell for all who have something, one reader who listens."""

import asyncio


class News:
    """Counts what is new; the count says what a reader has seen."""

    def __init__(self) -> None:
        self.count = 0
        self._rung = asyncio.Event()

    def ring(self) -> None:
        """Say that something changed."""
        self.count += 1
        rung, self._rung = self._rung, asyncio.Event()
        rung.set()

    async def after(self, seen: int) -> None:
        """Wait until the count is another one than `seen`."""
        if self.count == seen:
            await self._rung.wait()
