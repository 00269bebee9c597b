"""How does a list of locked wheels become an environment? With uv, without a network, and only what the lock names.

    fits ─▶ interpreter ─▶ venv ─▶ wheels, some at a time ─▶ what the engine calls itself

The environment may be moved afterwards: its scripts look for their interpreter beside themselves.
"""

import ctypes
import os
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

from packaging.utils import InvalidWheelFilename, canonicalize_name, parse_wheel_filename

from llmgw.agent.engines.python.calls import call
from llmgw.agent.engines.python.fault import EnvironmentFault
from llmgw.agent.engines.python.fits import of_this_machine, refuse_without_room
from llmgw.agent.engines.python.interpreter import interpreter, unpacked
from llmgw.agent.engines.python.names import claim_name
from llmgw.core.engines.digests import is_digest
from llmgw.core.engines.orders import Release, ReleaseFile
from llmgw.core.units import MIB, Bytes, several
from llmgw.host.threads import aside

_AT_ONCE = Bytes(256 * MIB)
"""Wheels of so many bytes are given to uv at once: it works in parallel, and progress is told between."""
_VENV_LIMIT = 120.0
_LIMIT, _SLOWEST = 120.0, MIB
"""Seconds for a call of uv, and bytes of wheels per second on top."""

Tell = Callable[[str, int, int], None]
"""Told of the package, and of bytes of wheels: done, and of all."""


async def make(release: Release, wheels: Path, into: Path, *, cache: Path, tell: Tell) -> None:
    """Make the environment at `into`, which is not there yet, of files that are in `wheels` by their names.

    Interpreters stay in `cache`, on the same disk. Raises EnvironmentFault, or OSError; then what there is in the
    directory of `into` is the caller's to remove.
    """
    files = of_this_machine(release)
    await refuse_without_room(release, files, into)
    packages = [file for file in files if file.package]
    archives = [file for file in files if not file.package]
    lines = {file: _requirement(file) for file in packages}
    making = into.with_name(f".{into.name}-making")
    await aside(making.mkdir, 0o755)
    try:
        if archives:
            archive = wheels / archives[0].name
            python = await unpacked(release.python, archives[0], archive, making=making, cache=cache, tell=tell)
        else:
            python = await interpreter(release.python)
        await _venv(python, into, making)
        await _install(lines, wheels, into, making, tell)
        await aside(claim_name, into, release)
    finally:
        # With uv's cache: its files are in the environment by now, and would stay when that is removed.
        await aside(shutil.rmtree, making, ignore_errors=True)
    await aside(_settle, into)


def _settle(tree: Path) -> None:
    """Bring all of it to the disk, as the rename that makes an engine of it will be. Only of its own file system: with
    all of them, a share that is dead would hold us for ever."""
    handle = os.open(tree, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        if ctypes.CDLL(None, use_errno=True).syncfs(handle):
            code = ctypes.get_errno()
            raise OSError(code, os.strerror(code), str(tree))
    finally:
        os.close(handle)


async def _venv(python: Path, into: Path, cache: Path) -> None:
    words = ["venv", "--no-project", "--relocatable", "--python", str(python), str(into)]
    await call(words, cache=cache, writes=into.parent, limit=_VENV_LIMIT)


async def _install(lines: Mapping[ReleaseFile, str], wheels: Path, into: Path, cache: Path, tell: Tell) -> None:
    total, done = sum(file.size for file in lines), 0
    for batch in batches(lines):
        more = f" and {several(len(batch) - 1, 'more package')}" if len(batch) > 1 else ""
        tell(f"{batch[0].package}{more}", done, total)
        size = sum(file.size for file in batch)
        await _install_some([lines[file] for file in batch], wheels, into, cache, limit=_LIMIT + size / _SLOWEST)
        done += size
        tell(f"{batch[-1].package}", done, total)


def batches(packages: Iterable[ReleaseFile]) -> Iterator[tuple[ReleaseFile, ...]]:
    """The packages in the order of their sizes, the largest first, as many at once as may be."""
    batch, held = list[ReleaseFile](), 0
    for file in sorted(packages, key=lambda file: (-file.size, file.name)):
        if batch and held + file.size > _AT_ONCE:
            yield tuple(batch)
            batch, held = [], 0
        batch.append(file)
        held += file.size
    if batch:
        yield tuple(batch)


async def _install_some(lines: Iterable[str], wheels: Path, into: Path, cache: Path, *, limit: float) -> None:
    with tempfile.NamedTemporaryFile("w", dir=cache, prefix="locked-", suffix=".txt") as listed:
        listed.write("".join(f"{line}\n" for line in lines))
        listed.flush()
        words = [
            *("pip", "install", "--python", str(into / "bin" / "python"), "--no-deps", "--require-hashes"),
            *("--no-index", "--find-links", str(wheels), "--no-build", "--no-python-downloads"),
            *("--requirements", listed.name),
        ]
        await call(words, cache=cache, writes=into.parent, limit=limit)


def _requirement(file: ReleaseFile) -> str:
    """A line that only this very wheel satisfies."""
    try:
        name, version, _, _ = parse_wheel_filename(file.name)
    except InvalidWheelFilename as error:
        raise EnvironmentFault(f"{file.name[:120]!r}: {error}; lock the engine again") from None
    if name != canonicalize_name(file.package) or not is_digest(file.digest):
        raise EnvironmentFault(f"{file.name[:120]!r}: is not the locked wheel of {file.package[:80]!r}; lock it again")
    return f"{name}=={version} --hash={file.digest}"
