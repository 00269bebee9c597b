"""Which machine is looked at? This one, or one that was recorded in a directory.

All discovery reads files and runs tools through a `Root`, so a recorded machine is described exactly as this one is.
Every read is bounded; what is missing, unreadable or not text is "not said", never an error.
"""

import os
import shutil
from dataclasses import dataclass, field
from io import FileIO
from pathlib import Path

from llmgw.config.agent import AgentConfig
from llmgw.host.files import at_once

MOST = 4 << 20
"""Bytes read of one file: /proc/cpuinfo of 512 processors is 800 kB."""
_PIECE = 64 << 10
LONGEST = 200
"""Characters kept of a name, a version, a command or another text that the machine says."""


@dataclass(frozen=True, slots=True)
class Root:
    """A machine's files under `path`, and its tools on `search` (a PATH)."""

    path: Path = Path("/")
    search: str = field(default_factory=lambda: os.environ.get("PATH", os.defpath))

    @classmethod
    def recorded(cls, path: Path) -> "Root":
        """The machine recorded in `path`: its files as on a real one, its tools in `path`/bin and nowhere else."""
        return cls(path, str(path / "bin"))

    @property
    def real(self) -> bool:
        """It is the machine we run on: what the kernel tells only by calls may be asked, too."""
        return self.path == Path("/")

    def at(self, name: str) -> Path:
        """The path of a file, `name` as it is on the machine without the leading slash."""
        return self.path / name.lstrip("/")

    def text(self, name: str) -> str:
        """What the file holds, without the whitespace around it; empty when it cannot be read."""
        try:
            with open(self.at(name), "rb", buffering=0, opener=at_once) as file:
                return _read(file).decode("utf-8", "replace").strip()
        except (OSError, ValueError):  # a name with a NUL in it is a ValueError
            return ""

    def names(self, name: str) -> list[str]:
        """What the directory holds, sorted; empty when it cannot be read. A name that is not UTF-8, which the kernel
        gives to no device, is left out: it could not be said to anybody."""
        try:
            return sorted(found for found in os.listdir(self.at(name)) if _is_text(found))
        except (OSError, ValueError):
            return []

    def exists(self, name: str) -> bool:
        """Whether it is there."""
        return os.path.exists(self.at(name))  # Path.exists raises where we may not look

    def link(self, name: str) -> str:
        """What a link points to, as it is written; empty when it is none."""
        try:
            return os.readlink(self.at(name))
        except (OSError, ValueError):
            return ""

    def device(self, name: str) -> str:
        """The last part of what a link of sysfs points to (a PCI address, a driver); empty when it is none."""
        return os.path.basename(self.link(name))

    def tool(self, name: str) -> str | None:
        """The path of a program on the machine's PATH, None when it has none."""
        return shutil.which(name, path=self.search)


def _read(file: FileIO) -> bytes:
    """Piece by piece: for a file of /proc/sys the kernel allocates as much as is asked for at once, or refuses."""
    kept = bytearray()
    while len(kept) < MOST and (piece := file.read(_PIECE)):
        kept += piece
    return bytes(kept[:MOST])


def root_of(config: AgentConfig) -> Root:
    """The machine that the agent of this configuration describes."""
    return Root() if config.discovery_root is None else Root.recorded(config.discovery_root)


def _is_text(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True
