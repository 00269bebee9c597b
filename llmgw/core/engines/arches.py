"""Which files of a Python engine does a node of this processor need? A lock for several has the wheels of all."""

from collections.abc import Sequence

from llmgw.core.engines.orders import ReleaseFile

ARCHES = ("x86_64", "aarch64")
"""Processors that Python engines are locked for, as the kernel and the names of wheels call them."""


def needed(files: Sequence[ReleaseFile], arch: str) -> tuple[ReleaseFile, ...]:
    """Those that a node of this processor downloads and installs: its wheels, and the interpreter if there is one."""
    return tuple(file for file in files if not _names(file) or arch in _names(file))


def locked_for(files: Sequence[ReleaseFile]) -> tuple[str, ...]:
    """The processors that the wheels are for; empty where they run on any."""
    named = {arch for file in files if file.package for arch in _names(file)}
    return tuple(arch for arch in ARCHES if arch in named)


def _names(file: ReleaseFile) -> tuple[str, ...]:
    """The processors in a file's name; of a wheel, in its last part."""
    platform = file.name.rpartition("-")[2] if file.package else file.name
    return tuple(arch for arch in ARCHES if arch in platform)
