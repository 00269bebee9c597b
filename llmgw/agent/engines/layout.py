"""Where in an engine's unpacked archives is its program, and what does that need in its environment?"""

import os
from collections.abc import Mapping
from pathlib import Path

from llmgw.agent.engines import elf
from llmgw.agent.environment import engine_environment

_PROGRAMS: Mapping[str, str] = {"llama.cpp": "llama-server"}
"""By engine, the name of its program's file; where in the archive that is changed between releases."""


class NoProgram(Exception):
    """The files hold no program of the engine; the text is one line."""


def program_of(engine: str, tree: Path) -> Path:
    """Return the engine's program. Raises NoProgram, OSError, elf.TooLarge."""
    name = _PROGRAMS[engine]
    found = sorted((path for path in elf.files(tree) if path.name == name), key=lambda path: (len(path.parts), path))
    if not found:
        raise NoProgram(f"{engine}: its archive has no {name}")
    if not os.access(found[0], os.X_OK):
        raise NoProgram(f"{engine}: {name} in its archive may not be executed")
    return found[0]


def environment_of(engine: str, tree: Path) -> dict[str, str]:
    """Return the whole environment that the engine runs with: where its libraries lie apart from it, it says so.

    CUDA's runtime is an archive of its own; the program finds by itself only what lies beside it. Raises as
    `program_of` does.
    """
    environment = engine_environment()
    beside = program_of(engine, tree).parent
    apart = sorted({str(path.parent) for path in elf.shared_objects(tree)} - {str(beside)})
    path = [*apart, *filter(None, [environment.get("LD_LIBRARY_PATH")])]
    return {**environment, "LD_LIBRARY_PATH": ":".join(path)} if path else environment
