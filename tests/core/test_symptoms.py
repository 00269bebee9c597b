"""What is wrong with a node by its own description: each warning in words, and what is none."""

from dataclasses import replace

import pytest
from hypothesis import given, settings

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
from llmgw.core.symptoms import certificate_due, of_inventory, shrunk
from llmgw.core.units import GIB, TIB, Bytes
from llmgw.core.warnings import MemoryShrunk, StatedDiffers
from llmgw.wire.facts import v1
from tests.wire.values import values

NOW, DAY = 1_000_000.0, 86400.0
IB = FabricAdapter(name="mlx5_0", link_layer=LinkLayer.INFINIBAND, state=PortState.ACTIVE)
ROCE = replace(IB, name="mlx5_1", link_layer=LinkLayer.ETHERNET)
A, B = "fec0:0000:0000:0001", "fec0:0000:0000:0002"
SOUND = Inventory(
    os="Debian 12",
    kernel="6.1",
    arch="x86_64",
    virtualization="kvm",
    cpu=Cpu(model="EPYC", cores=4, features=("avx2", "sse2")),
    memory=Bytes(8 * GIB),
    adapters=(IB, ROCE),
    fabrics=(Fabric(name="ib-a", adapters=("mlx5_0",)),),
    disks=(Disk(directory="/w", total=TIB, free=Bytes(TIB // 2)),),
    certificate_ends=NOW + 90 * DAY,
)
TWO_RAILS = (Fabric(name="ib-a", adapters=("mlx5_0", "mlx5_0:2")),)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"recorded": "/r"}, "it describes the machine recorded in /r, not its own"),
        ({"cpu": Cpu(model="KVM", cores=1, features=("sse2",))}, "no AVX2 (KVM): engines are several times slower"),
        (
            {"by_hand": (ByHand(field="memory", stated="4GiB", measured="8 GiB", differs=True),)},
            "memory is 4GiB by hand, 8 GiB was measured",
        ),
        ({"gpu_problem": "nvidia-smi: exit 9"}, "GPUs: nvidia-smi: exit 9"),
        (
            {
                "gpus": (Gpu(index=3, uuid="GPU-3"),),
                "gpu_holders": (GpuHolder(gpu="GPU-3", pid=7, command="python", memory=Bytes(2 * GIB)),),
            },
            "pid 7 (python) holds 2 GiB of GPU 3 and is no engine of ours",
        ),
        ({"adapter_problem": "no /sys"}, "fabric adapters are not known: no /sys"),
        ({"machine_problem": "/etc hangs"}, "the machine cannot be looked at whole: /etc hangs"),
        ({"adapters": (replace(IB, state=PortState.INIT),)}, "mlx5_0: link is up but no subnet manager answers"),
        (
            {"adapters": (IB, replace(IB, port=2, state=PortState.INIT))},
            "mlx5_0:2: link is up but no subnet manager answers",
        ),
        (
            {"adapters": (replace(IB, state=PortState.DOWN, physical_state="Polling"),)},
            "mlx5_0 on fabric ib-a is DOWN (Polling)",
        ),
        ({"adapters": (ROCE,)}, "fabric ib-a names adapter mlx5_0, which is not there; there are mlx5_1"),
        (
            {"adapters": (replace(IB, gid_prefix=A), replace(IB, port=2, gid_prefix=B)), "fabrics": TWO_RAILS},
            f"fabric ib-a: mlx5_0 has GID prefix {A}, mlx5_0:2 has {B}: two subnets",
        ),
        ({"certificate_ends": NOW + 5 * DAY}, "its certificate ends in 5 days"),
        ({"certificate_ends": NOW - 60}, "its certificate ended 1m00s ago"),
        ({"disks": (Disk(directory="/w", problem="is not there"),)}, "/w: is not there"),
        ({"disks": (Disk(directory="/w", total=TIB, free=Bytes(20 * GIB)),)}, "/w: 20 GiB of 1 TiB free"),
    ],
)
def test_what_a_description_shows(fields: dict[str, object], words: str) -> None:
    (found,) = of_inventory(replace(SOUND, **fields), NOW)  # type: ignore[arg-type]
    assert str(found).startswith(words)
    assert found.fix


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"arch": "aarch64", "cpu": Cpu(cores=1, features=("asimd",))},
        {"cpu": Cpu(cores=1)},
        {"by_hand": (ByHand(field="memory", stated="8GiB", measured="8 GiB"),)},
        {"adapters": (IB, replace(ROCE, state=PortState.INIT))},
        {"adapters": (IB, replace(IB, port=2)), "fabrics": TWO_RAILS},
        {"adapters": (replace(IB, gid_prefix=A), replace(IB, port=2)), "fabrics": TWO_RAILS},
        {"disks": (Disk(directory="/w", total=Bytes(20 * TIB), free=Bytes(100 * GIB)),)},
        {"certificate_ends": None},
    ],
)
def test_what_is_no_fault(fields: dict[str, object]) -> None:
    assert list(of_inventory(replace(SOUND, **fields), NOW)) == []  # type: ignore[arg-type]


