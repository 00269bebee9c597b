"""What an engine lacks on a node, told by the real ldd of programs that were really linked."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from llmgw.agent.engines import elf, libraries, packages
from llmgw.agent.engines.layout import NoProgram, environment_of, program_of
from llmgw.agent.engines.libraries import CannotProvide, MissingLibrary, ensure, missing, provide, refuse_musl
from tests.agent.programs import Build, build, library

__all__ = ["build"]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory, build: Build) -> Path:
    """As a release has it, but two libraries are nowhere: one of the program and the CPU's code, one of a backend."""
    place = tmp_path_factory.mktemp("release")
    top = place / "tree" / "llama-b11057"
    gone, lost = library(place / "libgone.so.1"), library(place / "liblost.so.1")
    build(top / "llama-server", "exit", gone)
    library(top / "libggml-cpu-haswell.so", gone)
    library(top / "libggml-vulkan.so", lost)
    library(top / "libggml-base.so.0")
    (top / "libggml-base.so").symlink_to("libggml-base.so.0")
    (top / "README.so.txt").write_text("no ELF")
    gone.unlink()
    lost.unlink()
    return place / "tree"


@pytest.fixture
def tree(tmp_path: Path, made: Path) -> Path:
    return shutil.copytree(made, tmp_path / "tree", symlinks=True)


async def lacks(tree: Path, variant: str = "cpu") -> list[tuple[str, str, bool]]:
    found = await missing("llama.cpp", tree, variant, environment_of("llama.cpp", tree))
    return [(one.name, one.by, one.optional) for one in found]


async def test_what_the_program_lacks_is_needed_and_what_other_backends_lack_is_not(tree: Path):
    assert await lacks(tree) == [
        ("libgone.so.1", "llama-b11057/llama-server", False),
        ("liblost.so.1", "llama-b11057/libggml-vulkan.so", True),
    ]
    assert await lacks(tree, "vulkan") == [
        ("libgone.so.1", "llama-b11057/llama-server", False),
        ("liblost.so.1", "llama-b11057/libggml-vulkan.so", False),
    ]


async def test_libraries_of_an_archive_beside_the_program_s_are_found(tree: Path, tmp_path: Path):
    library(tree / "cudart-llama-b11057" / "libgone.so.1")
    library(tree / "cudart-llama-b11057" / "liblost.so.1")
    assert await lacks(tree, "vulkan") == []
    assert environment_of("llama.cpp", tree)["LD_LIBRARY_PATH"].split(":")[0] == str(tree / "cudart-llama-b11057")


async def test_a_backend_that_is_not_needed_is_gone_without_in_words(tree: Path):
    library(tree / "more" / "libgone.so.1")
    note = await ensure(
        "llama.cpp", tree, "cpu", environment_of("llama.cpp", tree), allowed=False, os_name="Debian 12", tell=print
    )
    assert note == "goes without llama-b11057/libggml-vulkan.so: liblost.so.1 is missing"


