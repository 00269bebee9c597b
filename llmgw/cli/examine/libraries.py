"""Has an engine all the libraries that it is linked with? Backends are loaded late, so those beside it count, too."""

import asyncio
import contextlib
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from llmgw.agent.discovery.root import Root
from llmgw.agent.environment import engine_environment
from llmgw.agent.run import run
from llmgw.core.brief import some
from llmgw.core.checks import Check, fault, ok, warning
from llmgw.host.threads import aside

_NAME = "libraries"
_MOST, _SECONDS = 200, 5.0
"""Files that are looked at, and seconds for all of them."""
_SHOWN = 8
_VERSION = re.compile(r"version `(\S{1,60})' not found")
_ELF = b"\x7fELF"


async def libraries(engine: str, program: Path) -> list[Check]:
    """Whether anything that the program or a library beside it needs is not there; nothing for what is no binary."""
    try:
        async with asyncio.timeout(_SECONDS):
            files = await aside(binaries, program)
            if not files:
                return []
            ldd = Root().tool("ldd")
            if ldd is None:
                return [warning(_NAME, f"{engine}: no ldd here tells which libraries it needs", "install libc-bin")]
            said = await run([ldd, *files], timeout=_SECONDS, env=engine_environment())
    except TimeoutError:
        fact = f"{engine}: {program.parent} did not answer within {_SECONDS:g} s"
        return [fault(_NAME, fact, "see to the storage that it is on")]
    if said.problem:
        return [warning(_NAME, f"{engine}: ldd {said.problem}", "run ldd on the program by hand")]
    missing = lacking(f"{said.out}\n{said.err}")
    if missing:
        fact = f"{engine}: {some(missing, _SHOWN)} not found, which {program} or a library beside it needs"
        return [fault(_NAME, fact, "install the package that has it, with the node's own package manager")]
    return [ok(_NAME, f"{engine}: nothing that {_files(len(files))} needs is missing")]


def binaries(program: Path) -> list[str]:
    """The program and the shared objects beside it, those that are ELF files, at most so many."""
    beside: Iterable[Path] = ()
    with contextlib.suppress(OSError):  # that the program is not there is told by its probe
        beside = sorted(one for one in program.resolve().parent.iterdir() if ".so" in one.suffixes)
    return [str(one) for one in [program, *beside][:_MOST] if _is_elf(one)]


def lacking(listing: str) -> Sequence[str]:
    """The names that ldd's answer calls not found, each once, in its order.

    Its lines read `libgomp.so.1 => not found`; of a version that is lacking `…/libc.so.6: version `GLIBC_2.38' not
    found (required by …)`, by the dynamic loader itself.
    """
    found = dict[str, None]()
    for line in listing.splitlines():
        name, arrow, where = line.strip().partition(" => ")
        version = _VERSION.search(line)
        if arrow and where.startswith("not found"):
            found[name[:120]] = None
        elif version is not None:
            found[version[1]] = None
    return list(found)


def _files(count: int) -> str:
    return "the program" if count == 1 else f"the program with {count - 1} libraries beside it"


def _is_elf(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            return path.is_file() and file.read(4) == _ELF
    except OSError:
        return False
