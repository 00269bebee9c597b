"""What changed between two descriptions of a node, in words."""

from dataclasses import fields, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llmgw.core.changes import changes, gone, lasting, listed
from llmgw.core.inventory import (
    ByHand,
    Cpu,
    Disk,
    Fabric,
    FabricAdapter,
    Gpu,
    GpuHolder,
    GpuVendor,
    Inventory,
    LinkLayer,
    NumaNode,
    PortState,
)
from llmgw.core.units import GIB, TIB, Bytes
from llmgw.wire.facts import v1
from tests.wire.values import values

PORT = FabricAdapter(
    name="mlx5_0", link_layer=LinkLayer.INFINIBAND, state=PortState.ACTIVE, rate="200 Gb/sec", gid_prefix="fec0"
)
CARD = Gpu(index=0, uuid="GPU-0", name="H100", memory=Bytes(80 * GIB), driver="550.54")
DISK = Disk(directory="/w", total=TIB, free=Bytes(TIB // 2))
PLAIN = Inventory(
    os="Debian 12",
    kernel="6.1",
    arch="x86_64",
    cpu=Cpu(model="EPYC", cores=4, features=("avx", "avx2", "sse2")),
    memory=Bytes(8 * GIB),
    gpus=(CARD,),
    adapters=(PORT,),
    fabrics=(Fabric(name="ib-a", adapters=("mlx5_0",)),),
    disks=(DISK,),
)


@pytest.mark.parametrize(
    ("after", "words"),
    [
        ({"memory": 4 * GIB}, ["memory 8 GiB → 4 GiB"]),
        ({"memory_limit": 4 * GIB}, ["memory limit none → 4 GiB"]),
        ({"kernel": "6.2", "os": "Debian 13"}, ["system Debian 12 → Debian 13", "kernel 6.1 → 6.2"]),
        ({"cpu": replace(PLAIN.cpu, cores=8, quota=2.5)}, ["cores 4 → 8", "CPU quota none → 2.5"]),
        ({"cpu": replace(PLAIN.cpu, features=("sse2",))}, ["CPU features lost: avx, avx2"]),
        (
            {"cpu": replace(PLAIN.cpu, features=("avx", "avx2", "f1", "f2", "f3", "f4", "f5", "sse2"))},
            ["CPU features newly there: f1, f2, f3, f4 and 1 more"],
        ),
        ({"numa": (NumaNode(index=0, cores=4, memory=Bytes(8 * GIB)),)}, ["NUMA nodes 0 → 1"]),
        ({"gpus": ()}, ["GPU 0 (H100) gone, 0 of 1 left"]),
        (
            {"gpus": (CARD, replace(CARD, index=1, uuid="GPU-1", name=""))},
            ["GPU 1 newly there, 2 GPUs now"],
        ),
        ({"gpus": (replace(CARD, driver="560.1"),)}, ["nvidia driver 550.54 → 560.1"]),
        ({"gpus": (replace(CARD, memory=Bytes(75 * GIB)),)}, ["GPU 0 memory 80 GiB → 75 GiB"]),
        ({"gpus": (), "gpu_problem": "exit 9"}, ["GPU probe failed: exit 9"]),
        ({"adapters": (replace(PORT, state=PortState.INIT),)}, ["mlx5_0 ACTIVE → INIT"]),
        ({"adapters": (replace(PORT, rate="100 Gb/sec"),)}, ["mlx5_0 rate 200 Gb/sec → 100 Gb/sec"]),
        ({"adapters": (replace(PORT, gid_prefix="fec1"),)}, ["mlx5_0 GID prefix fec0 → fec1"]),
        ({"adapters": (PORT, replace(PORT, port=2))}, ["adapter mlx5_0:2 newly there"]),
        ({"adapters": ()}, ["adapter mlx5_0 gone"]),
        ({"adapters": (), "adapter_problem": "no sysfs"}, ["adapter probe failed: no sysfs"]),
        ({"fabrics": ()}, ["fabric ib-a mlx5_0 → none"]),
        ({"disks": (replace(DISK, free=Bytes(GIB)),)}, ["/w is nearly full"]),
        ({"disks": (replace(DISK, problem="does not answer"),)}, ["/w: does not answer"]),
        ({"by_hand": (ByHand(field="memory", stated="8GiB"),)}, ["memory by hand none → 8GiB"]),
        ({"recorded": "/r"}, ["recorded machine none → /r"]),
    ],
)
def test_a_change_in_words(after: dict[str, object], words: list[str]) -> None:
    changed = replace(PLAIN, **after)  # type: ignore[arg-type]
    assert changes(PLAIN, changed) == words
    assert changes(changed, PLAIN) != []


@pytest.mark.parametrize(
    "after",
    [
        {"disks": (replace(DISK, free=Bytes(TIB // 3)),)},
        {"gpu_holders": (GpuHolder(gpu="GPU-0", pid=1, command="python", memory=Bytes(GIB)),)},
        {"certificate_ends": 1.0},
        {"memory": 8 * GIB + 4096},
    ],
)
def test_what_wobbles_is_no_change(after: dict[str, object]) -> None:
    assert changes(PLAIN, replace(PLAIN, **after)) == []  # type: ignore[arg-type]


def test_a_probe_that_works_again_is_said_and_the_same_failure_again_is_not() -> None:
    failed = replace(PLAIN, gpu_problem="exit 9")
    assert changes(failed, replace(failed, gpus=())) == []
    assert changes(failed, PLAIN) == ["GPU probe works again"]


def test_a_vendor_whose_probe_fails_keeps_its_cards_while_another_vendors_are_listed() -> None:
    amd = Gpu(vendor=GpuVendor.AMD, index=0, uuid="AMD-0", name="MI210")
    before = replace(PLAIN, gpus=(CARD, amd))
    after = replace(PLAIN, gpus=(amd,), gpu_problem="nvidia-smi: exit 9")
    assert listed(before.gpus, after) == (amd, CARD)
    assert gone(before, after) == []


def test_cards_without_a_uuid_are_told_apart_by_where_they_are() -> None:
    first, second = (replace(CARD, uuid="", pci=f"0000:0{number}:00.0", index=number) for number in (1, 2))
    assert gone(replace(PLAIN, gpus=(first, second)), replace(PLAIN, gpus=(second,))) == [first]


def test_what_changes_all_at_once_is_told_within_bounds() -> None:
    ports = [replace(PORT, name=f"mlx5_{number}", rate="9" * 1000) for number in range(64)]
    after = replace(PLAIN, adapters=tuple(replace(port, rate="8" * 1000) for port in ports))
    found = changes(replace(PLAIN, adapters=tuple(ports)), after)
    assert (len(found), found[-1]) == (17, "and 48 more")
    assert all(len(words) < 450 for words in found)


INVENTORIES = values(Inventory, v1.Inventory)


@settings(max_examples=150, deadline=None)
@given(INVENTORIES)
def test_equal_inventories_have_not_changed(one: Inventory) -> None:
    assert changes(one, one) == []
    assert gone(one, one) == []


@settings(max_examples=150, deadline=None)
@given(INVENTORIES, INVENTORIES, st.data())
def test_any_two_inventories_can_be_compared_and_equal_ones_but_for_wobble_have_not_changed(
    one: Inventory, other: Inventory, data: st.DataObject
) -> None:
    names = data.draw(st.sets(st.sampled_from([field.name for field in fields(Inventory)])))
    mixed = replace(one, **{name: getattr(other, name) for name in names})
    assert all(words for words in changes(one, mixed))
    wobbled = replace(one, gpu_holders=other.gpu_holders, certificate_ends=other.certificate_ends)
    assert changes(one, wobbled) == []
    assert lasting(one) == lasting(wobbled)
