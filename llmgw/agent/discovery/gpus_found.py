"""What did a look for GPUs find?"""

from dataclasses import dataclass

from llmgw.core.inventory import Gpu, GpuHolder
from llmgw.core.units import Bytes

MOST_CARDS, MOST_PARTS = 64, 8
"""GPUs of one vendor that are kept, and parts of one GPU: twice what the largest server has, and one more than MIG
makes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpus:
    """The GPUs of a node, or those of one vendor on it."""

    gpus: tuple[Gpu, ...] = ()
    used: tuple[Bytes, ...] = ()
    """Memory in use of each of `gpus`; 0 where it is not said."""
    holders: tuple[GpuHolder, ...] = ()
    problem: str = ""
    """What was wrong with looking; `gpus` may then lack some, or all."""
    nvidia_driver: bool = False
    """NVIDIA's kernel module is loaded, or that could not be told."""
