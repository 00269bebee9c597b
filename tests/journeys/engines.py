"""Versions of the engine for journeys: the packed one, with another number and other manners."""

import hashlib
import io
import tarfile
from dataclasses import replace
from pathlib import Path

from llmgw.cli.local import engine
from llmgw.core.engines import releases
from llmgw.core.engines.orders import Release, ReleaseFile
from llmgw.core.units import Bytes

REFUSES = """#!/bin/sh
case "$*" in *--api-key-file*) echo "srv  load_model: the model is not to my taste" >&2; exit 1;; esac
"""
"""Begins a program that proves well and starts no replica: it is the key that proving does without."""


def publish(mirror: Path, build: str, *, begins: str = "") -> Release:
    """Add the packed engine to a mirror under another build; its program begins with `begins`.

    Without its package, a hundred megabytes: the program finds that of this environment.
    """
    packed = engine.version()
    (source,) = (mirror / engine.ENGINE / packed).glob("*.tar.gz")
    place = mirror / engine.ENGINE / build
    place.mkdir()
    target = place / source.name.replace(packed, build)
    with tarfile.open(source) as old, tarfile.open(target, "w:gz", compresslevel=1) as new:
        for member in old:
            if "/xllamacpp/" in member.name:
                continue
            content = old.extractfile(member)
            assert content is not None
            data = content.read()
            if member.name.endswith("/llama-server"):
                data = begins.encode() + data.removeprefix(b"#!/bin/sh\n" if begins else b"")
            if member.name.endswith("/METADATA"):
                data = data.replace(packed.removeprefix("b").encode(), build.removeprefix("b").encode())
            member.name, member.size = member.name.replace(packed, build), len(data)
            new.addfile(member, io.BytesIO(data))
    digest = f"sha256:{hashlib.sha256(target.read_bytes()).hexdigest()}"
    file = ReleaseFile(name=target.name, size=Bytes(target.stat().st_size), digest=digest)
    before = releases.read((source.parent / "release.json").read_bytes())
    release = replace(before, version=build, files=(file,))
    (place / "release.json").write_text(releases.written(release))
    return release
