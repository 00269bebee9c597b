"""Which GPUs are there, and who holds their memory?"""

import asyncio
from collections.abc import Callable

from llmgw.agent.discovery import amd, nvidia, rocm
from llmgw.agent.discovery.gpus_found import Gpus
from llmgw.agent.discovery.root import Root
from llmgw.core.units import Bytes
from llmgw.host.threads import once


async def look(root: Root, total: Bytes, available: Bytes, ours: Callable[[int], bool], *, limit: float) -> Gpus:
    """Return the GPUs of all vendors. `total` and `available` are the machine's memory, `ours` knows our engines by
    their pid. Takes as long as the slowest tool, `limit` seconds at most, and twice that more when the kernel does not
    answer either.
    """
    try:
        tool, others = await once(("GPU tools", root), limit, _tools, root)
        asked, told = await asyncio.gather(nvidia.ask(tool, limit), amd.ask(others, limit))
        return await once(("GPUs", root), limit, _read, root, asked, told, total, available, ours)
    except TimeoutError as error:
        problem = f"the kernel's files about GPUs and their processes {error.strerror}"
        return Gpus(problem=problem, nvidia_driver=True)


def _tools(root: Root) -> tuple[str | None, amd.Tools]:
    return nvidia.tool(root), amd.tools(root)


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
        nvidia_driver=root.exists(nvidia.MODULE),
    )
