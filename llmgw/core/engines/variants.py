"""Which files of an engine's release are for this node? Told from their names and from what the node found out.

A release of llama.cpp has for Linux, by its own naming (versions of backends move from build to build):

    llama-b11057-bin-ubuntu-x64.tar.gz                  the CPU
    llama-b11057-bin-ubuntu-cuda-13.3-x64.tar.gz        a backend at a version
    llama-b11057-bin-ubuntu-vulkan-arm64.tar.gz         a backend without one
    cudart-llama-b11057-bin-ubuntu-cuda-13.3-x64.tar.gz the runtime libraries that the CUDA build needs, apart

A Python engine has a release for each variant, and the node chooses among those.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from llmgw.core.brief import some
from llmgw.core.engines import cuda
from llmgw.core.engines.arches import needed
from llmgw.core.engines.orders import EngineOrder, Release, ReleaseFile, ReleaseRef
from llmgw.core.engines.terms import AUTO, EngineKind
from llmgw.core.errors import NoBuild
from llmgw.core.inventory import Gpu, GpuVendor, Inventory

CPU, CUDA, ROCM, VULKAN = "cpu", "cuda", "rocm", "vulkan"

VENDORS: Mapping[str, GpuVendor] = {CUDA: GpuVendor.NVIDIA, ROCM: GpuVendor.AMD}
"""The backends that run on GPUs of one vendor alone."""

ARCHES: Mapping[str, str] = {"x86_64": "x64", "amd64": "x64", "aarch64": "arm64", "arm64": "arm64", "s390x": "s390x"}
"""By the kernel's word for a machine, the releases' word."""

MUSL = frozenset({"alpine", "postmarketos", "chimera"})
"""By os-release, systems that have no other C library; of others it is found out before an engine is proven."""

_BACKEND = r"(?:(?P<backend>[a-z]+)(?:-(?P<version>[0-9a-z][0-9a-z.]*))?-)?"
_SHOWN = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """What a node installs for an order."""

    variant: str
    """As people read it: `cpu`, `cuda 13.3`."""
    release: Release
    files: tuple[ReleaseFile, ...]
    """All that it downloads, the engine's own archive first."""
    note: str = ""
    """What is not as one would expect it, with the way out."""


def choose(order: EngineOrder, releases: Sequence[Release], inventory: Inventory) -> Choice:
    """Choose the node's files among the releases of an order. Raises NoBuild, in the node's words.

    While NVIDIA's driver is loaded and its GPUs are not known (their tool failed) nothing is chosen for `auto`: a build
    for the CPU would be installed, and would take requests at a fraction of the speed, on a machine full of GPUs.
    """
    ref, note = pick(order, inventory)
    if order.kind is EngineKind.PYTHON:
        release = _of_variant(order, releases, ref.variant)
        return Choice(variant=ref.variant, release=release, files=needed(release.files, inventory.arch), note=note)
    return _archives(order, _of_variant(order, releases, ""), inventory)


def pick(order: EngineOrder, inventory: Inventory) -> tuple[ReleaseRef, str]:
    """Return which release of an order the node needs, before it asks for any, and a note about it. Raises NoBuild."""
    if not order.releases:
        raise NoBuild(f"{_named(order)}: {order.problem or 'its files are not known yet'}")
    if inventory.os_id in MUSL:
        fact = "its C library is musl, engines are built for glibc"
        raise NoBuild(f"{_named(order)} cannot run on {inventory.os}: {fact}; use a system with glibc")
    if order.kind is EngineKind.ARCHIVE:
        return order.releases[0], ""
    by_variant = {_key(ref.variant): ref for ref in order.releases}
    if _key(order.variant) != AUTO:
        if _key(order.variant) not in by_variant:
            raise NoBuild(f"{_named(order)} is locked for {_list(by_variant)}, not for {order.variant}")
        _suits(order, _key(order.variant).partition(" ")[0], inventory)
        return by_variant[_key(order.variant)], ""
    wanted = _backend_of(order, inventory)
    for backend in dict.fromkeys((wanted, CPU)):
        if backend in by_variant:
            note = "" if backend == wanted else f"it is locked for {_list(by_variant)}, not for {wanted}: takes {CPU}"
            return by_variant[backend], note
    raise NoBuild(f"{_named(order)} is locked for {_list(by_variant)}; this node needs {wanted}")