def test_memory_under_what_was_registered_is_a_fault_unless_it_was_said() -> None:
    less = replace(SOUND, memory=Bytes(6 * GIB))
    assert str(shrunk(less, Bytes(8 * GIB))) == "memory is 6 GiB, it had 8 GiB"
    near = shrunk(replace(SOUND, memory=Bytes(int(8.01 * GIB))), Bytes(int(8.2 * GIB)))
    assert str(near) == "memory is 8 GiB, it had 8.2 GiB"
    assert str(replace(near, registered=Bytes(int(8.04 * GIB)))) == "memory is 8.01 GiB, it had 8.04 GiB"  # type: ignore[type-var]
    assert "by_hand_differs remains" in MemoryShrunk.fix
    assert shrunk(replace(SOUND, memory=Bytes(int(7.9 * GIB))), Bytes(8 * GIB)) is None
    assert shrunk(replace(less, by_hand=(ByHand(field="memory", stated="6GiB"),)), Bytes(8 * GIB)) is None


def test_what_is_stated_may_be_meant_and_only_what_exceeds_the_measured_cannot_be() -> None:
    limit = StatedDiffers(field="memory", stated="48 GiB", measured="64 GiB", below=True)
    assert limit.fix.startswith("leave it if it is meant as a limit; else correct memory: in its agent.yaml")
    assert replace(limit, below=False).fix.startswith("correct memory: in its agent.yaml, or take it out")
    assert replace(limit, field="address", below=False).fix.startswith("leave it if routers should reach it there")


def test_a_certificate_that_ends_says_whose_to_issue_and_what_to_restart() -> None:
    (ending,) = of_inventory(replace(SOUND, certificate_ends=NOW + DAY), NOW, "node07")
    assert "llmgw pki issue node07 --role agent" in ending.fix and "restart llmgw-agent" in ending.fix


def test_a_certificate_is_looked_at_again_when_its_warning_changes() -> None:
    ends = NOW + 90 * DAY
    due = [certificate_due(SOUND, ends - left * DAY) for left in (90, 14, 10, 2, 0.5)]
    assert due == [ends - 14 * DAY + 1, ends - 14 * DAY + 1, ends - 7 * DAY + 1, ends - DAY + 1, ends + 1]
    assert certificate_due(SOUND, ends + 1) is None
    assert certificate_due(replace(SOUND, certificate_ends=None), NOW) is None


@settings(max_examples=100, deadline=None)
@given(values(Inventory, v1.Inventory))
def test_whatever_a_node_says_its_warnings_have_words(inventory: Inventory) -> None:
    for warning in of_inventory(inventory, NOW):
        assert str(warning) and isinstance(warning.fix, str) and warning.code
