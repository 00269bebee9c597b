"""Which files of a release a node takes: by its machine, its driver and its GPUs, or as it is told."""

import pytest

from llmgw.core.engines import cuda
from llmgw.core.engines.orders import EngineOrder, Release, ReleaseFile, ReleaseRef
from llmgw.core.engines.terms import EngineKind
from llmgw.core.engines.variants import choose, devices, pick
from llmgw.core.errors import NoBuild
from llmgw.core.inventory import Cpu, Gpu, GpuVendor, Inventory
from llmgw.core.units import GIB, Bytes

B11057 = (
    "llama-b11057-bin-ubuntu-x64.tar.gz",
    "llama-b11057-bin-ubuntu-arm64.tar.gz",
    "llama-b11057-bin-ubuntu-s390x.tar.gz",
    "llama-b11057-bin-ubuntu-vulkan-x64.tar.gz",
    "llama-b11057-bin-ubuntu-vulkan-arm64.tar.gz",
    "llama-b11057-bin-ubuntu-cuda-12.8-x64.tar.gz",
    "llama-b11057-bin-ubuntu-cuda-13.3-x64.tar.gz",
    "llama-b11057-bin-ubuntu-cuda-13.3-arm64.tar.gz",
    "cudart-llama-b11057-bin-ubuntu-cuda-12.8-x64.tar.gz",
    "cudart-llama-b11057-bin-ubuntu-cuda-13.3-x64.tar.gz",
    "cudart-llama-b11057-bin-ubuntu-cuda-13.3-arm64.tar.gz",
    "llama-b11057-bin-ubuntu-rocm-7.2-x64.tar.gz",
    "llama-b11057-bin-ubuntu-rocm-10.0-x64.tar.gz",
    "llama-b11057-bin-ubuntu-openvino-2026.2.1-x64.tar.gz",
    "llama-b11057-bin-ubuntu-sycl-fp16-x64.tar.gz",
    "llama-b11057-bin-ubuntu-sycl-fp32-x64.tar.gz",
    "llama-b11057-bin-android-arm64.tar.gz",
    "llama-b11057-bin-win-cuda-13.3-x64.zip",
    "llama-b11057-bin-macos-arm64.tar.gz",
    "llama-b11057-ui.tar.gz",
)


def release(*names: str, variant: str = "", version: str = "b11057", kind: EngineKind = EngineKind.ARCHIVE) -> Release:
    files = tuple(ReleaseFile(name=name, size=Bytes(1), digest="sha256:" + 64 * "0") for name in names or B11057)
    return Release(engine="llama.cpp", version=version, kind=kind, variant=variant, files=files)


def order(variant: str = "auto", *refs: str, kind: EngineKind = EngineKind.ARCHIVE, engine: str = "llama.cpp"):
    releases = tuple(ReleaseRef(id=f"id-{ref}", variant=ref) for ref in refs or ("",))
    return EngineOrder(engine=engine, version="b11057", kind=kind, variant=variant, releases=releases)


def nvidia(driver: str = "580.65.06", compute: str = "8.9", name: str = "NVIDIA L4", **more: object) -> Gpu:
    fields = {"index": 0, "uuid": "GPU-1", "driver": driver, "compute": compute, "name": name, **more}
    return Gpu(**fields)  # type: ignore[arg-type]


AMD = Gpu(vendor=GpuVendor.AMD, index=0, uuid="GPU-amd", name="AMD Instinct MI210", driver="6.7.0")


def node(*gpus: Gpu, arch: str = "x86_64", problem: str = "", **more: object) -> Inventory:
    machine = {"os": more.pop("os", "Debian"), "kernel": "6.1", "cpu": Cpu(cores=2), "memory": GIB}
    return Inventory(**machine, arch=arch, gpus=gpus, gpu_problem=problem, **more)  # type: ignore[arg-type]


