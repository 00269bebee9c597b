"""Which Python runs an engine? The archive that its release brings, else one of the system at that very version."""

import json
import os
import platform
import shutil
import sys
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

from llmgw.agent.engines.python.fault import EnvironmentFault
from llmgw.agent.engines.unpack import BadArchive, unpack
from llmgw.agent.run import run
from llmgw.core.engines.orders import ReleaseFile
from llmgw.host.threads import aside

_TIMEOUT = 30.0
_PLACES = ("/usr/bin", "/usr/local/bin", "/opt/python/bin")
_ASK = """\
import json, sys, sysconfig
print(json.dumps({
    "version": "%d.%d.%d" % sys.version_info[:3],
    "implementation": sys.implementation.name,
    "free": bool(sysconfig.get_config_var("Py_GIL_DISABLED")),
    "apart": sys.prefix == sys.base_prefix,
}))
"""
"""What an interpreter is asked; one inside a virtual environment is not apart from somebody else's."""


@dataclass(frozen=True, slots=True)
class _Answer:
    problem: str = ""
    version: str = ""


async def interpreter(python: str) -> Path:
    """Return a program of the system that is Python at version `python` (`3.12`). Raises EnvironmentFault."""
    told = list[str]()
    for program in _candidates(python):
        answer = await _ask(program)
        if not answer.problem and _is(answer.version, python):
            return program
        told.append(f"{program}: {answer.problem or f'is {answer.version}'}")
    found = f" ({'; '.join(told[:3])})" if told else ""
    raise EnvironmentFault(
        f"Python {python}: this node has none{found}; install python{python} from its package manager, or lock the "
        f"engine with the archive of an interpreter"
    )


def _candidates(python: str) -> Iterator[Path]:
    """Programs that may be it, a file once."""
    seen = set[str]()
    name = "python" + ".".join(python.split(".")[:2])
    ours = [sys._base_executable] if _is(platform.python_version(), python) else []  # type: ignore[attr-defined]
    for text in (*(f"{place}/{name}" for place in (*_PLACES, *os.get_exec_path())), *ours):
        real = os.path.realpath(text)
        if os.path.isabs(text) and real not in seen and os.access(real, os.X_OK) and os.path.isfile(real):
            seen.add(real)
            yield Path(text)


async def _ask(program: Path) -> _Answer:
    ran = await run([str(program), "-I", "-S", "-c", _ASK], timeout=_TIMEOUT, env={"PATH": os.defpath})
    if not ran.ok:
        return _Answer(problem=ran.words()[:160])
    try:
        said = json.loads(ran.out)
        version, kind, free, apart = (said[key] for key in ("version", "implementation", "free", "apart"))
    except (ValueError, LookupError, TypeError):
        return _Answer(problem="does not answer like Python")
    if kind != "cpython" or free:
        return _Answer(problem="is no CPython as wheels are made for")
    return _Answer(version=str(version)) if apart else _Answer(problem="belongs to a virtual environment")


def _is(version: str, python: str) -> bool:
    return version == python or version.startswith(f"{python}.")


# --- from an archive ---------------------------------------------------------------------------------------------


async def unpacked(
    python: str, file: ReleaseFile, archive: Path, *, making: Path, cache: Path, tell: Callable[[str, int, int], None]
) -> Path:
    """Return the program out of a release's own archive. Raises EnvironmentFault, OSError.

    It stays in `cache`, since environments run with it. `making` is on the same disk; the caller removes what is there.
    """
    home = cache / "interpreters" / _name(file.digest)
    if not await aside(home.is_dir):
        await _unpack(archive, home, making / "python", lambda done, total: tell(file.name, done, total))
    program = await aside(_program, home, python)
    if program is None:
        raise EnvironmentFault(f"{file.name}: has no bin/python{python}; lock the engine with an archive of Python")
    answer = await _ask(program)
    if answer.problem or not _is(answer.version, python):
        await aside(shutil.rmtree, home, ignore_errors=True)
        raise EnvironmentFault(f"{file.name}: its {program.name} {answer.problem or f'is {answer.version}'}")
    return program


async def _unpack(archive: Path, home: Path, beside: Path, tell: Callable[[int, int], None]) -> None:
    """Unpack and rename: an interpreter is there whole or not at all."""
    try:
        await unpack(archive, beside, tell=tell, case_pairs=True)
    except BadArchive as error:
        raise EnvironmentFault(f"{archive.name}: {error}") from None
    await aside(home.parent.mkdir, 0o755, parents=True, exist_ok=True)
    try:
        await aside(os.replace, beside, home)
    except OSError:
        if not await aside(home.is_dir):  # another engine may have been quicker
            raise


def _program(home: Path, python: str) -> Path | None:
    name = "python" + ".".join(python.split(".")[:2])
    found = (one for depth in ("bin", "*/bin", "*/*/bin") for one in sorted(home.glob(f"{depth}/{name}")))
    return next((one for one in found if one.resolve().is_relative_to(home.resolve())), None)


def prune(cache: Path, digests: Collection[str]) -> None:
    """Remove the interpreters that are none of these files."""
    kept = {_name(digest) for digest in digests}
    for path in (cache / "interpreters").glob("*"):
        if path.name not in kept:
            shutil.rmtree(path, ignore_errors=True)


def _name(digest: str) -> str:
    """Of its directory."""
    return digest.rpartition(":")[2][:32]
