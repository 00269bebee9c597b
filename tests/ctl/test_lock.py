"""Locks, made by the real uv from an index of this machine."""

import tarfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from llmgw.core.engines.orders import Release, ReleaseFile
from llmgw.core.engines.releases import read, written
from llmgw.core.engines.terms import EngineKind
from llmgw.core.errors import ClusterCannot
from llmgw.ctl.lock import CannotLock, Locking, make
from llmgw.host import uv
from tests.index import Index, served, sha256, torch, vllm, wheel

ASKED = Locking(engine="vllm", version="0.33.0")
TORCH_TAG = "cp312-cp312-manylinux_2_28_x86_64"


@pytest.fixture
def index(tmp_path: Path) -> Iterator[Index]:
    """An index with vLLM, and with its torch for CUDA."""
    (tmp_path / "index").mkdir()
    with served(Index(tmp_path / "index")) as index:
        vllm(index.directory, "0.33.0")
        torch(index.directory, "2.13.0", tag=TORCH_TAG, cuda="13.0")
        yield index


async def lock(index: Index, **asked: Any) -> Release:
    return await make(replace(ASKED, index=index.url, **asked), lambda _: None)


def of(release: Release, package: str) -> ReleaseFile:
    [found] = [file for file in release.files if file.package == package]
    return found