def chosen(variant: str, inventory: Inventory, *names: str) -> tuple[str, list[str], str]:
    choice = choose(order(variant), [release(*names)], inventory)
    shown = [file.name.replace("llama-b11057-bin-ubuntu-", "").removesuffix(".tar.gz") for file in choice.files]
    return choice.variant, shown, choice.note


def refused(variant: str, inventory: Inventory, *names: str) -> str:
    with pytest.raises(NoBuild) as bad:
        choose(order(variant), [release(*names)], inventory)
    return str(bad.value)


@pytest.mark.parametrize(
    ("arch", "file"),
    [("x86_64", "x64"), ("amd64", "x64"), ("aarch64", "arm64"), ("arm64", "arm64"), ("s390x", "s390x")],
)
def test_without_a_gpu_it_is_the_build_for_the_cpu_of_this_machine(arch: str, file: str):
    assert chosen("auto", node(arch=arch)) == ("cpu", [file], "")


@pytest.mark.parametrize(
    ("driver", "variant"),
    [
        ("525.60.13", "cuda 12.8"),
        ("570.86.15", "cuda 12.8"),
        ("580.65.06", "cuda 13.3"),
        ("590.44", "cuda 13.3"),
        ("700.1", "cuda 13.3"),
    ],
)
def test_a_driver_runs_the_newest_cuda_of_a_major_that_it_knows_and_older_ones(driver: str, variant: str):
    name = variant.replace(" ", "-") + "-x64"
    assert chosen("auto", node(nvidia(driver))) == (variant, [name, f"cudart-{name}"], "")


def test_the_oldest_driver_and_the_oldest_gpu_of_a_node_decide():
    assert chosen("auto", node(nvidia(), nvidia("550.54.14")))[0] == "cuda 12.8"
    assert chosen("auto", node(nvidia(), nvidia(compute="7.0", name="Tesla V100")))[0] == "cuda 12.8"


@pytest.mark.parametrize(
    ("gpu", "note"),
    [
        (nvidia("470.82.01"), "takes cpu: driver 470.82.01 is too old for CUDA 12.8; update it to 525.60.13 or newer"),
        (nvidia("525.60.11"), "takes cpu: driver 525.60.11 is too old for CUDA 12.8; update it to 525.60.13 or newer"),
        (
            nvidia(compute="3.7", name="Tesla K80"),
            "takes cpu: Tesla K80 has compute capability 3.7, too old for CUDA 12.8",
        ),
        (nvidia(""), "takes cpu: the version of the NVIDIA driver is not known, CUDA 12.8 needs 525.60.13"),
    ],
)
def test_a_driver_or_gpu_that_is_too_old_for_every_build_takes_the_cpu_and_says_why(gpu: Gpu, note: str):
    assert chosen("auto", node(gpu)) == ("cpu", ["x64"], note)


def test_a_build_from_before_there_was_cuda_for_linux_takes_the_cpu_and_says_so():
    variant, files, note = chosen("auto", node(nvidia()), *(name for name in B11057 if "cuda" not in name))
    assert (variant, files) == ("cpu", ["x64"])
    assert note == "takes cpu: the release has no CUDA build with its runtime archive for this machine"


def test_a_cuda_build_without_its_runtime_archive_is_none():
    names = [name for name in B11057 if not name.startswith("cudart-llama-b11057-bin-ubuntu-cuda-13.3")]
    assert chosen("auto", node(nvidia()), *names)[0] == "cuda 12.8"


def test_versions_of_backends_are_compared_as_numbers():
    names = [name.replace("13.3", "13.10") for name in B11057] + [name.replace("13.3", "13.9") for name in B11057]
    assert chosen("auto", node(nvidia()), *dict.fromkeys(names))[0] == "cuda 13.10"
    assert chosen("rocm", node(AMD))[0] == "rocm 10.0"


