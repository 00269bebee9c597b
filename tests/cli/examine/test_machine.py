"""A node's own description as checks: the facts, and each of its warnings with what to do."""

from dataclasses import replace

import pytest

from llmgw.cli.examine.machine import of_inventory
from llmgw.core.checks import Result
from llmgw.core.inventory import (
    ByHand,
    Cpu,
    Disk,
    Fabric,
    FabricAdapter,
    Gpu,
    GpuHolder,
    Inventory,
    LinkLayer,
    PortState,
)
from llmgw.core.units import GIB, Bytes

NOW = 1_800_000_000.0
GOOD = Inventory(
    os="Debian GNU/Linux 12 (bookworm)",
    kernel="6.1.0",
    arch="x86_64",
    virtualization="kvm",
    cpu=Cpu(model="AMD EPYC", cores=8, features=("avx", "avx2")),
    memory=Bytes(64 * GIB),
    disks=(Disk(directory="/var/lib/llmgw-agent", uses=("state",), total=Bytes(100 * GIB), free=Bytes(50 * GIB)),),
    gpus=(Gpu(index=0, uuid="GPU-1", name="NVIDIA H100", memory=Bytes(80 * GIB), driver="550.54.14"),),
    adapters=(
        FabricAdapter(
            name="mlx5_0", link_layer=LinkLayer.INFINIBAND, state=PortState.ACTIVE, rate="100 Gb/sec (2X HDR)"
        ),
    ),
    fabrics=(Fabric(name="ib-a", adapters=("mlx5_0",)),),
)


def said(inventory: Inventory) -> list[str]:
    return [f"{one.result.value} {one.name}: {one.fact}" for one in of_inventory(inventory, NOW)]


def test_a_good_machine_is_told_in_its_facts():
    assert said(GOOD) == [
        "ok machine: Debian GNU/Linux 12 (bookworm), kernel 6.1.0, x86_64, kvm",
        "ok processor: AMD EPYC, 8 cores; vector extensions: avx, avx2",
        "ok memory: 64 GiB for engines",
        "ok gpu: GPU 0: NVIDIA H100, 80 GiB, driver 550.54.14",
        "ok fabric: mlx5_0: InfiniBand ACTIVE, 100 Gb/sec (2X HDR)",
        "ok disk: /var/lib/llmgw-agent: 50 GiB of 100 GiB free",
    ]


@pytest.mark.parametrize(
    ("change", "line"),
    [
        ({"cpu": Cpu(cores=2, features=("avx",))}, "warning processor: no AVX2"),
        ({"gpu_problem": "nvidia-smi: exit status 9"}, "fault gpu: GPUs"),
        ({"fabrics": (Fabric(name="ib-a", adapters=("mlx5_7",)),)}, "fault fabric: fabric ib-a names adapter mlx5_7"),
        ({"adapters": (replace(GOOD.adapters[0], state=PortState.INIT),)}, "warning fabric: mlx5_0: link is up but no"),
        ({"disks": (Disk(directory="/w", total=Bytes(GIB), free=Bytes(1)),)}, "warning disk: /w: 1 B of 1 GiB free"),
        ({"disks": (Disk(directory="/w", problem="is not there"),)}, "fault disk: /w: is not there"),
        ({"recorded": "/m"}, "warning machine: it describes the machine recorded in /m"),
        (
            {"gpu_holders": (GpuHolder(gpu="GPU-1", pid=7, command="python3", memory=Bytes(GIB)),)},
            "warning gpu: pid 7 (python3) holds 1 GiB of GPU 0",
        ),
        (
            {"by_hand": (ByHand(field="memory", stated="1 GiB", measured="64 GiB", differs=True),)},
            "warning by hand: memory is 1 GiB by hand, 64 GiB was measured",
        ),
    ],
)
def test_each_symptom_is_a_check_with_what_to_do(change: dict[str, object], line: str):
    inventory = replace(GOOD, **change)  # type: ignore[arg-type]
    (found,) = [one for one in of_inventory(inventory, NOW) if one.result is not Result.OK]
    assert f"{found.result.value} {found.name}: {found.fact}".startswith(line)
    assert found.fix


@pytest.mark.parametrize(
    ("change", "lines"),
    [
        ({"cpu": Cpu(cores=2, features=("avx",))}, ["warning processor: no AVX2"]),
        ({"adapters": (replace(GOOD.adapters[0], state=PortState.DOWN),)}, ["warning fabric: mlx5_0 on"]),
        ({"adapters": ()}, ["fault fabric: fabric ib-a names adapter mlx5_0, which is not there; there is none"]),
        ({"disks": (Disk(directory="/w", total=Bytes(GIB), free=Bytes(1)),)}, ["warning disk: /w: 1 B of 1 GiB free"]),
        ({"disks": (Disk(directory="/w", total=Bytes(GIB), free=Bytes(0)),)}, ["fault disk: /w: 0 B of 1 GiB free"]),
        (
            {"by_hand": (ByHand(field="memory", stated="1 GiB", measured="64 GiB", differs=True),)},
            ["warning by hand: memory is"],
        ),
    ],
)
def test_of_a_thing_that_is_wrong_nothing_is_called_ok(change: dict[str, object], lines: list[str]):
    told = said(replace(GOOD, **change))  # type: ignore[arg-type]
    name = "memory" if "by_hand" in change else lines[0].split()[1].rstrip(":")
    about = [line for line in told if line.split()[1] in (f"{name}:", "by")]
    assert len(about) == 1 and about[0].startswith(lines[0])


def test_of_two_ports_of_one_device_the_one_that_is_well_keeps_its_line():
    first = GOOD.adapters[0]
    second = replace(first, port=2, state=PortState.DOWN)
    fabrics = (Fabric(name="ib-a", adapters=("mlx5_0:1", "mlx5_0:2")),)
    told = [line for line in said(replace(GOOD, adapters=(first, second), fabrics=fabrics)) if "fabric:" in line]
    assert told[0] == "ok fabric: mlx5_0: InfiniBand ACTIVE, 100 Gb/sec (2X HDR)"
    assert [line.split(" is ")[0] for line in told[1:]] == ["warning fabric: mlx5_0:2 on fabric ib-a"]


def test_disks_that_are_told_elsewhere_are_left_out():
    full = replace(GOOD, disks=(Disk(directory="/s", problem="is no directory"), *GOOD.disks))
    but = [one for one in of_inventory(full, NOW, but=("/s", "/var/lib/llmgw-agent")) if one.name == "disk"]
    assert but == []


def test_the_certificates_end_is_left_to_the_check_of_certificates():
    assert said(replace(GOOD, certificate_ends=NOW - 1)) == said(GOOD)


def test_what_is_not_there_is_said():
    bare = replace(GOOD, gpus=(), adapters=(), fabrics=(), memory_limit=Bytes(4 * GIB))
    assert {"ok gpu: none", "ok fabric: no adapter"} <= set(said(bare))
    assert "ok memory: 64 GiB for engines, limited by its control group to 4 GiB" in said(bare)
    failed = replace(bare, gpu_problem="x", adapter_problem="y")
    assert not {"ok gpu: none", "ok fabric: no adapter"} & set(said(failed))