async def test_a_lock_names_one_wheel_of_each_package_and_says_what_it_does(
    index: Index, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("UV_DEFAULT_INDEX", "http://127.0.0.1:9/simple")  # what this user set for uv says nothing here
    monkeypatch.setenv("UV_NO_BINARY", "1")
    torch(index.directory, "2.13.0", tag="cp311-cp311-manylinux_2_28_x86_64")
    torch(index.directory, "2.13.0", tag="cp312-cp312-manylinux_2_28_aarch64")
    torch(index.directory, "2.13.0", tag="cp312-cp312-manylinux_2_17_x86_64")
    said = list[str]()
    release = await make(replace(ASKED, index=index.url, variant="cuda"), said.append)
    found = index.directory / f"torch-2.13.0-{TORCH_TAG}.whl"
    assert (release.engine, release.version, release.kind) == ("vllm", "0.33.0", EngineKind.PYTHON)
    assert (release.variant, release.python) == ("cuda", "3.12")
    assert [file.package for file in release.files] == ["torch", "vllm"]
    assert of(release, "torch") == ReleaseFile(
        name=found.name,
        size=found.stat().st_size,
        digest=f"sha256:{sha256(found)}",
        url=index.url.replace("/simple", f"/files/{found.name}"),
        package="torch",
    )
    assert said[0] == "resolving vllm==0.33.0 for Python 3.12 on x86_64 with glibc 2.35"
    assert said[-1].startswith("locked 2 files, ")


async def test_a_build_of_another_index_is_taken_with_its_local_version_and_no_secret_gets_into_the_release(
    index: Index, tmp_path: Path
) -> None:
    (tmp_path / "cpu").mkdir()
    index.login = "reader:hush-hush"
    address = index.url.replace("http://", "http://reader:hush-hush@")
    with served(Index(tmp_path / "cpu", as_json=False, login="other:top-secret")) as cpu:  # which says no sizes
        made = torch(cpu.directory, "2.13.0+cpu", tag=TORCH_TAG)
        asked = replace(ASKED, index=address, extra_indexes=(cpu.url,))
        release = await make(asked, lambda _: None)
    assert of(release, "torch").name == made.name
    assert of(release, "torch").size == made.stat().st_size
    assert "secret" not in written(release) and "hush" not in written(release) and "@" not in written(release)
    assert read(written(release)) == release
    assert f"HEAD /files/{made.name}" in cpu.asked


async def test_a_lock_for_two_processors_has_the_wheels_of_both_and_not_what_is_left_out(index: Index) -> None:
    torch(index.directory, "2.13.0", tag="cp312-cp312-manylinux_2_28_aarch64")
    wheel(index.directory, "vllm", "0.34.0", {}, requires=["torch", "torchvision"])
    release = await lock(index, version="0.34.0", arches=("x86_64", "aarch64"), without=("TorchVision",))
    assert [file.name for file in release.files] == [
        "torch-2.13.0-cp312-cp312-manylinux_2_28_aarch64.whl",
        "torch-2.13.0-cp312-cp312-manylinux_2_28_x86_64.whl",
        "vllm-0.34.0-py3-none-any.whl",
    ]


async def test_what_has_no_digest_yet_is_read_for_it(index: Index) -> None:
    index.digests = False
    archive = index.directory / "cpython-3.12.16-x86_64-unknown-linux-gnu-install_only.tar.gz"
    with tarfile.open(archive, "w:gz") as tar:
        tar.add(__file__, "python/bin/python3.12")
    url = index.url.replace("/simple", f"/files/{archive.name}")
    release = await lock(index, interpreter=(url,))
    expected = ReleaseFile(name=archive.name, size=archive.stat().st_size, digest=f"sha256:{sha256(archive)}", url=url)
    assert of(release, "") == expected
    assert of(release, "torch").digest == f"sha256:{sha256(index.directory / of(release, 'torch').name)}"
    with pytest.raises(ClusterCannot, match=r"/files/nothing.tar.gz: answered 404$"):
        await lock(index, interpreter=(url.replace(archive.name, "nothing.tar.gz"),))


async def test_a_package_that_has_only_sources_is_refused_by_its_name(index: Index) -> None:
    wheel(index.directory, "vllm", "0.34.0", {}, requires=["built-by-hand"])
    with tarfile.open(index.directory / "built_by_hand-1.0.tar.gz", "w:gz") as tar:
        tar.add(__file__, "built_by_hand-1.0/setup.py")
    with pytest.raises(CannotLock, match=r"^vllm==0\.34\.0: .*built-by-hand==1\.0 has no usable wheels"):
        await lock(index, version="0.34.0")


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ({"version": "0.34.0"}, r"^vllm==0\.34\.0: No solution found .* no version of vllm==0\.34\.0 and"),
        ({"python": "3.13"}, r"torch==2\.13\.0 has no wheels with a matching Python ABI tag"),
        ({"glibc": "2.17"}, r"torch==2\.13\.0 has no wheels with a matching platform tag"),
        ({"glibc": "2.5"}, r"^glibc 2\.5: is not from 2\.17 on$"),
        ({"glibc": "two"}, r"^glibc 'two': is not two numbers; as in 3\.12$"),
        ({"python": "3.8"}, r"^Python 3\.8: is older than 3\.9"),
        ({"arches": ("sparc",)}, r"^platform sparc: is none of x86_64, aarch64$"),
        ({"version": "0.33.*"}, r"^vllm==0\.33\.\*: is no package at one version; as in vllm==0\.33\.0$"),
        ({"version": ""}, r"^vllm==: is no package at one version"),
        ({"extra_indexes": ("not an index",)}, r"^index 'not an index': is no address of http, https or file$"),
        ({"without": ("torch\n--index-url x",)}, r"^package 'torch\\n--index-url x': is no name of a package$"),
        ({"variant": "for CUDA"}, r"^vllm 0\.33\.0: is no release: variant: 'for CUDA' is not a name for a variant"),
        ({"package": "vllm @ http://127.0.0.1/x"}, r"is no package at one version"),
    ],
)
async def test_what_cannot_be_locked_is_said(index: Index, asked: dict[str, Any], expected: str) -> None:
    with pytest.raises(CannotLock, match=expected) as refused:
        await lock(index, **asked)
    assert "\n" not in str(refused.value) and not str(refused.value).endswith(".")


async def test_a_refusal_by_an_index_tells_no_secret(index: Index) -> None:
    address = index.url.replace("http://", "http://reader:wrong-secret@")
    index.login = "reader:right"
    with pytest.raises(CannotLock) as refused:
        await make(replace(ASKED, index=address), lambda _: None)
    assert "secret" not in str(refused.value)


async def test_without_uv_it_says_so(index: Index, monkeypatch: pytest.MonkeyPatch) -> None:
    def nowhere() -> str:
        raise FileNotFoundError("not there")

    monkeypatch.setattr(uv.uv, "find_uv_bin", nowhere)
    with pytest.raises(ClusterCannot, match=r"^uv is missing from llmgw's own installation; install llmgw again"):
        await lock(index)
