"""Does an unpacked engine run here? It says its version, finds its GPUs, loads a small model and makes a token with it.

A program can print its version and die of an illegal instruction as soon as it computes: only loading proves it.
"""

import asyncio
import json
import shutil
import signal
import socket
import tempfile
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from llmgw.agent.engines import elf, llamacpp
from llmgw.agent.engines.apart import Apart, apart, killed_by, run_apart
from llmgw.agent.engines.ask import get, post
from llmgw.agent.engines.layout import environment_of, program_of
from llmgw.agent.engines.libraries import missing
from llmgw.agent.run import Ran
from llmgw.core.brief import some
from llmgw.core.engines import variants
from llmgw.core.inventory import Gpu, GpuVendor, Inventory
from llmgw.core.local_shard import Process
from llmgw.host.threads import aside

MODEL = Path(__file__).with_name("proof.gguf")
"""A small model of random weights; tools/proof_model.py makes it."""

ASK_LIMIT = 30.0
"""Seconds for `--version`, `--help`: a program on a slow disk takes its time."""
DEVICES_LIMIT = 120.0
"""Seconds for `--list-devices`: the first program after a start of the machine waits for the driver."""
LOAD_LIMIT = 60.0
"""Seconds until the small model is loaded and has answered; it takes well under one."""
GPU_LOAD_LIMIT = 600.0
"""The same on a GPU, for whose kind the driver may have to translate the whole program first."""

_HOST = "127.0.0.1"
_TRIES = 3
"""Ports that are tried: each was free a moment before."""
_LOOK, _HEALTH = 0.05, 1.0
"""Seconds between two questions for its health, and for an answer."""
_DYING = 1.0
"""Seconds after which a program is gone whose connection broke."""
_LINES = 3
_BODY = json.dumps({"prompt": "The quick brown fox", "max_tokens": 2}).encode()


