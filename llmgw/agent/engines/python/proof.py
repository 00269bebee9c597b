"""Does an environment's engine run, and does it find the devices that it is for?

The version is the engine's own word. The library that drives the accelerator is imported and asked: a build for CUDA
that finds no GPU would fail minutes later, when it loads a model.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from packaging.version import InvalidVersion, Version

from llmgw.agent.engines import sglang, vllm
from llmgw.agent.engines.apart import killed_by, run_apart
from llmgw.agent.engines.python.fault import EnvironmentFault
from llmgw.agent.engines.python.intact import intact
from llmgw.agent.environment import engine_environment
from llmgw.agent.run import Ran
from llmgw.core.engines.variants import CUDA, ROCM, devices
from llmgw.core.inventory import Inventory
from llmgw.core.units import several
from llmgw.host.threads import aside

LIMIT = 300.0
"""Seconds for a first start: a gigabyte of libraries is read from a cold disk."""

_ASK = """\
import json, torch
print("\\n" + json.dumps({
    "torch": torch.__version__,
    "cuda": torch.version.cuda,
    "rocm": torch.version.hip,
    "devices": torch.cuda.device_count() if torch.cuda.is_available() else 0,
}))
"""
_QUIET: Mapping[str, str] = {
    "PYTHONNOUSERSITE": "1",
    "HF_HUB_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_LOGGING_LEVEL": "ERROR",
}
_SIGNALS: Mapping[int, str] = {
    4: "ended by an illegal instruction: it is built for another processor",
    9: "was killed; is there memory enough?",
    11: "ended by a segmentation fault",
}


@dataclass(frozen=True, slots=True)
class _Torch:
    """What the library said of itself."""

    version: str
    built_for: Mapping[str, str]
    devices: int


def program(engine: str, tree: Path) -> Path:
    """What starts the engine; for SGLang it takes `-m sglang.launch_server`."""
    return tree / "bin" / ("vllm" if engine == vllm.NAME else "python")


async def prove(
    engine: str, tree: Path, *, version: str, variant: str, inventory: Inventory, tell: Callable[[str], None]
) -> str:
    """Return the version that the engine says, as `version` writes it. Raises EnvironmentFault.

    `variant` is what the environment was locked for: `cpu`, `cuda`, `rocm`.
    """
    tell("its version")
    await _says(engine, tree, version)
    tell("import torch")
    _judge(await _torch(engine, tree), variant, inventory)
    return version


async def recheck(engine: str, tree: Path, *, version: str) -> None:
    """See that what was proven is whole and runs. Raises EnvironmentFault.

    Torch is not imported again: that costs seconds and hundreds of megabytes, and memory of a GPU that may be full.
    """
    await aside(intact, tree)
    await _says(engine, tree, version)


async def _says(engine: str, tree: Path, version: str) -> None:
    said = await _version(engine, tree)
    if not _same(said, version):
        raise EnvironmentFault(f"{engine}: says that it is {said}, not {version}; lock it again")


async def _version(engine: str, tree: Path) -> str:
    if engine == vllm.NAME:
        ran = await _run([str(program(engine, tree)), "--version"], tree)
        found = vllm.version(ran.out + "\n" + ran.err) if ran.ok else None
        shown = "vllm --version"
    else:
        ran = await _run([str(tree / "bin" / "python"), "-I", "-c", sglang.ASK], tree)
        found, shown = sglang.version(ran.out) if ran.ok else None, "python -m sglang.launch_server"
    if found is None:
        raise EnvironmentFault(f"{engine}: {shown}: {_how(ran)}")
    return found


def _same(said: str, version: str) -> bool:
    try:
        return Version(said).public == Version(version).public
    except InvalidVersion:
        return said == version


async def _torch(engine: str, tree: Path) -> _Torch:
    ran = await _run([str(tree / "bin" / "python"), "-I", "-c", _ASK], tree)
    try:
        said = json.loads(ran.out.strip().rpartition("\n")[2]) if ran.ok else None
        if isinstance(said, dict):
            built_for = {backend: str(said[backend] or "") for backend in (CUDA, ROCM)}
            return _Torch(str(said["torch"])[:80], built_for, int(said["devices"]))
    except (ValueError, LookupError, TypeError):
        pass  # told below, with what it said
    raise EnvironmentFault(f"{engine}: import torch: {_how(ran)}")


def _judge(torch: _Torch, variant: str, inventory: Inventory) -> None:
    backend = variant.partition(" ")[0]
    if backend not in (CUDA, ROCM):
        return
    if not torch.built_for[backend]:
        raise EnvironmentFault(
            f"torch {torch.version} is a build without {backend}; lock the engine again for {variant}"
        )
    expected = 0 if inventory.recorded else len(devices(variant, inventory))
    if torch.devices < expected:
        driver = next((gpu.driver for gpu in devices(variant, inventory)), "")
        fact = f"finds {torch.devices} of {several(expected, 'GPU')} of this node"
        built = f"it is built for {backend} {torch.built_for[backend]}"
        way_out = f"is the driver {driver} too old for that?" if driver else "is the driver too old for that?"
        raise EnvironmentFault(f"torch {torch.version} {fact}; {built}, {way_out}")


async def _run(argv: Sequence[str], tree: Path) -> Ran:
    environment = {**engine_environment(), **_QUIET}
    return await run_apart(argv, limit=LIMIT, environment=environment, directory=tree)


def _how(ran: Ran) -> str:
    """How it ended, with its last line: Python tells the cause there."""
    if ran.problem:
        return ran.problem
    if signal := killed_by(ran):
        return _SIGNALS.get(signal, f"ended by signal {signal}")
    lines = (ran.err.strip() or ran.out.strip()).splitlines()
    shown = " ".join(lines[-1].split())[:300].rstrip(".") if lines else "said nothing"
    return shown if ran.ok else f"exit status {ran.status}: {shown}"
