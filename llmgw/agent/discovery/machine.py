"""What is said of the machine beside its hardware?"""

import os
import re
from dataclasses import dataclass

from llmgw.agent.discovery.root import LONGEST, Root


@dataclass(frozen=True, slots=True, kw_only=True)
class System:
    """The distribution, by os-release(5)."""

    name: str
    id: str
    version: str


def system(root: Root) -> System:
    """The distribution's own words; `Linux` where it has no name, as os-release(5) says."""
    said = os_release(root.text("etc/os-release") or root.text("usr/lib/os-release"))
    return System(
        name=said.get("PRETTY_NAME") or said.get("NAME") or "Linux",
        id=said.get("ID", ""),
        version=said.get("VERSION_ID", ""),
    )


def os_release(text: str) -> dict[str, str]:
    """Its assignments, without the quotes that a shell would take away."""
    found = dict[str, str]()
    for line in text.splitlines()[:200]:
        name, equals, value = line.strip().partition("=")
        if not equals or not re.fullmatch(r"[A-Z0-9_]{1,64}", name):
            continue
        if len(value) >= 2 and value[0] == value[-1] and value[0] in "\"'":
            value = value[1:-1]
        found[name] = re.sub(r"\\(.)", r"\1", value).strip()[:LONGEST]
    return found


def kernel(root: Root) -> str:
    """The kernel's release; empty when a recorded machine does not say."""
    return root.text("proc/sys/kernel/osrelease")[:LONGEST] or (os.uname().release if root.real else "")


def architecture(root: Root, cpuinfo: str) -> str:
    """The machine's architecture by the kernel's name; of a recorded machine that does not say (the file is there
    since Linux 6.1), by what its processors' lines are called."""
    if root.real:
        return os.uname().machine
    said = root.text("proc/sys/kernel/arch")
    if re.fullmatch(r"\w{1,32}", said):
        return said
    if re.search(r"^flags\s*:", cpuinfo, re.MULTILINE):
        return "x86_64"
    return "aarch64" if re.search(r"^Features\s*:", cpuinfo, re.MULTILINE) else ""
