"""A directory to unpack into, and things beside it that must stay as they are."""

import os
from collections.abc import Callable
from pathlib import Path

from llmgw.agent.engines.unpack.bad import BadArchive
from llmgw.agent.engines.unpack.extract import extract
from llmgw.agent.engines.unpack.limits import LIMITS, Limits


class Place:
    """`into` within a directory that has a file, a directory and a link of others."""

    def __init__(self, root: Path) -> None:
        self.around = root / "around"
        self.into = self.around / "into"
        (self.around / "victim").mkdir(parents=True)
        (self.around / "victim" / "kept").write_text("kept")
        (self.around / "v").write_text("theirs")
        (self.around / "out").symlink_to("victim")
        self.archive = root / "archive.tar.gz"
        self._before = self._seen()

    def check(self) -> None:
        """Nothing but `into` was touched."""
        assert self._seen() == self._before

    def extract(self, packed: bytes, limits: Limits = LIMITS, *, case_pairs: bool = False) -> None:
        """Unpack in this very process."""
        self.archive.write_bytes(packed)
        self.into.mkdir()
        archive, into = os.open(self.archive, os.O_RDONLY), os.open(self.into, os.O_RDONLY)
        try:
            extract(archive, into, tell=lambda *_: None, limits=limits, case_pairs=case_pairs)
        finally:
            os.close(archive)
            os.close(into)

    def refused(self, packed: bytes, limits: Limits = LIMITS) -> BadArchive:
        """Unpack what must be refused, and return why."""
        return _raised(lambda: self.extract(packed, limits))

    def made(self) -> dict[str, str]:
        """What is in `into`: a file's mode and content, `-> target` of a link, a directory's mode."""
        return {str(path.relative_to(self.into)): _said(path) for path in sorted(self.into.rglob("*"))}

    def files(self) -> list[str]:
        """The names of the files in `into`."""
        return [name for name in self.made() if (self.into / name).is_file()]

    def _seen(self) -> list[tuple[str, str, int, int, int]]:
        return [
            (str(path), _said(path), status.st_uid, status.st_mtime_ns, status.st_nlink)
            for path in sorted(self.around.rglob("*"))
            if path != self.into and self.into not in path.parents
            for status in (path.lstat(),)
        ]


def _raised(action: Callable[[], None]) -> BadArchive:
    try:
        action()
    except BadArchive as bad:
        return bad
    raise AssertionError("it was unpacked")


def _said(path: Path) -> str:
    if path.is_symlink():
        return f"-> {os.readlink(path)}"
    mode = f"{path.stat().st_mode & 0o7777:o}"
    return f"{mode} {path.read_bytes()!r}" if path.is_file() else mode
