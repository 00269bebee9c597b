"""Which libraries an engine lacks, by a real program whose library was taken away, and by ldd's words."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmgw.cli.examine.libraries import binaries, lacking, libraries
from llmgw.core.checks import Result

LISTING = """\
/opt/llama.cpp/llama-server:
\tlinux-vdso.so.1 (0x00007ffd6b1f2000)
\tlibgomp.so.1 => not found
\tlibc.so.6 => /lib/x86_64-linux-gnu/libc.so.6 (0x00007f4c7c800000)
/opt/llama.cpp/libggml-cpu-haswell.so:
\tlibgomp.so.1 => not found
\tlibcudart.so.12 => not found
/opt/llama.cpp/llama-server: /lib/x86_64-linux-gnu/libc.so.6: version `GLIBC_2.38' not found (required by …)
/opt/llama.cpp/notes.so.txt:
\tnot a dynamic executable
"""


def test_each_library_that_is_not_found_is_named_once():
    assert lacking(LISTING) == ["libgomp.so.1", "libcudart.so.12", "GLIBC_2.38"]


@given(st.text(alphabet=st.characters(), max_size=300))
def test_no_answer_of_a_tool_is_too_strange(text: str):
    assert all(len(name) <= 120 and "\n" not in name for name in lacking(text))


async def test_a_real_program_with_all_its_libraries_is_ok(tmp_path: Path):
    program = tmp_path / "llama-server"
    shutil.copy(shutil.which("ls") or "/bin/ls", program)
    (check,) = await libraries("llama.cpp", program)
    assert (check.result, check.fact) == (Result.OK, "llama.cpp: nothing that the program needs is missing")


@pytest.fixture
def broken(tmp_path: Path) -> Path:
    """A program beside a library whose own library was taken away."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("there is no C compiler to make a library with")
    (tmp_path / "lib").mkdir()
    (tmp_path / "x.c").write_text("int x(void) { return 1; }\n")
    build = [compiler, "-shared", "-fPIC", str(tmp_path / "x.c")]
    gone = tmp_path / "lib" / "libgone.so"
    subprocess.run([*build, "-o", str(gone)], check=True)
    subprocess.run([*build, "-o", str(tmp_path / "libbackend.so"), "-Wl,--no-as-needed", str(gone)], check=True)
    gone.unlink()
    shutil.copy(shutil.which("ls") or "/bin/ls", tmp_path / "llama-server")
    return tmp_path / "llama-server"


async def test_a_library_of_a_library_beside_it_is_missed(broken: Path):
    """The program alone looks clean: backends are loaded late."""
    (check,) = await libraries("llama.cpp", broken)
    assert check.result is Result.FAULT
    assert "not found, which" in check.fact and "libgone.so" in check.fact and "package" in check.fix


async def test_a_script_and_a_program_that_is_not_there_have_none(tmp_path: Path):
    script = tmp_path / "llama-server"
    script.write_text(f"#!{sys.executable}\n")
    assert await libraries("llama.cpp", script) == []
    assert await libraries("llama.cpp", tmp_path / "no" / "llama-server") == []


def test_no_more_files_than_a_bound_are_looked_at(tmp_path: Path):
    for number in range(300):
        (tmp_path / f"lib{number:03}.so").write_bytes(b"\x7fELF")
    (tmp_path / "llama-server").write_bytes(b"\x7fELF")
    (tmp_path / "pipe.so").mkdir()
    assert len(binaries(tmp_path / "llama-server")) == 200
