"""What processor is this, by the kernel's own words, and how much of it may be used?"""

import os
import re
from collections.abc import Iterator

from llmgw.agent.discovery.arm_parts import part_name
from llmgw.agent.discovery.cgroups import around
from llmgw.agent.discovery.numbers import processors, whole
from llmgw.agent.discovery.root import LONGEST, Root
from llmgw.core.inventory import Cpu

CPUINFO = "proc/cpuinfo"

MOST_FEATURES = 100

_X86 = ("sse2", "ssse3", "sse4", "avx", "fma", "f16c", "bmi", "amx_")
"""What the flag words begin with that engines are built for. Each 64-bit processor has sse2: it shows that the flags
are known."""
_ARM = ("asimd", "sve", "sme", "i8mm", "bf16", "fphp")

_WORD = re.compile(r"[a-z0-9_]{1,32}\Z")
_PROCESSOR = re.compile(r"^processor\s*:\s*(\d{1,6})\s*$", re.MULTILINE | re.ASCII)
_NUMBER = re.compile(r"^CPU (implementer|part)\s*:\s*(0x[0-9a-f]{1,4})$", re.MULTILINE)


def cpu(root: Root, cpuinfo: str) -> Cpu:
    """The processor that `cpuinfo` (the text of /proc/cpuinfo) describes; what it does not say stays empty."""
    return Cpu(
        model=_model(root, cpuinfo)[:LONGEST],
        cores=_cores(root, cpuinfo),
        quota=_quota(root),
        features=features(cpuinfo),
    )


def features(cpuinfo: str) -> tuple[str, ...]:
    """The vector extensions by the kernel's flag words, sorted."""
    x86, arm = _said(cpuinfo, "flags").split(), _said(cpuinfo, "Features").split()
    found = {word for word in x86 if word.startswith(_X86)} | {word for word in arm if word.startswith(_ARM)}
    return tuple(sorted(word for word in found if _WORD.match(word)))[:MOST_FEATURES]


def flags(cpuinfo: str) -> frozenset[str]:
    """All flag words of the first processor, on x86."""
    return frozenset(_said(cpuinfo, "flags").split())


def _model(root: Root, cpuinfo: str) -> str:
    named = _said(cpuinfo, "model name")
    if named:
        return named
    # arm's kernel names the maker and the part by number; a processor may have cores of two kinds.
    known = " + ".join(dict.fromkeys(_parts(cpuinfo)))
    board = root.text("proc/device-tree/model").replace("\0", "").strip()
    return known or board or _said(cpuinfo, "Hardware") or _said(cpuinfo, "cpu model") or _said(cpuinfo, "cpu")


def _parts(cpuinfo: str) -> Iterator[str]:
    """The name of each processor, on arm; the maker stands before the part."""
    maker = ""
    for what, number in _NUMBER.findall(cpuinfo):
        if what == "implementer":
            maker = number
        elif maker:
            yield part_name(maker, number)


def _said(cpuinfo: str, name: str) -> str:
    match = re.search(rf"^{name}[ \t]*:[ \t]*(\S.*)$", cpuinfo, re.MULTILINE)
    return match[1].strip() if match else ""


# --- how much of it ---------------------------------------------------------------------------------------------


def _cores(root: Root, cpuinfo: str) -> int:
    """Processors that may be used; 0 when nothing says."""
    there = frozenset(int(number) for number in _PROCESSOR.findall(cpuinfo)) or processors(
        root.text("sys/devices/system/cpu/online")
    )
    for allowed in _allowed(root):
        there = there & allowed if there else allowed
    return len(there)


def _allowed(root: Root) -> Iterator[frozenset[int]]:
    """Each set of processors that we are confined to; a set that is empty says nothing."""
    if root.real:
        yield frozenset(os.sched_getaffinity(0))
    for group in around(root, "cpuset"):
        for file in ("cpuset.cpus.effective", "cpuset.effective_cpus", "cpuset.cpus"):
            if allowed := processors(root.text(f"{group}/{file}")):
                yield allowed
                break


def _quota(root: Root) -> float | None:
    """The smallest share of time of the groups around us, in processors."""
    shares = [share for group in around(root, "cpu") if (share := _share(root, group)) is not None]
    return min(shares, default=None)


def _share(root: Root, group: str) -> float | None:
    amount, _, period = root.text(f"{group}/cpu.max").partition(" ")
    if not amount:
        amount, period = root.text(f"{group}/cpu.cfs_quota_us"), root.text(f"{group}/cpu.cfs_period_us")
    time, of = whole(amount), whole(period)  # `max`, and -1 in the first hierarchy, are no bound
    return round(time / of, 3) if time and of else None
