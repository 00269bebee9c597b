"""A package index of this machine, with wheels that tests make.

vLLM and torch are stand-ins: the real ones are gigabytes. What is around them is real: uv, the index's protocol over
HTTP, virtual environments and the interpreter.
"""

import base64
import contextlib
import hashlib
import html
import importlib.metadata
import json
import threading
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from packaging.utils import InvalidSdistFilename, canonicalize_name, parse_sdist_filename, parse_wheel_filename

TORCH = """\
__version__ = "{version}"
class version:
    cuda, hip = {cuda!r}, {hip!r}
class cuda:
    is_available = staticmethod(lambda: {devices} > 0)
    device_count = staticmethod(lambda: {devices})
"""
VLLM = """\
import importlib.metadata
def main():
    import torch
    print("INFO 11-03 10:11:12 [__init__.py:241] Automatically detected platform cpu.")
    print(importlib.metadata.version("vllm"))
"""


def wheel(
    directory: Path,
    name: str,
    version: str,
    files: Mapping[str, str],
    *,
    tag: str = "py3-none-any",
    requires: Sequence[str] = (),
    scripts: Mapping[str, str] | None = None,
) -> Path:
    """Write a wheel as the standards want it."""
    stem = f"{name.replace('-', '_')}-{version}"
    inside = dict(files)
    metadata = ["Metadata-Version: 2.1", f"Name: {name}", f"Version: {version}"]
    inside[f"{stem}.dist-info/METADATA"] = "\n".join([*metadata, *(f"Requires-Dist: {one}" for one in requires), ""])
    inside[f"{stem}.dist-info/WHEEL"] = f"Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: {tag}\n"
    if scripts:
        lines = ["[console_scripts]", *(f"{word} = {entry}" for word, entry in scripts.items()), ""]
        inside[f"{stem}.dist-info/entry_points.txt"] = "\n".join(lines)
    record = "".join(f"{path},sha256={_short(text.encode())},{len(text.encode())}\n" for path, text in inside.items())
    inside[f"{stem}.dist-info/RECORD"] = f"{record}{stem}.dist-info/RECORD,,\n"
    path = directory / f"{stem}-{tag}.whl"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for entry, text in inside.items():
            archive.writestr(entry, text)
    return path


def _short(content: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()


def torch(
    directory: Path, version: str, *, tag: str = "py3-none-any", cuda: str = "", hip: str = "", devices: int = 0
) -> Path:
    """A stand-in for torch that finds so many devices."""
    text = TORCH.format(version=version, cuda=cuda or None, hip=hip or None, devices=devices)
    return wheel(directory, "torch", version, {"torch/__init__.py": text}, tag=tag)


def vllm(directory: Path, version: str, *, name: str = "vllm", main: str = VLLM, requires: Sequence[str] = ()) -> Path:
    """A stand-in for vLLM whose program prints its version."""
    files = {"vllm/__init__.py": "", "vllm/cli.py": main}
    needs = ["torch", *requires]
    return wheel(directory, name, version, files, requires=needs, scripts={"vllm": "vllm.cli:main"})


SERVING = """\
import os, signal, sys
def main():
    import torch
    if "--version" in sys.argv:
        print("0.33.0")
        return
    import xllamacpp
    params = xllamacpp.CommonParams()
    params.model.path, params.port, params.hostnames = sys.argv[2], int(sys.argv[3]), ["127.0.0.1"]
    params.n_ctx, params.n_parallel, params.cpuparams.n_threads = 256, 1, 1
    server = xllamacpp.Server(params)
    while server:
        signal.pause()
"""
"""A program that really serves: `vllm serve WEIGHTS PORT`."""


def repacked(directory: Path, name: str) -> Path:
    """The wheel of a package of this environment, as it was before it was installed."""
    found = importlib.metadata.distribution(name)
    made_later = ("INSTALLER", "REQUESTED", "RECORD", "direct_url.json")
    files = [one for one in found.files or () if one.suffix != ".pyc" and one.name not in made_later]
    tag = (found.read_text("WHEEL") or "").rpartition("Tag: ")[2].split()[0]
    stem = f"{name.replace('-', '_')}-{found.version}"
    lines = [f"{one},{f'{one.hash.mode}={one.hash.value}' if one.hash else ''},{one.size or ''}" for one in files]
    path = directory / f"{stem}-{tag}.whl"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:
        for one in files:
            archive.write(str(one.locate()), str(one))
        archive.writestr(f"{stem}.dist-info/RECORD", "\n".join([*lines, f"{stem}.dist-info/RECORD,,", ""]))
    return path


@dataclass
class Index:
    """A simple index over the files of a directory."""

    directory: Path
    as_json: bool = True
    """The newer form, which says sizes; the older one is HTML and says only digests."""
    digests: bool = True
    login: str = ""
    """`user:password` that a client must say."""
    url: str = ""
    asked: list[str] = field(default_factory=list)

    def file(self, path: str) -> Path | None:
        """The file at an address, None when there is none."""
        name = path.rpartition("/")[2].replace("%2B", "+")
        return self.directory / name if path.startswith("/files/") and (self.directory / name).is_file() else None

    def page(self, path: str) -> bytes | None:
        """What the index says of a package, None when it has none."""
        wanted = path.removeprefix("/simple/").strip("/")
        files = sorted(one for one in self.directory.iterdir() if _package(one.name) == wanted)
        return (self._json(wanted, files) if self.as_json else self._html(files)) if files else None

    def _json(self, name: str, files: Sequence[Path]) -> bytes:
        listed = [
            {
                "filename": one.name,
                "url": f"../../files/{one.name}",
                "size": one.stat().st_size,
                "hashes": {"sha256": sha256(one)} if self.digests else {},
            }
            for one in files
        ]
        return json.dumps({"meta": {"api-version": "1.1"}, "name": name, "files": listed}).encode()

    def _html(self, files: Sequence[Path]) -> bytes:
        links = []
        for one in files:
            digest = f"#sha256={sha256(one)}" if self.digests else ""
            links.append(f'<a href="../../files/{html.escape(one.name)}{digest}">{html.escape(one.name)}</a>')
        return f"<!DOCTYPE html><html><body>{''.join(links)}</body></html>".encode()


def _package(name: str) -> str:
    try:
        parse = parse_wheel_filename if name.endswith(".whl") else parse_sdist_filename
        return canonicalize_name(parse(name)[0])
    except InvalidSdistFilename:
        return ""


def sha256(path: Path) -> str:
    """The digest of a file in hexadecimal digits."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _handler(index: Index) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            index.asked.append(f"{self.command} {self.path}")
            said = self.headers.get("Authorization", "")
            if index.login and said != f"Basic {base64.b64encode(index.login.encode()).decode()}":
                self._say(401, b"", {"WWW-Authenticate": "Basic"})
            elif (file := index.file(self.path)) is not None:
                self._say(200, file.read_bytes(), {})
            elif (page := index.page(self.path)) is not None:
                kind = "application/vnd.pypi.simple.v1+json" if index.as_json else "text/html"
                self._say(200, page, {"Content-Type": kind})
            else:
                self._say(404, b"", {})

        do_HEAD = do_GET

        def _say(self, status: int, body: bytes, headers: Mapping[str, str]) -> None:
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    return Handler


@contextlib.contextmanager
def served(index: Index) -> Iterator[Index]:
    """Serve it on a port of this machine; `url` is then its address."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(index))
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    secret = f"{index.login}@" if index.login else ""
    index.url = f"http://{secret}127.0.0.1:{server.server_address[1]}/simple"
    try:
        yield index
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
