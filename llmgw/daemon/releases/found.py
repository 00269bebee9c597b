"""What is made of files that were found: the digests that server.yaml pins, or why there is no release."""

import logging
from collections.abc import Sequence
from dataclasses import replace

from llmgw.core.engines.orders import Pin, Release, ReleaseFile

log = logging.getLogger(__name__)


class NoRelease(Exception):
    """The files of an engine could not be had; the text is one line for people."""

    def __init__(self, text: str, *, seconds: float | None = None) -> None:
        super().__init__(text)
        self.seconds = seconds
        """Until the source wants to be asked again, where it said so."""


def pinned(release: Release, pins: Sequence[Pin]) -> Release:
    """The release with the digests that server.yaml pins, or NoRelease where its source says another one."""
    by_name = {pin.name: pin.digest for pin in pins}
    if unknown := sorted(by_name.keys() - {file.name for file in release.files}):
        log.warning("%s %s has no file %s, which server.yaml pins", release.engine, release.version, unknown[0])
    return replace(release, files=tuple(_pinned(file, by_name.get(file.name, "")) for file in release.files))


def _pinned(file: ReleaseFile, pin: str) -> ReleaseFile:
    if not pin or pin == file.digest:
        return file
    if file.digest:
        fact = f"{file.name}: server.yaml pins {pin}, its source says {file.digest}"
        raise NoRelease(f"{fact}; find out which is right before anything runs it")
    return replace(file, digest=pin)