def test_a_major_of_cuda_that_is_not_known_here_is_taken_only_by_name():
    names = [name.replace("13.3", "14.0") for name in B11057]
    assert chosen("auto", node(nvidia("900.1")), *names)[0] == "cuda 12.8"
    assert chosen("cuda-14.0", node(nvidia("900.1")), *names)[0] == "cuda 14.0"
    only = [name for name in names if "12.8" not in name]
    assert "name variant: cuda 14.0 to try it" in chosen("auto", node(nvidia("900.1")), *only)[2]


@pytest.mark.parametrize(
    ("variant", "inventory", "found"),
    [
        ("cpu", node(nvidia()), "cpu"),
        ("vulkan", node(), "vulkan"),
        ("cuda", node(nvidia("550.54.14")), "cuda 12.8"),
        ("cuda 12.8", node(nvidia()), "cuda 12.8"),
        ("cuda-12.8", node(nvidia()), "cuda 12.8"),
        ("CUDA", node(nvidia()), "cuda 13.3"),
        ("rocm", node(AMD), "rocm 10.0"),
        ("rocm-7.2", node(AMD), "rocm 7.2"),
        ("sycl-fp16", node(), "sycl fp16"),
        ("openvino", node(), "openvino 2026.2.1"),
    ],
)
def test_a_variant_that_is_named_is_taken(variant: str, inventory: Inventory, found: str):
    assert chosen(variant, inventory)[0] == found


@pytest.mark.parametrize(
    ("variant", "inventory", "words"),
    [
        ("cuda", node(), "variant cuda, needs a GPU with the NVIDIA driver: none is here"),
        ("cuda", node(problem="nvidia-smi: exit status 9"), "the NVIDIA driver: nvidia-smi: exit status 9"),
        ("cuda", node(nvidia("470.1")), "variant cuda: driver 470.1 is too old for CUDA 12.8"),
        ("rocm", node(nvidia()), "variant rocm, needs a GPU with the AMD driver: none is here"),
        ("rocm", node(AMD, arch="aarch64"), "has no variant rocm for this machine; it has cpu, cuda 13.3, vulkan"),
        ("cuda 11.8", node(nvidia()), "has no variant cuda 11.8 for this machine; it has cpu, cuda 12.8, cuda 13.3"),
        ("metal", node(), "has no variant metal for this machine"),
        ("auto", node(arch="riscv64"), "llama.cpp b11057 has no build for riscv64; it has arm64, s390x, x64"),
    ],
)
def test_a_variant_that_cannot_be_had_is_refused_in_words(variant: str, inventory: Inventory, words: str):
    assert words in refused(variant, inventory)


def test_a_release_in_no_archive_that_is_known_is_refused_with_what_it_has():
    words = refused("auto", node(), "llama-b11057-bin-ubuntu-x64.zip")
    assert "no build for Linux in an archive that is known here; its files: llama-b11057-bin-ubuntu-x64.zip" in words


def test_files_of_another_build_are_not_taken():
    assert "no build for Linux" in refused("auto", node(), "llama-b11058-bin-ubuntu-x64.tar.gz")


def test_gpus_without_a_driver_are_no_reason_to_wait():
    problem = "2 AMD GPUs on the PCI bus without a driver (0000:03:00.0): load amdgpu"
    assert chosen("auto", node(problem=problem)) == ("cpu", ["x64"], f"takes cpu: {problem}")


def test_a_gpu_tool_that_failed_is_waited_for_and_not_taken_for_no_gpu():
    inventory = node(problem="nvidia-smi: did not end within 10s", nvidia_driver=True)
    assert refused("auto", inventory) == (
        "whether this node has GPUs is not known: nvidia-smi: did not end within 10s; it waits until that is, "
        "or name variant: cpu"
    )
    assert chosen("cpu", inventory)[0] == "cpu"
    assert chosen("auto", node(nvidia(), problem="rocm-smi: no word"))[0] == "cuda 13.3"