class NotProven(Exception):
    """The engine does not run here, or is not whole any more; the text is one line, in the node's words."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Proven:
    """An engine that was seen to run."""

    program: Path
    version: str
    """As it says itself."""
    flags: frozenset[str]
    note: str = ""
    """What could not be seen."""


async def prove(
    engine: str,
    tree: Path,
    *,
    variant: str,
    inventory: Inventory,
    gpus_free: bool,
    tell: Callable[[str], None],
    load_limit: float = LOAD_LIMIT,
) -> Proven:
    """Run the engine of `tree` in every way that a shard will. `gpus_free`: nothing of ours runs on the GPUs.

    Raises NotProven, OSError, layout.NoProgram, elf.TooLarge. Nothing of it runs afterwards.
    """
    await _links(tree)
    program, environment = await _where(engine, tree)
    scratch = Path(await aside(tempfile.mkdtemp, prefix=".proof-", dir=tree.parent))
    try:
        trial = _Trial(program, environment, scratch, inventory)
        tell("its version")
        version = await trial.version()
        flags = await trial.flags()
        tell("its devices")
        note = await trial.devices(variant)
        tell("a small model")
        await trial.load(flags, None, load_limit)
        if not note and variants.devices(variant, inventory):
            note = await _on_gpu(trial, flags, variant, gpus_free=gpus_free, tell=tell)
    finally:
        await asyncio.shield(aside(shutil.rmtree, scratch, ignore_errors=True))
    return Proven(program=program, version=version, flags=flags, note=note)


async def recheck(engine: str, tree: Path, variant: str) -> None:
    """See that links lead somewhere, libraries are there and the program starts.

    Raises NotProven, libraries.CannotProvide, OSError, layout.NoProgram, elf.TooLarge.
    """
    await _links(tree)
    program, environment = await _where(engine, tree)
    gone = [one for one in await missing(engine, tree, variant, environment) if not one.optional]
    if gone:
        names = some([one.name for one in gone], 4)
        raise NotProven(f"{names} is missing, which {some(sorted({one.by for one in gone}), 2)} needs")
    await _Trial(program, environment, program.parent, None).version()


async def _links(tree: Path) -> None:
    if broken := await aside(elf.broken_links, tree):
        raise NotProven(f"{len(broken)} of its links lead nowhere: {some(broken, 2)}")


async def _where(engine: str, tree: Path) -> tuple[Path, dict[str, str]]:
    return await aside(program_of, engine, tree), await aside(environment_of, engine, tree)


async def _on_gpu(
    trial: "_Trial", flags: frozenset[str], variant: str, *, gpus_free: bool, tell: Callable[[str], None]
) -> str:
    """Load the model on one GPU that nobody uses; a note where there is none."""
    gpu = trial.free_gpu(variant) if gpus_free else None
    if gpu is None:
        return "not run on a GPU: none is free"
    tell("a small model on a GPU")
    await trial.load(flags, gpu, GPU_LOAD_LIMIT)
    return ""


class _Trial:
    """One program that is tried. `inventory` is needed for GPUs alone."""

    def __init__(
        self, program: Path, environment: Mapping[str, str], scratch: Path, inventory: Inventory | None
    ) -> None:
        self._program, self._environment, self._scratch = program, environment, scratch
        self._inventory = inventory

    async def version(self) -> str:
        """What `--version` says."""
        said = await self._said("--version", ASK_LIMIT)
        version = llamacpp.version(f"{said.out}\n{said.err}")
        if version is None:
            raise NotProven(f"{self._program.name} --version names no version: {said.words()}")
        return version

    async def flags(self) -> frozenset[str]:
        """What `--help` lists, all that is needed among it."""
        said = await self._said("--help", ASK_LIMIT)
        flags = llamacpp.flags(f"{said.out}\n{said.err}")
        if lacking := llamacpp.lacking(flags):
            raise NotProven(f"{self._program.name}: {lacking}")
        return flags

    async def devices(self, variant: str) -> str:
        """See that `--list-devices` names every GPU that the variant is for; a note where that cannot be asked."""
        backend = variant.partition(" ")[0]
        if self._inventory is None or backend == variants.CPU:
            return ""
        if self._inventory.recorded:
            return "its GPUs are recorded ones and were not looked for"
        said = await self._said("--list-devices", DEVICES_LIMIT)
        found = llamacpp.devices(said.out) or llamacpp.devices(said.err)
        expected = variants.devices(variant, self._inventory)
        least = max(1, len(expected))
        if len(found) < least:
            raise NotProven(
                f"{self._program.name} --list-devices names {len(found)} of {least} devices for {backend}"
                f"{_lost(expected, found)}; {_remedy(backend)}"
            )
        return ""

    def free_gpu(self, variant: str) -> Gpu | None:
        """A GPU of the variant that no foreign process holds memory of."""
        if self._inventory is None:
            return None
        held = {holder.gpu for holder in self._inventory.gpu_holders}
        parts = (gpu for gpu in variants.devices(variant, self._inventory) if gpu.uuid)
        return next((gpu for gpu in parts if not held.intersection((gpu.uuid, gpu.parent))), None)

    async def load(self, flags: frozenset[str], gpu: Gpu | None, limit: float) -> None:
        """Load the small model, wholly on the GPU where one is given, and have two tokens of it within the limit."""
        environment = {**self._environment, **_visible(gpu)}
        layers = 99 if gpu else 0
        for left in reversed(range(_TRIES)):
            port = _free_port()
            argv = llamacpp.proof(str(self._program), str(MODEL), (_HOST, port), flags, layers)
            async with apart(argv, limit=limit + 10, environment=environment, directory=self._scratch) as engine:
                wrong = await _wrong(engine, Process(pid=0, host=_HOST, port=port), limit)
                if wrong is None:
                    return
                ran = await engine.finish()
            if left and "couldn't bind" in ran.err + ran.out:
                continue
            where = f"on {gpu.name or 'a GPU'}" if gpu else "on the CPU"
            raise NotProven(self._how(f"did not serve a small model {where}", wrong, ran))

    async def _said(self, flag: str, limit: float) -> Ran:
        argv = [str(self._program), flag]
        ran = await run_apart(argv, limit=limit, environment=self._environment, directory=self._scratch)
        if not ran.ok:
            raise NotProven(self._how(f"{flag} failed", ran.problem, ran))
        return ran

    def _how(self, what: str, wrong: str, ran: Ran) -> str:
        """In one line: what was `wrong` with the program while it ran, or else how it ended; and its last words."""
        number = killed_by(ran)
        if wrong:
            fact = wrong
        elif number == signal.SIGILL:
            fact = f"died by an illegal instruction (SIGILL): {self._cpu()}"
        else:
            fact = f"died by {_signal(number)}" if number else f"ended with exit status {ran.status}"
        last = f"; it said last: {said}" if (said := _last(ran)) else ""
        return f"{self._program.name} {what}: it {fact}{last}"

    def _cpu(self) -> str:
        cpu = self._inventory.cpu if self._inventory else None
        named = f" ({cpu.model}: {' '.join(cpu.features) or 'no vector extensions'})" if cpu and cpu.model else ""
        fix = "give the VM the host's CPU type, or take another build"
        return f"the CPU{named} lacks what this build needs, or a VM hides it; {fix}"


async def _wrong(engine: Apart, process: Process, limit: float) -> str | None:
    """Wait until the model is loaded, then ask for tokens. None when they came, empty when the program ended instead,
    words when it is there and does not do it."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + limit
    while (await get(process, llamacpp.HEALTH, timeout=_HEALTH)).status != 200:
        await asyncio.wait([engine.ended], timeout=_LOOK)
        if engine.ended.done():
            return ""
        if loop.time() >= deadline:
            return f"had not loaded it after {limit:g}s"
    answer = await post(process, "/v1/completions", _BODY, timeout=max(1.0, deadline - loop.time()))
    if answer.status == 200 and not engine.ended.done():
        return None
    await asyncio.wait([engine.ended], timeout=_DYING)
    if engine.ended.done():
        return ""  # also when another program has taken its port, and answered in its place
    return f"answered the request for a token with status {answer.status}" if answer.status else "answered no request"


