"""Which shared libraries does an engine lack on this node, and can it have them?

Asked of `ldd` for the program and for every shared object beside it: backends are loaded late, so the program alone
looks whole. A backend that the engine was not chosen for may lack what it wants; then it is only not loaded. Python
environments are not looked at so: their packages bring libraries that only they know how to find.
"""

import asyncio
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from llmgw.agent.engines import elf, packages
from llmgw.agent.engines.layout import program_of
from llmgw.agent.engines.packages import CannotInstall
from llmgw.agent.run import run
from llmgw.core.brief import some
from llmgw.host.threads import aside

_TIMEOUT = 20.0
"""Seconds for one `ldd`."""
_AT_ONCE = 4
_SHOWN = 4

_NOT_FOUND = re.compile(r"^\s*(\S+) => not found", re.M)
_VERSION = re.compile(r"version [`']([A-Za-z0-9_.]+)' not found")
_BACKEND = re.compile(r"libggml-([a-z0-9]+)")
_NEEDED_ALWAYS = frozenset({"base", "cpu"})
_BACKENDS: Mapping[str, str] = {"rocm": "hip"}
"""By the word of a variant, that in the file name of its backend, where they differ."""

_FROM_DRIVER: Mapping[str, str] = {
    "libcuda.so.1": "the NVIDIA driver",
    "libnvidia-ml.so.1": "the NVIDIA driver",
    "libamdhip64.so": "ROCm",
    "libhipblas.so": "ROCm",
    "librocblas.so": "ROCm",
}
"""By how a library's name begins, what brings it: never a package that is installed here."""


class CannotProvide(Exception):
    """An engine lacks what this node cannot give it; the text is one line with the way out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MissingLibrary:
    """A library, or a version of one that is there, that an engine needs."""

    name: str
    """`libgomp.so.1`; with `too_old` a version such as `GLIBC_2.38`."""
    by: str
    """The first file that needs it."""
    too_old: bool = False
    """The system's own library has not this version."""
    optional: bool = False
    """Only backends need it that the engine was not chosen for."""


async def ensure(
    engine: str,
    tree: Path,
    variant: str,
    environment: Mapping[str, str],
    *,
    allowed: bool,
    os_name: str,
    tell: Callable[[str], None],
) -> str:
    """See that the engine has all libraries, by packages where `allowed`; return a note on what it goes without.

    Raises CannotProvide, OSError, layout.NoProgram, elf.TooLarge.
    """
    await refuse_musl(engine, environment, os_name)
    found = await missing(engine, tree, variant, environment)
    if any(not one.optional for one in found):
        await provide(found, allowed=allowed, os_name=os_name, tell=tell)
        found = await missing(engine, tree, variant, environment)
        if left := [one.name for one in found if not one.optional]:
            raise CannotProvide(f"{some(left, _SHOWN)} is still missing after packages for it were installed")
    lost = sorted({one.by for one in found})
    names = some(sorted({one.name for one in found}), _SHOWN)
    return f"goes without {some(lost, _SHOWN)}: {names} is missing" if lost else ""


async def missing(engine: str, tree: Path, variant: str, environment: Mapping[str, str]) -> tuple[MissingLibrary, ...]:
    """Return what `ldd` does not find for the engine's files, each once, what is needed first.

    Raises CannotProvide when it cannot be asked, OSError, layout.NoProgram, elf.TooLarge.
    """
    program = await aside(program_of, engine, tree)
    objects = [program, *(one for one in await aside(elf.shared_objects, tree) if one != program)]
    free = asyncio.Semaphore(_AT_ONCE)

    async def ask(path: Path) -> list[MissingLibrary]:
        async with free:
            text = await _ldd(path, environment)
        return _read(text, str(path.relative_to(tree)), optional=path != program and _is_optional(path.name, variant))

    found = dict[tuple[str, bool], MissingLibrary]()
    for told in await asyncio.gather(*(ask(path) for path in objects)):
        for one in told:
            before = found.get((one.name, one.too_old))
            if before is None or before.optional > one.optional:
                found[one.name, one.too_old] = one
    return tuple(sorted(found.values(), key=lambda one: (one.optional, one.name)))


async def provide(gone: Iterable[MissingLibrary], *, allowed: bool, os_name: str, tell: Callable[[str], None]) -> None:
    """Install the packages of what is needed. Raises CannotProvide, with libraries, packages and the command.

    Whoever calls looks again afterwards.
    """
    needed = [one for one in gone if not one.optional]
    for one in needed:
        if one.too_old:
            raise CannotProvide(
                f"{one.by} needs {one.name}, for which this system ({os_name}) is too old; take an older build of the "
                "engine, or a newer system"
            )
        if bringer := next((of for start, of in _FROM_DRIVER.items() if one.name.startswith(start)), ""):
            raise CannotProvide(
                f"{one.name} is missing: it comes with {bringer}, which llmgw does not install; install that, or name "
                "variant: cpu"
            )
    try:
        await packages.install([one.name for one in needed], allowed=allowed, tell=tell)
    except CannotInstall as error:
        raise CannotProvide(str(error)) from None


async def refuse_musl(engine: str, environment: Mapping[str, str], os_name: str) -> None:
    """Raise CannotProvide on a system whose C library is musl: no build of an engine runs there."""
    said = await run(["ldd", "--version"], timeout=_TIMEOUT, env=_plain(environment))
    if "musl libc" in said.out + said.err:
        raise CannotProvide(
            f"{engine} cannot run on {os_name or 'this system'}: its C library is musl, engines are built for glibc; "
            "use a system with glibc (Debian, Ubuntu, Fedora, SUSE)"
        )
    if said.status is None:
        raise CannotProvide(
            f"which libraries are missing cannot be told: ldd {said.problem}; install the package that has ldd"
        )


async def _ldd(path: Path, environment: Mapping[str, str]) -> str:
    said = await run(["ldd", str(path)], timeout=_TIMEOUT, env=_plain(environment))
    text = f"{said.out}\n{said.err}"
    # For what has no libraries at all, and for scripts, it says "not a dynamic executable" and ends with 1.
    if said.status is None or (not said.ok and "not a dynamic executable" not in text and not _VERSION.search(text)):
        raise CannotProvide(f"which libraries {path.name} lacks cannot be told: ldd: {said.words()}")
    return text


def _plain(environment: Mapping[str, str]) -> dict[str, str]:
    """Its words are read, so they must be English."""
    return {**{name: value for name, value in environment.items() if not name.startswith("LC_")}, "LC_ALL": "C"}


def _read(text: str, by: str, *, optional: bool) -> list[MissingLibrary]:
    names = dict.fromkeys(_NOT_FOUND.findall(text))
    versions = dict.fromkeys(_VERSION.findall(text))
    return [
        *(MissingLibrary(name=name, by=by, optional=optional) for name in names),
        *(MissingLibrary(name=name, by=by, too_old=True, optional=optional) for name in versions),
    ]


def _is_optional(name: str, variant: str) -> bool:
    """Whether it is a backend that the engine was not chosen for."""
    match = _BACKEND.match(name)
    chosen = variant.partition(" ")[0]
    return match is not None and match[1] not in {*_NEEDED_ALWAYS, _BACKENDS.get(chosen, chosen)}
