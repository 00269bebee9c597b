"""What is a console fed with?"""

from collections.abc import Callable
from typing import Protocol

from llmgw.core.safe import Safe
from llmgw.core.views import Done, Why
from llmgw.tui.view import View


class Feed(Protocol):
    """What the console is fed with."""

    where: Safe
    """The control plane's address and how it is trusted."""

    def now(self) -> float:
        """The control plane's clock, as far as it is known."""

    async def run(self, tell: Callable[[View], None]) -> None:
        """Tell every view, until cancelled."""

    async def why(self, model: str) -> Why:
        """Ask why a model has not all its replicas; raises LlmgwError."""

    async def scale(self, model: str, replicas: int) -> Done:
        """Ask for another number of replicas; raises LlmgwError."""

    async def retry(self, node: str, engine: str) -> Done:
        """Let a node try at once to install or repair an engine; raises LlmgwError."""
