"""Who does the work of each step of an install? The real parts; each is loaded when it is needed first.

What they raise in their own words becomes a StepFailed here, so that the installer knows one kind of failure.
"""

import contextlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from llmgw.agent.engines.steps import Moved, Moving, Proof, Say, StepFailed
from llmgw.agent.environment import engine_environment
from llmgw.config.tls import TlsFiles
from llmgw.core.engines.installing import Made, Target
from llmgw.core.engines.orders import EngineOrder, Release, ReleaseFile
from llmgw.core.engines.terms import KINDS, EngineKind
from llmgw.core.inventory import Inventory
from llmgw.host.threads import aside
from llmgw.wire.channel import Channel

if TYPE_CHECKING:
    from llmgw.agent.transfer.limit import Limit


class RealParts:
    """The parts of an agent.

    `dial` makes a channel to a control plane, `tls` is what other nodes are shown, `rate` the bytes per second that all
    downloads may take; `inventory` describes the node, `gpus_free` says that no shard may be on a GPU.
    """

    def __init__(
        self,
        dial: Callable[[], Channel],
        tls: TlsFiles,
        *,
        rate: int | None,
        packages: bool,
        inventory: Callable[[], Inventory],
        gpus_free: Callable[[], bool],
    ) -> None:
        self._dial, self._tls, self._rate, self._packages = dial, tls, rate, packages
        self._inventory, self._gpus_free = inventory, gpus_free
        self._limit: Limit | None = None

    async def download(
        self, order: EngineOrder, release: Release, file: ReleaseFile, target: Path, moved: Moved, verifying: Say
    ) -> None:
        """By the one downloader, from the mirror, the control plane, other nodes, or its own address."""
        from llmgw.agent.transfer.download import CannotDownload, Limit, NoRoom, download
        from llmgw.agent.transfer.sources import sources

        if self._limit is None and self._rate is not None:
            self._limit = Limit(self._rate)
        try:
            await download(
                file,
                sources(order, release, file, dial=self._dial, tls=self._tls),
                target,
                tell=lambda at: moved(at.done, at.total, at.rate),
                verifying=lambda: verifying(file.name),
                limit=self._limit,
            )
        except CannotDownload as error:
            raise StepFailed(str(error), full=isinstance(error, NoRoom), retry_after=error.retry_after) from None

    async def unpack(self, archive: Path, into: Path, moved: Moved) -> None:
        """By our own extractor, in a process without rights."""
        from llmgw.agent.engines.unpack import BadArchive, unpack

        try:
            await unpack(archive, into, tell=lambda done, total: moved(done, total, None))
        except BadArchive as error:
            raise StepFailed(str(error)) from None

    async def environment(self, release: Release, wheels: Path, into: Path, cache: Path, moved: Moving) -> None:
        """By uv, without a network."""
        from llmgw.agent.engines.python.environment import make

        with _python():
            await make(release, wheels, into, cache=cache, tell=moved)

    async def libraries(self, target: Target, tree: Path, say: Say) -> str:
        """By `ldd`, and the node's package manager; packages of Python engines bring their own."""
        if target.kind is EngineKind.PYTHON:
            return ""
        from llmgw.agent.engines.layout import environment_of
        from llmgw.agent.engines.libraries import ensure

        inventory = self._inventory()
        with _archive():
            return await ensure(
                target.engine,
                tree,
                target.variant,
                await aside(environment_of, target.engine, tree),
                allowed=self._packages,
                os_name=f"{inventory.os} {inventory.os_version}".strip(),
                tell=say,
            )

    async def prove(self, target: Target, tree: Path, say: Say) -> Proof:
        """By running it."""
        if target.kind is EngineKind.PYTHON:
            return await self._prove_python(target, tree, say)
        from llmgw.agent.engines.prove import prove

        with _archive():
            proven = await prove(
                target.engine,
                tree,
                variant=target.variant,
                inventory=self._inventory(),
                gpus_free=self._gpus_free(),
                tell=say,
            )
        return Proof(program=proven.program, version=proven.version, flags=proven.flags, note=proven.note)

    async def _prove_python(self, target: Target, tree: Path, say: Say) -> Proof:
        from llmgw.agent.engines.python.proof import program, prove

        about = {"version": target.version, "variant": target.variant}
        with _python():
            version = await prove(target.engine, tree, **about, inventory=self._inventory(), tell=say)
        return Proof(program=program(target.engine, tree), version=version, flags=frozenset())

    async def recheck(self, made: Made, tree: Path) -> None:
        """By its links, its libraries and its version."""
        if KINDS[made.engine] is EngineKind.PYTHON:
            from llmgw.agent.engines.python.proof import recheck as recheck_python

            with _python():
                await recheck_python(made.engine, tree, version=made.version)
            return
        from llmgw.agent.engines.prove import recheck

        with _archive():
            await recheck(made.engine, tree, made.variant)

    def environment_of(self, made: Made, tree: Path) -> Mapping[str, str]:
        """Where libraries lie apart from the program; empty where the files are not whole."""
        if KINDS[made.engine] is EngineKind.PYTHON:
            return {}
        from llmgw.agent.engines import elf
        from llmgw.agent.engines.layout import NoProgram, environment_of

        usual = engine_environment()
        try:
            whole = environment_of(made.engine, tree)
        except (NoProgram, elf.TooLarge, FileNotFoundError):
            return {}
        return {name: value for name, value in whole.items() if usual.get(name) != value}


@contextlib.contextmanager
def _archive() -> Iterator[None]:
    """Say what is wrong with an unpacked engine as a failed step."""
    from llmgw.agent.engines import elf
    from llmgw.agent.engines.layout import NoProgram
    from llmgw.agent.engines.libraries import CannotProvide
    from llmgw.agent.engines.prove import NotProven

    try:
        yield
    except (CannotProvide, NotProven, NoProgram, elf.TooLarge) as error:
        raise StepFailed(str(error)) from None
    except (FileNotFoundError, NotADirectoryError) as error:
        raise StepFailed(f"{error.filename} is not there any more") from None


@contextlib.contextmanager
def _python() -> Iterator[None]:
    """The same of an environment."""
    from llmgw.agent.engines.python.fault import EnvironmentFault

    try:
        yield
    except EnvironmentFault as error:
        raise StepFailed(str(error), full=error.full) from None
