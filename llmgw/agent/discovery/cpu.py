"""What processor is this, by the kernel's own words?"""

import os
from pathlib import Path

from llmgw.core.facts import Cpu

CPUINFO = Path("/proc/cpuinfo")

_X86 = ("sse3", "ssse3", "sse4_", "avx", "fma", "f16c", "bmi", "amx")
_ARM = ("asimd", "sve", "sme", "i8mm", "bf16", "fphp")


def cpu(cpuinfo: str) -> Cpu:
    """Return the processor that `cpuinfo` (the text of /proc/cpuinfo) describes; what it does not say stays empty."""
    said = dict[str, str]()
    for line in cpuinfo.splitlines():
        name, colon, value = line.partition(":")
        if colon:
            said.setdefault(name.strip().lower(), value.strip())
    words = (said.get("flags") or said.get("features") or "").split()
    return Cpu(
        model=(said.get("model name") or said.get("hardware") or said.get("processor model") or "")[:200],
        cores=cores(),
        features=tuple(sorted({word for word in words if word.startswith(_X86 + _ARM)})),
    )


def cores() -> int:
    """How many processors this process may use."""
    return len(os.sched_getaffinity(0))