async def test_a_library_without_a_known_package_is_refused_with_what_finds_it(
    tree: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(packages, "manager_here", lambda: packages.MANAGERS[0])
    with pytest.raises(CannotProvide) as bad:
        await ensure(
            "llama.cpp", tree, "cpu", environment_of("llama.cpp", tree), allowed=True, os_name="Debian 12", tell=print
        )
    assert (
        str(bad.value) == "libgone.so.1 is missing and its package is not known; find it: apt-file search libgone.so.1"
    )


@pytest.mark.parametrize(
    ("gone", "words"),
    [
        (
            MissingLibrary(name="GLIBC_2.38", by="llama/libggml-base.so", too_old=True),
            "llama/libggml-base.so needs GLIBC_2.38, for which this system (Debian 12) is too old; take an older build "
            "of the engine, or a newer system",
        ),
        (
            MissingLibrary(name="libcuda.so.1", by="llama/libggml-cuda.so"),
            "libcuda.so.1 is missing: it comes with the NVIDIA driver, which llmgw does not install; install that, or "
            "name variant: cpu",
        ),
        (
            MissingLibrary(name="libamdhip64.so.7", by="llama/libggml-hip.so"),
            "libamdhip64.so.7 is missing: it comes with ROCm, which llmgw does not install; install that, or name "
            "variant: cpu",
        ),
    ],
)
async def test_what_no_package_brings_has_a_sentence_of_its_own(gone: MissingLibrary, words: str):
    with pytest.raises(CannotProvide) as bad:
        await provide([gone], allowed=True, os_name="Debian 12", tell=print)
    assert str(bad.value) == words


def fake_ldd(directory: Path, text: str, status: int) -> dict[str, str]:
    """A fake, since the real one of this machine says neither."""
    ldd = directory / "ldd"
    ldd.write_text(f"#!/bin/sh\ncat >&2 <<'END'\n{text}\nEND\nexit {status}\n")
    ldd.chmod(0o755)
    return {"PATH": f"{directory}:{os.environ['PATH']}"}


async def test_versions_that_the_system_s_own_libraries_lack_are_read(tree: Path, tmp_path: Path):
    program = tree / "llama-b11057" / "llama-server"
    text = (
        f"{program}: /lib/x86_64-linux-gnu/libc.so.6: version `GLIBC_2.38' not found (required by {program})\n"
        f"{program}: /lib/x86_64-linux-gnu/libstdc++.so.6: version `GLIBCXX_3.4.32' not found (required by {program})"
    )
    path = fake_ldd(tmp_path, text, 1)
    found = [one for one in await missing("llama.cpp", tree, "cpu", path) if not one.optional]
    assert [(one.name, one.too_old) for one in found] == [("GLIBCXX_3.4.32", True), ("GLIBC_2.38", True)]


async def test_a_system_with_musl_is_refused_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    path = fake_ldd(tmp_path, "musl libc (x86_64)\nVersion 1.2.5\nDynamic Program Loader", 1)
    monkeypatch.setenv("PATH", path["PATH"])
    with pytest.raises(CannotProvide, match=r"llama\.cpp cannot run on Alpine Linux v3\.20: its C library is musl"):
        await refuse_musl("llama.cpp", path, "Alpine Linux v3.20")


async def test_a_system_without_ldd_is_told_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(CannotProvide, match="ldd cannot be started: no such file or directory; install the package"):
        await refuse_musl("llama.cpp", {"PATH": str(tmp_path)}, "Debian 12")


# --- where things are --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("place", ["llama-server", "llama-b11057/llama-server", "build/bin/llama-server"])
def test_the_program_is_found_wherever_the_archive_has_it(tmp_path: Path, place: str):
    program = tmp_path / place
    program.parent.mkdir(parents=True, exist_ok=True)
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    (tmp_path / "llama-server-link").symlink_to(place)
    assert program_of("llama.cpp", tmp_path) == program


def test_an_archive_without_the_program_or_with_one_that_may_not_run_is_told(tmp_path: Path):
    (tmp_path / "link").symlink_to("llama-server")
    with pytest.raises(NoProgram, match="has no llama-server"):
        program_of("llama.cpp", tmp_path)
    (tmp_path / "llama-server").write_text("")
    with pytest.raises(NoProgram, match="may not be executed"):
        program_of("llama.cpp", tmp_path)


def test_a_tree_of_more_files_than_any_engine_has_is_not_walked_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(elf, "MOST", 3)
    for number in range(4):
        (tmp_path / str(number)).touch()
    with pytest.raises(elf.TooLarge, match="more than 3 files"):
        elf.broken_links(tmp_path)


def test_links_that_lead_nowhere(tmp_path: Path):
    (tmp_path / "libggml.so.0").touch()
    (tmp_path / "libggml.so").symlink_to("libggml.so.0")
    (tmp_path / "libllama.so").symlink_to("llama-b9165ibllama.so.0")
    (tmp_path / "loop").symlink_to("loop")
    assert elf.broken_links(tmp_path) == ["libllama.so -> llama-b9165ibllama.so.0", "loop -> loop"]


def test_every_library_of_the_table_has_a_package_of_each_manager():
    kinds: list[Callable[[str], str]] = [manager.package for manager in packages.MANAGERS]
    assert all(kind(name) for kind in kinds for name in packages.PACKAGES)
    assert libraries.CannotProvide is not packages.CannotInstall
