"""What does a heartbeat say about the node? Read from a few small files each time."""

from llmgw.agent.discovery import memory
from llmgw.agent.discovery.root import Root
from llmgw.core.inventory import Usage
from llmgw.core.units import Bytes

_LOADAVG = "proc/loadavg"


def usage(root: Root, gpu_used: tuple[Bytes, ...]) -> tuple[memory.Ram, Usage]:
    """How much memory there is, and the node's usage now; of GPUs by the last look.

    Raises OSError when the kernel does not say how much memory there is, or is left.
    """
    ram, available = memory.both(root)
    said = Usage(memory_available=available, load_average=load(root.text(_LOADAVG)), gpu_used=gpu_used)
    return ram, said


def load(loadavg: str) -> float:
    """The one-minute load average of the text of /proc/loadavg, 0 where it says none."""
    first = loadavg.split(" ", 1)[0]
    whole, dot, part = first.partition(".")
    plain = first.isascii() and dot == "." and whole.isdecimal() and part.isdecimal() and len(first) < 12
    return float(first) if plain else 0.0
