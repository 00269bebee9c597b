"""Which machine is this, and since which start of it?"""

import hashlib
import re
import socket
import uuid
from pathlib import Path

MACHINE_ID = Path("/etc/machine-id")
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_ID = re.compile(r"[0-9a-f]{32}\Z")
_MADE_UP = 1 << 40
"""Set in a hardware address that Python drew because it found none (RFC 9562, section 6.10)."""


def machine_id(file: Path = MACHINE_ID) -> str:
    """The machine's id, the same to every program on it.

    Where systemd gave it none (some containers) it is made from the host's name and its first network card's address.
    """
    said = _text(file)
    if _ID.match(said):
        return said
    card = uuid.getnode()
    card = 0 if card & _MADE_UP else card
    return hashlib.sha256(f"llmgw {socket.gethostname()} {card:012x}".encode()).hexdigest()[:32]


def boot_id() -> str:
    """The id of this start of the machine."""
    return _text(_BOOT_ID)


def _text(path: Path) -> str:
    try:
        return path.read_text().strip()
    except (OSError, UnicodeDecodeError):
        return ""