@pytest.mark.parametrize("kind", EngineKind)
def test_a_system_with_musl_is_refused_by_name_before_anything_is_downloaded(kind: EngineKind):
    alpine = node(os="Alpine Linux v3.20", os_id="alpine")
    with pytest.raises(NoBuild) as bad:
        choose(order("auto", kind=kind), [release(kind=kind)], alpine)
    assert str(bad.value) == (
        "llama.cpp b11057 cannot run on Alpine Linux v3.20: its C library is musl, engines are built for glibc; "
        "use a system with glibc"
    )


def test_amd_gpus_are_used_when_asked_for():
    variant, _, note = chosen("auto", node(AMD))
    assert variant == "cpu" and "name variant: rocm or vulkan" in note


# --- Python engines ----------------------------------------------------------------------------------------------


def python(variant: str, inventory: Inventory, *locked: str) -> tuple[str, str]:
    ref, note = pick(order(variant, *locked, kind=EngineKind.PYTHON, engine="vllm"), inventory)
    return ref.variant, note


def test_a_python_engine_has_a_release_for_each_variant_and_the_node_picks_one():
    locked = ("cpu", "cuda", "rocm")
    assert python("auto", node(nvidia()), *locked) == ("cuda", "")
    assert python("auto", node(AMD), *locked) == ("rocm", "")
    assert python("auto", node(), *locked) == ("cpu", "")
    assert python("rocm", node(AMD), *locked) == ("rocm", "")
    assert python("auto", node(AMD), "cpu", "cuda")[1] == "it is locked for cpu, cuda, not for rocm: takes cpu"


def test_a_python_engine_that_is_locked_for_others_alone_is_refused():
    for variant, inventory, words in (
        ("auto", node(), "is locked for cuda; this node needs cpu"),
        ("rocm", node(AMD), "is locked for cuda, not for rocm"),
        ("cuda", node(), "needs a GPU with the NVIDIA driver"),
    ):
        with pytest.raises(NoBuild, match=words):
            python(variant, inventory, "cuda")


def test_what_is_chosen_of_a_python_engine_is_its_whole_release():
    wheels = release("vllm.whl", "torch.whl", variant="cpu", kind=EngineKind.PYTHON)
    wanted = order("auto", "cpu", kind=EngineKind.PYTHON, engine="vllm")
    choice = choose(wanted, [wheels], node())
    assert (choice.variant, choice.files, choice.release) == ("cpu", wheels.files, wheels)
    with pytest.raises(NoBuild, match="its files for cpu are not here yet"):
        choose(wanted, [release("x.whl", variant="cuda", kind=EngineKind.PYTHON)], node())


def test_an_order_that_is_not_resolved_says_what_the_control_plane_said():
    with pytest.raises(NoBuild, match="b11057: no such tag"):
        pick(EngineOrder(engine="llama.cpp", version="b11057", kind=EngineKind.ARCHIVE, problem="no such tag"), node())


# --- devices -----------------------------------------------------------------------------------------------------


def test_the_gpus_that_an_engine_must_find():
    card = nvidia(uuid="GPU-2", divided=True)
    parts = [nvidia(uuid=f"MIG-{number}", parent="GPU-2") for number in range(3)]
    assert devices("cpu", node(nvidia())) == ()
    assert devices("vulkan", node(nvidia())) == ()
    assert devices("cuda 13.3", node(nvidia(), AMD)) == (nvidia(),)
    assert devices("rocm 7.2", node(nvidia(), AMD)) == (AMD,)
    assert devices("cuda 13.3", node(card, *parts)) == (parts[0],)
    assert devices("cuda 13.3", node(nvidia(), card, *parts)) == (nvidia(),)


@pytest.mark.parametrize("version", ["", "x", "12x", "-1", "9" * 50])
def test_a_version_that_is_none_is_no_reason_to_think_that_it_runs(version: str):
    assert cuda.hindrance(version, [nvidia()])
