"""Which machine is this, and since which start of it?"""

import os
import platform
import re
import uuid
from pathlib import Path

from llmgw.agent import keep

MACHINE_ID = Path("/etc/machine-id")
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_ID = re.compile(r"[0-9a-f]{32}\Z")


def machine_id(state: Path, file: Path = MACHINE_ID) -> str:
    """The machine's id: systemd's, or one of our own that is made once and kept in `state` where there is none.

    Raises keep.Damaged and OSError.
    """
    said = _text(file)
    if _ID.match(said):
        return said
    kept = state / "machine-id"
    ours = keep.read(kept)
    if ours is None:
        ours = uuid.uuid4().hex
        keep.write(kept, ours)
    return ours


def boot_id() -> str:
    """The id of this start of the machine."""
    return _text(_BOOT_ID)


def operating_system() -> str:
    """The distribution's own name for itself."""
    try:
        return platform.freedesktop_os_release().get("PRETTY_NAME", "")[:200] or platform.system()
    except OSError:
        return platform.system()


def kernel() -> str:
    """The kernel's release."""
    return os.uname().release


def architecture() -> str:
    """The machine's architecture by the kernel's name."""
    return os.uname().machine


def _text(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""
