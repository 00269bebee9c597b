"""The engine of a local cluster, packed as llama.cpp packs its releases, so that nodes install it as they would that.

MIRROR/llama.cpp/b11549/llama-b11549-bin-ubuntu-x64.tar.gz     llama-b11549/llama-server and what it needs
MIRROR/llama.cpp/b11549/release.json                           its name, size and digest
"""

import importlib.metadata
import io
import platform
import shlex
import sys
import tarfile
from pathlib import Path

from isal import igzip

from llmgw.core.engines import releases
from llmgw.core.engines.orders import Release, ReleaseFile
from llmgw.core.engines.terms import EngineKind
from llmgw.core.units import Bytes
from llmgw.host.files import digest

ENGINE = "llama.cpp"
_PACKAGE = "xllamacpp"
_ARCHITECTURES = {"x86_64": "x64", "aarch64": "arm64"}
"""As llama.cpp names them in its archives."""


def version() -> str:
    """The build of llama.cpp that is in the package: `b11549`."""
    return f"b{importlib.metadata.version(_PACKAGE).rpartition('.')[2]}"


def pack(mirror: Path) -> Release:
    """Write the archive and its release into `mirror`, and return the release. Takes a second."""
    build = version()
    place = mirror / ENGINE / build
    place.mkdir(parents=True)
    machine = platform.machine()
    file = place / f"llama-{build}-bin-ubuntu-{_ARCHITECTURES.get(machine, machine)}.tar.gz"
    packed = igzip.open(file, "wb", compresslevel=1)  # type: ignore[no-untyped-call] # its stub has no types
    with packed, tarfile.open(fileobj=packed, mode="w|") as archive:
        _add(archive, f"llama-{build}")
    found = ReleaseFile(name=file.name, size=Bytes(file.stat().st_size), digest=digest(file))
    release = Release(engine=ENGINE, version=build, kind=EngineKind.ARCHIVE, files=(found,))
    (place / "release.json").write_text(releases.written(release))
    return release


def _add(archive: tarfile.TarFile, top: str) -> None:
    """`llama-server` runs the launcher of this program on the library that lies beside it."""
    code = "import os, sys; sys.path.insert(0, os.environ['LLAMA_TREE']); from llmgw.cli.llamacpp import main; main()"
    words = f'exec {shlex.quote(sys.executable)} -P -c {shlex.quote(code)} "$@"'
    program = f'#!/bin/sh\nLLAMA_TREE=$(dirname "$(readlink -f "$0")")\nexport LLAMA_TREE\n{words}\n'.encode()
    about = tarfile.TarInfo(f"{top}/llama-server")
    about.size, about.mode = len(program), 0o755
    archive.addfile(about, io.BytesIO(program))
    package = importlib.metadata.distribution(_PACKAGE)
    for path in package.files or ():
        if path.suffix != ".pyc" and path.parts[0].startswith(_PACKAGE):
            archive.add(str(path.locate()), f"{top}/{path}", recursive=False, filter=_plain)


def _plain(about: tarfile.TarInfo) -> tarfile.TarInfo:
    about.uid = about.gid = 0
    about.uname = about.gname = ""
    return about