def devices(variant: str, inventory: Inventory) -> tuple[Gpu, ...]:
    """Return the GPUs that an engine of this variant must find; none for the CPU.

    Of GPUs that were divided a process is given one part, so any of them stands for all.
    """
    backend = variant.partition(" ")[0]
    if backend not in (CUDA, ROCM):
        return ()
    whole = _gpus(inventory, VENDORS[backend])
    return tuple(gpu for gpu in whole if not gpu.parent) or whole[:1]


# --- archives ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class _Build:
    """One build of a release."""

    backend: str
    version: str
    file: ReleaseFile
    runtime: ReleaseFile | None = None

    @property
    def variant(self) -> str:
        return f"{self.backend} {self.version}".strip()

    @property
    def files(self) -> tuple[ReleaseFile, ...]:
        return (self.file,) if self.runtime is None else (self.file, self.runtime)

    @property
    def order(self) -> tuple[tuple[int, ...], str]:
        """Sorts builds of a backend, the newest last."""
        return cuda.numbers(self.version), self.version


def _archives(order: EngineOrder, release: Release, inventory: Inventory) -> Choice:
    builds = _builds(release, _arch(order, release, inventory))
    wanted = _key(order.variant)
    if wanted != AUTO:
        return _chosen(release, _asked_for(order, wanted, builds, inventory))
    if _backend_of(order, inventory) == CUDA:
        build, why_not = _cuda(builds, _gpus(inventory, GpuVendor.NVIDIA))
        if build is not None:
            return _chosen(release, build)
        return _chosen(release, _cpu(order, builds), f"takes {CPU}: {why_not}")
    why = inventory.gpu_problem
    if _gpus(inventory, GpuVendor.AMD):
        why = f"AMD GPUs are used when asked for; name variant: {ROCM} or {VULKAN}"
    return _chosen(release, _cpu(order, builds), f"takes {CPU}: {why}" if why else "")


def _chosen(release: Release, build: _Build, note: str = "") -> Choice:
    return Choice(variant=build.variant, release=release, files=build.files, note=note)


def _arch(order: EngineOrder, release: Release, inventory: Inventory) -> str:
    there = {match["arch"] for match in _matches(release)}
    arch = ARCHES.get(inventory.arch)
    if not there:
        names = some([file.name for file in release.files], _SHOWN) or "none"
        raise NoBuild(f"{_named(order)} has no build for Linux in an archive that is known here; its files: {names}")
    if arch is None or arch not in there:
        raise NoBuild(f"{_named(order)} has no build for {inventory.arch}; it has {_list(there)}")
    return arch


def _builds(release: Release, arch: str) -> list[_Build]:
    """Every build for the machine that is whole, the newest of a backend first."""
    by_name = {file.name: file for file in release.files}
    found = []
    for match in _matches(release):
        backend, version = match["backend"] or CPU, match["version"] or ""
        if match["arch"] != arch:
            continue
        runtime = by_name.get(f"cudart-{match[0]}")
        if backend != CUDA or runtime is not None:
            found.append(_Build(backend=backend, version=version, file=by_name[match[0]], runtime=runtime))
    return sorted(found, key=lambda build: build.order, reverse=True)


def _matches(release: Release) -> list[re.Match[str]]:
    name = re.compile(rf"llama-{re.escape(release.version)}-bin-ubuntu-{_BACKEND}(?P<arch>x64|arm64|s390x)\.tar\.gz")
    return [match for file in release.files if (match := name.fullmatch(file.name))]


