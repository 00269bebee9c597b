"""Which wheel fits, by the rules of the packaging standards."""

import pytest

from llmgw.ctl.wheels import Target, best

X86 = Target(python=(3, 12), arch="x86_64", glibc=(2, 35))
ARM = Target(python=(3, 12), arch="aarch64", glibc=(2, 35))


@pytest.mark.parametrize(
    ("names", "target", "expected"),
    [
        (["a-1-py3-none-any.whl"], X86, "a-1-py3-none-any.whl"),
        (["a-1-py3-none-any.whl", "a-1-cp312-cp312-linux_x86_64.whl"], X86, "a-1-cp312-cp312-linux_x86_64.whl"),
        (["a-1-cp311-cp311-manylinux_2_28_x86_64.whl"], X86, None),
        (["a-1-cp311-cp311-manylinux_2_28_x86_64.whl"], Target(python=(3, 11), arch="x86_64", glibc=(2, 28)), ...),
        (["a-1-cp39-abi3-manylinux2014_x86_64.manylinux_2_17_x86_64.whl"], X86, ...),
        (["a-1-cp313-abi3-manylinux_2_17_x86_64.whl"], X86, None),
        (["a-1-cp312-cp312-manylinux_2_36_x86_64.whl"], X86, None),
        (["a-1-cp312-cp312-manylinux_2_35_x86_64.whl"], X86, ...),
        (["a-1-cp312-cp312-manylinux1_x86_64.whl"], X86, ...),
        (["a-1-cp312-cp312-manylinux_2_28_x86_64.whl"], ARM, None),
        (["a-1-cp312-cp312-musllinux_1_2_x86_64.whl"], X86, None),
        (["a-1-cp312-cp312t-manylinux_2_28_x86_64.whl"], X86, None),
        (["a-1-cp312-cp312-win_amd64.whl", "a-1-cp312-cp312-macosx_11_0_arm64.whl"], X86, None),
        (
            ["a-1-1-py3-none-any.whl", "a-1-12-py3-none-any.whl", "a-1-3-py3-none-any.whl"],
            X86,
            "a-1-12-py3-none-any.whl",
        ),
        (["a-1-py3-none-any.whl", "a-1-1-py3-none-any.whl"], X86, "a-1-1-py3-none-any.whl"),
        (["a-2.13.0+cpu-cp312-cp312-manylinux_2_28_x86_64.whl"], X86, ...),
        (["no wheel.whl", "a-1.tar.gz"], X86, None),
        ([], X86, None),
    ],
)
def test_the_wheel_that_fits_best(names: list[str], target: Target, expected: str | None) -> None:
    assert best(names, target) == (names[0] if expected is ... else expected)
    assert best(reversed(names), target) == (names[0] if expected is ... else expected)
