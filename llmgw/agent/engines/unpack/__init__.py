"""How does an archive from elsewhere become a directory of ours? Whole and within bounds, or not at all.

    unpack ─▶ child process without rights ─▶ extract ─▶ …
       └────▶ keep: the tree becomes ours, on the disk

Only `.tar.gz`, as releases of engines and interpreters have them. The child imports this package too, and starts
quickly because the parent's side is imported when it is used.
"""

from collections.abc import Callable
from pathlib import Path

from llmgw.agent.engines.unpack.bad import BadArchive

__all__ = ["BadArchive", "unpack"]


async def unpack(archive: Path, into: Path, *, tell: Callable[[int, int], None], case_pairs: bool = False) -> None:
    """Unpack `archive` into `into`, which does not exist before and afterwards is whole and on the disk, or not there.

    `tell` is given the compressed bytes taken and their sum, ten times a second at most. `case_pairs` allows names that
    differ in case only, which interpreters bring with their terminal database. The archive's digest was checked before.
    Raises BadArchive, and OSError where the disk fails or is full or the child does not do its work.
    """
    from llmgw.agent.engines.unpack.parent import unpacked

    await unpacked(archive, into, tell=tell, case_pairs=case_pairs)
