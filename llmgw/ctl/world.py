"""What a watch has told so far, again after each change."""

from collections.abc import AsyncIterator, Sequence
from typing import TYPE_CHECKING

from llmgw.core.errors import ControlUnreachable
from llmgw.core.fold import Fold
from llmgw.core.views import Noun

if TYPE_CHECKING:
    from llmgw.client import ControlClient  # main imports this module for --help, too


async def worlds(
    client: "ControlClient", nouns: Sequence[Noun], *, follow: bool = False, events: int = 0
) -> AsyncIterator[Fold]:
    """Yield the world once it is whole and, with `follow`, after each change; it is the same object each time."""
    world = Fold()
    async for page in client.watch(nouns, follow=follow, events=events):
        if world.take(page) is not None:
            yield world
            if not follow:
                return
    raise ControlUnreachable("at the other end", "it ended its answer early", "try again")
