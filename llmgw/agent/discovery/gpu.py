"""Which GPUs are there, as NVIDIA's own tool says? A tool that fails is a problem with its words, never "no GPUs"."""

import os
import shutil

from llmgw.agent.run import run
from llmgw.core.facts import Gpu
from llmgw.core.units import MIB, Bytes

TOOL = "nvidia-smi"
TIMEOUT = 10.0
"""Seconds; a driver that hangs keeps its tool for ever."""

_DRIVER = "/proc/driver/nvidia/version"
_UNSAID = {"", "n/a", "[n/a]", "not supported", "[not supported]", "[unknown error]", "[insufficient permissions]"}
_FIELDS = ("index", "uuid", "name", "memory.total", "driver_version")


async def gpus() -> tuple[tuple[Gpu, ...], str]:
    """Return the GPUs, and what was wrong with asking for them (then an empty tuple does not mean "none")."""
    tool = shutil.which(TOOL)
    if tool is None:
        return (), _untold()
    ran = await run([tool, f"--query-gpu={','.join(_FIELDS)}", "--format=csv,noheader,nounits"], timeout=TIMEOUT)
    if not ran.ok:
        return (), f"{TOOL}: {ran.words()}"
    return parse(ran.out)


def parse(text: str) -> tuple[tuple[Gpu, ...], str]:
    """Return the GPUs that the tool's answer lists, and a problem that names the first line it cannot read."""
    found = list[Gpu]()
    for line in filter(str.strip, text.splitlines()):
        words = [word.strip() for word in line.split(",")]
        if len(words) == 1 and words[0].lower().startswith("no devices"):
            continue
        # A name may hold commas; the fields around it cannot.
        if len(words) < len(_FIELDS) or not words[0].isdecimal() or int(words[0]) > 1023:
            return tuple(found), f"{TOOL} answered {line.strip()[:120]!r}, which is no GPU"
        index, uuid, *name, memory, driver = words
        found.append(
            Gpu(
                index=int(index),
                uuid=_said(uuid),
                name=_said(", ".join(name)),
                memory=_mib(memory),
                driver=_said(driver),
            )
        )
    return tuple(found), ""


def _untold() -> str:
    return f"an NVIDIA driver is loaded and {TOOL} is not installed" if os.path.exists(_DRIVER) else ""


def _said(word: str) -> str:
    return "" if word.lower() in _UNSAID else word[:200]


def _mib(word: str) -> Bytes | None:
    return Bytes(int(word) * MIB) if word.isdecimal() and len(word) < 10 else None