def _visible(gpu: Gpu | None) -> dict[str, str]:
    """What shows the program one GPU alone: on the others a shard may run."""
    if gpu is None:
        return {}
    if gpu.vendor is GpuVendor.NVIDIA:
        return {"CUDA_VISIBLE_DEVICES": gpu.uuid}
    return {"ROCR_VISIBLE_DEVICES": gpu.uuid}


def _lost(expected: tuple[Gpu, ...], found: tuple[str, ...]) -> str:
    """`; it misses 2 × NVIDIA A100`: by name, since its own numbers are not those of the driver's tool."""
    lost = Counter(gpu.name or gpu.uuid for gpu in expected)
    for name in list(lost):
        lost[name] -= sum(name in device for device in found)
    missing = [f"{count} × {name}" for name, count in sorted(lost.items()) if count > 0]
    return f"; it misses {some(missing, 4)}" if missing else ""


def _remedy(backend: str) -> str:
    match backend:
        case variants.CUDA:
            return "does the driver match its libraries, and may the agent use /dev/nvidia*?"
        case variants.ROCM:
            return "is ROCm installed, and may the agent use /dev/kfd?"
        case variants.VULKAN:
            return "is a Vulkan driver installed (mesa-vulkan-drivers, or NVIDIA's)?"
        case _:
            return "is its driver installed?"


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind((_HOST, 0))
        port: int = probe.getsockname()[1]
        return port


def _last(ran: Ran) -> str:
    lines = [" ".join(line.split()) for line in (ran.err.strip() or ran.out.strip()).splitlines()]
    return " / ".join(list(filter(None, lines))[-_LINES:])[:300].rstrip(".")


def _signal(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
