"""Which files of a Python engine a node needs, by its processor."""

from llmgw.core.engines.arches import locked_for, needed
from llmgw.core.engines.orders import ReleaseFile
from llmgw.core.units import Bytes


def file(name: str, package: str) -> ReleaseFile:
    return ReleaseFile(name=name, size=Bytes(1), digest=f"sha256:{'0' * 64}", package=package)


ANY = file("a-1-py3-none-any.whl", "a")
ON_X86 = file("torch-2-cp312-cp312-manylinux_2_28_x86_64.whl", "torch")
ON_ARM = file("torch-2-cp312-cp312-manylinux_2_28_aarch64.whl", "torch")
ON_BOTH = file("b-2-cp312-cp312-linux_x86_64.linux_aarch64.whl", "b")
NAMED_SO = file("x86_64_extras-2-py3-none-any.whl", "x86-64-extras")
PYTHON_X86 = file("cpython-3.12.16-x86_64-unknown-linux-gnu-install_only.tar.gz", "")
PYTHON_ARM = file("cpython-3.12.16-aarch64-unknown-linux-gnu-install_only.tar.gz", "")
ALL = (ANY, ON_X86, ON_ARM, ON_BOTH, NAMED_SO, PYTHON_X86, PYTHON_ARM)


def test_a_node_needs_the_files_of_its_own_processor() -> None:
    assert needed(ALL, "x86_64") == (ANY, ON_X86, ON_BOTH, NAMED_SO, PYTHON_X86)
    assert needed(ALL, "aarch64") == (ANY, ON_ARM, ON_BOTH, NAMED_SO, PYTHON_ARM)
    assert needed(ALL, "riscv64") == (ANY, NAMED_SO)


def test_a_lock_says_which_processors_it_is_for() -> None:
    assert locked_for(ALL) == ("x86_64", "aarch64")
    assert locked_for((ANY, ON_ARM)) == ("aarch64",)
    assert locked_for((ANY, NAMED_SO, PYTHON_X86)) == ()
