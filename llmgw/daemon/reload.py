"""What of server.yaml takes effect without a restart? `models:` and `engines:`, on SIGHUP; the rest is only compared.

A file that cannot be used changes nothing.
"""

import asyncio
import logging
from pathlib import Path

from llmgw.config.load import load_server
from llmgw.config.server import ServerConfig
from llmgw.core.errors import LlmgwError
from llmgw.core.inputs import CatalogLoaded
from llmgw.core.units import several
from llmgw.daemon.brain import Brain

log = logging.getLogger(__name__)


class Reloader:
    """Reads the file again whenever `hangup` is set. `config` is what this process was started with."""

    def __init__(self, file: Path, config: ServerConfig, brain: Brain, hangup: asyncio.Event) -> None:
        self._file, self._config, self._brain, self._hangup = file, config, brain, hangup
        self._models, self._engines = config.catalog(), config.wishes()

    async def run(self) -> None:
        """Wait for signals until cancelled. Signals that come together are one."""
        while True:
            await self._hangup.wait()
            self._hangup.clear()
            try:
                await self._reload()
            except LlmgwError as error:
                log.warning("not reloaded, nothing was changed: %s", error)

    async def _reload(self) -> None:
        # In a thread: nodes are heard while a long file is read.
        new = await asyncio.to_thread(load_server, self._file)
        # What is served is the mirror of the start, until the next.
        models, engines = new.catalog(), new.model_copy(update={"mirror": self._config.mirror}).wishes()
        changed = sum(models.get(name) != self._models.get(name) for name in models.keys() | self._models.keys())
        other = sorted({wish.engine for wish in set(engines) ^ set(self._engines)})
        await self._brain.tell(CatalogLoaded(models=models, engines=engines))
        self._models, self._engines = models, engines
        said = f"; engines changed: {', '.join(other)}" if other else ""
        log.info("%s: read again: %s, %d changed%s", self._file, several(len(models), "model"), changed, said)
        if keys := differing(self._config, new):
            log.warning("%s: only a restart makes these keys count: %s", self._file, ", ".join(keys))


def differing(running: ServerConfig, new: ServerConfig) -> list[str]:
    """The keys of server.yaml, besides those that are read again, in which two configurations differ."""
    kept = [key for key in ServerConfig.model_fields if key not in ("models", "engines")]
    return [key for key in kept if getattr(running, key) != getattr(new, key)]
