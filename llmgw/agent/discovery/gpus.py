"""Which GPUs are there, and who holds their memory?"""

import asyncio
from collections.abc import Callable

from llmgw.agent.discovery import amd, nvidia, rocm
from llmgw.agent.discovery.gpus_found import Gpus
from llmgw.agent.discovery.root import Root
from llmgw.agent.threads import aside
from llmgw.core.units import Bytes


async def look(root: Root, total: Bytes, available: Bytes, ours: Callable[[int], bool], *, limit: float) -> Gpus:
    """Return the GPUs of all vendors. `total` and `available` are the machine's memory, `ours` knows our engines by
    their pid. Takes as long as the slowest tool, `limit` seconds at most, and twice that when the kernel does not
    answer either.
    """
    asked, told = await asyncio.gather(nvidia.ask(root, limit), amd.ask(root, limit))
    try:
        async with asyncio.timeout(limit):
            return await aside(_read, root, asked, told, total, available, ours)
    except TimeoutError:
        return Gpus(problem=f"the kernel's files about GPUs and their processes did not answer within {limit:.0f}s")


def _read(
    root: Root,
    asked: nvidia.Asked | None,
    told: list[rocm.Told],
    total: Bytes,
    available: Bytes,
    ours: Callable[[int], bool],
) -> Gpus:
    one, other = nvidia.read(root, asked, total, available, ours), amd.read(root, told, ours)
    return Gpus(
        gpus=one.gpus + other.gpus,
        used=one.used + other.used,
        holders=one.holders + other.holders,
        problem="; ".join(filter(None, (one.problem, other.problem))),
    )
