"""Whether an engine of Python runs and finds its devices. Its torch is a stand-in: the real one is gigabytes."""

import sys
from pathlib import Path

import pytest

from llmgw.agent.engines import sglang, vllm
from llmgw.agent.engines.python import proof
from llmgw.agent.engines.python.fault import EnvironmentFault
from llmgw.agent.engines.python.intact import intact
from llmgw.core.inventory import Cpu, Gpu, GpuVendor, Inventory
from llmgw.core.units import GIB
from tests.index import TORCH

NODE = Inventory(os="Debian", kernel="6", arch="x86_64", cpu=Cpu(cores=2), memory=GIB)
TWO = tuple(Gpu(index=index, uuid=f"GPU-{index}", driver="535.1") for index in range(2))
AMD = (Gpu(vendor=GpuVendor.AMD, index=0, uuid="a"),)


class Tree:
    """An environment as uv makes one, by hand."""

    def __init__(self, tree: Path) -> None:
        self.path = tree
        self.packages = tree / "lib" / f"python3.{sys.version_info.minor}" / "site-packages"
        (tree / "bin").mkdir(parents=True)
        self.packages.mkdir(parents=True)
        (tree / "bin" / "python").symlink_to(sys._base_executable)  # type: ignore[attr-defined]
        (tree / "pyvenv.cfg").write_text(f"home = {Path(sys._base_executable).parent}\n")  # type: ignore[attr-defined]
        self.program("echo 0.33.0+cpu")

    def program(self, script: str) -> None:
        (self.path / "bin" / "vllm").write_text(f"#!/bin/sh\n{script}\n")
        (self.path / "bin" / "vllm").chmod(0o755)

    def torch(self, text: str = "", *, cuda: str = "", hip: str = "", devices: int = 0) -> None:
        made = TORCH.format(version="2.13.0", cuda=cuda or None, hip=hip or None, devices=devices)
        (self.packages / "torch.py").write_text(text or made)

    async def prove(self, variant: str = "cpu", inventory: Inventory = NODE, engine: str = "vllm") -> str:
        return await proof.prove(
            engine, self.path, version="0.33.0", variant=variant, inventory=inventory, tell=lambda _: None
        )


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    made = Tree(tmp_path / "tree")
    made.torch()
    return made


def node(*gpus: Gpu, recorded: str = "") -> Inventory:
    return Inventory(os="Debian", kernel="6", arch="x86_64", cpu=Cpu(cores=2), memory=GIB, gpus=gpus, recorded=recorded)


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ("echo 0.34.0", r"^vllm: says that it is 0\.34\.0, not 0\.33\.0; lock it again$"),
        ("echo 'ImportError: libnuma.so.1: cannot open shared object file' >&2; exit 1", r"exit status 1: ImportError"),
        ("kill -ILL $$", r"^vllm: vllm --version: ended by an illegal instruction: it is built for another processor$"),
        ("kill -SEGV $$", r"ended by a segmentation fault$"),
        ("echo hello there", r"^vllm: vllm --version: hello there$"),
        ("exit 0", r"^vllm: vllm --version: said nothing$"),
    ],
)
async def test_an_engine_that_does_not_say_its_version(tree: Tree, script: str, expected: str) -> None:
    tree.program(script)
    with pytest.raises(EnvironmentFault, match=expected):
        await tree.prove()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("raise ImportError('libtorch_cpu.so: undefined symbol: x')", r"exit status 1: ImportError: libtorch_cpu\.so"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGILL)", r"^vllm: import torch: ended by an illegal instr"),
        ("import os; os._exit(0)", r"^vllm: import torch: said nothing$"),
        ("import os; print('[]', flush=True); os._exit(0)", r"^vllm: import torch: \[\]$"),
    ],
)
async def test_a_torch_that_cannot_be_imported(tree: Tree, text: str, expected: str) -> None:
    tree.torch(text)
    with pytest.raises(EnvironmentFault, match=expected):
        await tree.prove()


