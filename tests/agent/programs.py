"""Small real programs, made with gcc: engines that are broken in one way each, and one that lacks a library."""

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

Build = Callable[..., Path]

_ENGINE = r"""
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

int main(int count, char **words) {
    for (int at = 1; at < count; at++) {
        if (!strcmp(words[at], "--version")) { fputs("version: 11057 (0123abc)\n", stderr); return 0; }
        if (!strcmp(words[at], "--help")) { puts("-m -a --host --port -c -np --metrics --api-key-file"); return 0; }
        if (!strcmp(words[at], "--list-devices")) {
            puts("Available devices:\n  CUDA0: NVIDIA L4 (23034 MiB, 22514 MiB free)");
            return 0;
        }
    }
    fputs("AMX is not ready to be used!\n", stderr);
    DO;
}
"""

DOES = {
    "sigill": "return raise(SIGILL)",
    "hang": "if (!fork()) signal(SIGTERM, SIG_IGN); for (;;) pause()",
    "exit": "return 3",
    "bind": 'fputs("couldn\'t bind HTTP server socket", stderr); return 1',
}


@pytest.fixture(scope="session")
def build(tmp_path_factory: pytest.TempPathFactory) -> Build:
    """Make an engine that does one of `DOES` once it should load; `needs` libraries that were linked."""
    if shutil.which("gcc") is None:
        pytest.skip("programs are made with gcc: apt install gcc libc6-dev")
    place = tmp_path_factory.mktemp("programs")
    source = place / "engine.c"
    source.write_text(_ENGINE)

    def make(path: Path, does: str, *needs: Path) -> Path:
        path.parent.mkdir(parents=True, exist_ok=True)
        gcc(f"-DDO={DOES[does]}", str(source), "-Wl,--no-as-needed", *map(str, needs), "-o", str(path))
        return path

    return make


def library(path: Path, *needs: Path) -> Path:
    """Make a shared library of this name."""
    path.parent.mkdir(parents=True, exist_ok=True)
    source = ("-x", "c", "/dev/null", "-x", "none")
    gcc("-shared", f"-Wl,-soname,{path.name}", *source, "-Wl,--no-as-needed", *map(str, needs), "-o", str(path))
    return path


def gcc(*words: str) -> None:
    subprocess.run(["gcc", *words], check=True, timeout=60)
