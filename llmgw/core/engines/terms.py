"""Which engines are there, and how far is a node with one? The words that all sides use.

Times are seconds since 1970, sizes bytes. What is wanted, and of which files it is made, is in `orders`.
"""

from dataclasses import dataclass
from enum import Enum

from llmgw.core.names import NodeName
from llmgw.core.units import NONE, Bytes

AUTO = "auto"
"""The variant that leaves the choice to the node."""


class EngineKind(Enum):
    """What an engine is made of."""

    ARCHIVE = "archive"
    """Archives of a release, unpacked (llama.cpp)."""
    PYTHON = "python"
    """A virtual environment of locked packages (vLLM, SGLang)."""


KINDS = {"llama.cpp": EngineKind.ARCHIVE, "vllm": EngineKind.PYTHON, "sglang": EngineKind.PYTHON}
"""The engines that can be installed."""


class InstallStep(Enum):
    """How far an install is. A step that failed stays the step it is at, with a problem."""

    RESOLVE = "resolve"
    DOWNLOAD = "download"
    VERIFY = "verify"
    UNPACK = "unpack"
    LIBRARIES = "libraries"
    PROVE = "prove"
    READY = "ready"


@dataclass(frozen=True, slots=True, kw_only=True)
class Install:
    """One version of an engine on a node: being made, or made."""

    engine: str
    version: str
    variant: str = ""
    """As it was chosen: `cpu`, `cuda 13.3`; empty while it is not."""
    step: InstallStep
    since: float
    """When it entered this step."""
    subject: str = ""
    """What the step is at: the name of a file or of a package."""
    done: Bytes = NONE
    total: Bytes = NONE
    """Of the step in bytes; 0 where it is not counted."""
    rate: float = 0.0
    """Bytes per second, over the last seconds."""
    path: str = ""
    """The program, once it is ready."""
    problem: str = ""
    """Why it does not go on, or what is broken in it since it was ready; the node's own words."""
    note: str = ""
    """What is not as it was asked for, as a CPU build where there is none for the GPU."""
    attempts: int = 0
    """Tries in a row that failed."""
    retry_at: float | None = None
    checked_at: float | None = None
    """When it was last seen to be whole."""
    used: bool = False
    """A shard of the node runs with it."""
    turn: bool = False
    """It needs its turn to download: to begin with that, to go on, or to try again; also one that is `ready` and is
    to be repaired, or to be another variant."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Installs:
    """All installs of the node as they are now; sent at most twice a second."""

    installs: tuple[Install, ...] = ()


def engine_id(node: NodeName, engine: str, version: str) -> str:
    """Return the name of an engine on a node, as watchers know it: `node01/llama.cpp/b10991`."""
    return f"{node}/{engine}/{version}"