@pytest.mark.parametrize(
    ("variant", "inventory", "cuda", "hip", "devices", "expected"),
    [
        ("cuda", node(*TWO), "13.0", "", 2, ""),
        ("cuda", node(*TWO), "13.0", "", 3, ""),
        ("cuda", node(*TWO, recorded="/machines/a"), "13.0", "", 0, ""),
        ("cuda", node(), "13.0", "", 0, ""),
        ("rocm", node(*AMD), "", "7.1", 1, ""),
        ("cpu", node(*TWO), "", "", 0, ""),
        (
            "cuda",
            node(*TWO),
            "13.0",
            "",
            1,
            "finds 1 of 2 GPUs of this node; it is built for cuda 13.0, is the driver 5",
        ),
        ("cuda", node(*TWO), "", "", 0, "is a build without cuda; lock the engine again for cuda"),
        ("rocm", node(*AMD), "13.0", "", 1, "is a build without rocm"),
        (
            "rocm",
            node(*AMD),
            "",
            "7.1",
            0,
            "finds 0 of 1 GPU of this node; it is built for rocm 7.1, is the driver too",
        ),
    ],
)
def test_the_devices_that_torch_finds(
    variant: str, inventory: Inventory, cuda: str, hip: str, devices: int, expected: str
) -> None:
    said = proof._Torch("2.13.0", {"cuda": cuda, "rocm": hip}, devices)
    if not expected:
        proof._judge(said, variant, inventory)
        return
    with pytest.raises(EnvironmentFault, match=r"^torch 2\.13\.0 ") as refused:
        proof._judge(said, variant, inventory)
    assert expected in str(refused.value)


async def test_torch_is_asked_for_what_it_is_judged_by(tree: Tree) -> None:
    tree.torch(cuda="13.0", devices=2)
    assert await tree.prove("cuda", node(*TWO)) == "0.33.0"


async def test_sglang_is_asked_through_its_environment(tree: Tree) -> None:
    metadata = tree.packages / "sglang-0.33.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: sglang\nVersion: 0.33.0\n")
    assert await tree.prove(engine="sglang") == "0.33.0"
    assert proof.program("sglang", tree.path).name == "python"
    (metadata / "METADATA").unlink()
    metadata.rmdir()
    with pytest.raises(
        EnvironmentFault, match=r"^sglang: .*PackageNotFoundError: No package metadata was found for sgl"
    ):
        await tree.prove(engine="sglang")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0.33.0\n", "0.33.0"),
        ("INFO 11-03 10:11:12 [__init__.py:241] Automatically detected platform cpu.\n0.32.0+cpu\n", "0.32.0"),
        ("vllm 0.33.0rc1\n", "0.33.0rc1"),
        ("0.33.0\nWARNING: a line that comes after\n", "0.33.0"),
        ("0.33.1.dev7+g1234abc.cu130\n", "0.33.1.dev7"),
        ("no version\n", None),
        ("", None),
    ],
)
def test_the_version_that_vllm_prints(text: str, expected: str | None) -> None:
    assert vllm.version(text) == expected


def test_the_version_that_sglang_has() -> None:
    assert sglang.version("0.5.23.post1\n") == "0.5.23.post1"
    assert sglang.version("") is None and sglang.version("what?") is None


def test_an_environment_is_whole_while_its_files_are_as_they_were_listed(tree: Tree) -> None:
    listed = tree.packages / "a-1.dist-info"
    listed.mkdir()
    (tree.packages / "a.py").write_text("12345")
    (listed / "RECORD").write_text('a.py,sha256=x,5\n"gone,.pyc",,\n../../../bin/vllm,,\na-1.dist-info/RECORD,,\n')
    intact(tree.path)
    (tree.packages / "a.py").write_text("1234")
    with pytest.raises(EnvironmentFault, match=r"^a 1: .*/a\.py has 4 bytes, it was installed with 5$"):
        intact(tree.path)
    (tree.packages / "a.py").write_text("12345")
    (tree.path / "bin" / "vllm").unlink()
    with pytest.raises(EnvironmentFault, match=r"^a 1: .*bin/vllm is gone$"):
        intact(tree.path)
    (listed / "RECORD").write_text("a.py/b.py,,\n")
    with pytest.raises(EnvironmentFault, match=r"^a 1: .*a\.py/b\.py is gone$"):
        intact(tree.path)
    (tree.path / "bin" / "python").unlink()
    (tree.path / "bin" / "python").symlink_to("/opt/gone/bin/python3.12")
    with pytest.raises(EnvironmentFault, match=r"^its interpreter /opt/gone/bin/python3\.12 is gone$"):
        intact(tree.path)