def _cuda(builds: Iterable[_Build], gpus: Sequence[Gpu]) -> tuple[_Build | None, str]:
    """The newest CUDA build that runs on all of the GPUs, or why there is none."""
    ours = [build for build in builds if build.backend == CUDA]
    if not ours:
        return None, "the release has no CUDA build with its runtime archive for this machine"
    reasons = [cuda.hindrance(build.version, gpus) for build in ours]
    for build, reason in zip(ours, reasons, strict=True):
        if not reason:
            return build, ""
    return None, reasons[-1]  # the oldest is what it takes least for


def _cpu(order: EngineOrder, builds: Iterable[_Build]) -> _Build:
    for build in builds:
        if build.backend == CPU:
            return build
    raise NoBuild(f"{_named(order)} has no build for the CPU of this machine; it has {_variants(builds)}")


def _asked_for(order: EngineOrder, wanted: str, builds: Sequence[_Build], inventory: Inventory) -> _Build:
    backend, _, version = wanted.partition(" ")
    _suits(order, backend, inventory)
    if backend == CUDA and not version:
        build, why_not = _cuda(builds, _gpus(inventory, GpuVendor.NVIDIA))
        if build is None:
            raise NoBuild(f"{_named(order)}, variant {wanted}: {why_not}")
        return build
    for build in builds:
        if build.backend == backend and version in ("", build.version):
            return build
    raise NoBuild(f"{_named(order)} has no variant {wanted} for this machine; it has {_variants(builds)}")


# --- the node ----------------------------------------------------------------------------------------------------


def _backend_of(order: EngineOrder, inventory: Inventory) -> str:
    """The backend for `auto`. AMD's counts for Python engines, which have no other use for its GPUs."""
    if _gpus(inventory, GpuVendor.NVIDIA):
        return CUDA
    if inventory.gpu_problem and inventory.nvidia_driver:
        raise NoBuild(
            f"whether this node has GPUs is not known: {inventory.gpu_problem}; it waits until that is, "
            f"or name variant: {CPU}"
        )
    if order.kind is EngineKind.PYTHON and _gpus(inventory, GpuVendor.AMD):
        return ROCM
    return CPU


def _suits(order: EngineOrder, backend: str, inventory: Inventory) -> None:
    """Refuse a variant whose GPUs are not here."""
    vendor = VENDORS.get(backend)
    if vendor is None or _gpus(inventory, vendor):
        return
    found = inventory.gpu_problem or "none is here"
    raise NoBuild(f"{_named(order)}, variant {backend}, needs a GPU with {_DRIVERS[vendor]}: {found}")


_DRIVERS = {GpuVendor.NVIDIA: "the NVIDIA driver", GpuVendor.AMD: "the AMD driver"}


def _gpus(inventory: Inventory, vendor: GpuVendor) -> tuple[Gpu, ...]:
    """The GPUs, or parts of GPUs, that can run something."""
    return tuple(gpu for gpu in inventory.gpus if gpu.vendor is vendor and not gpu.divided)


# --- words -------------------------------------------------------------------------------------------------------


def _of_variant(order: EngineOrder, releases: Iterable[Release], variant: str) -> Release:
    for release in releases:
        if _key(release.variant) == _key(variant):
            return release
    raise NoBuild(f"{_named(order)}: its files{f' for {variant}' if variant else ''} are not here yet")


def _key(variant: str) -> str:
    """`cuda-12.8`, `CUDA 12.8` → `cuda 12.8`."""
    return variant.strip().lower().replace("-", " ", 1)


def _named(order: EngineOrder) -> str:
    return f"{order.engine} {order.version}"


def _variants(builds: Iterable[_Build]) -> str:
    return _list({build.variant for build in builds})


def _list(names: Iterable[str]) -> str:
    return some(sorted(names), _SHOWN) or "none"
