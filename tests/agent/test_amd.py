"""AMD's GPUs, as the kernel's files and AMD's tools tell of them.

There is no such GPU on the machine that runs these tests: the files and the tools' answers are written down.
"""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llmgw.agent.discovery import amd, gpus, kfd, pci_bus, rocm
from llmgw.agent.discovery.gpus_found import Gpus
from llmgw.agent.discovery.root import Root
from llmgw.core.units import GIB, Bytes
from tests.agent import recorded

ONE = f"{pci_bus.DEVICES}/0000:03:00.0"
OTHER = f"{pci_bus.DEVICES}/0000:0c:00.0"


def nobody(pid: int) -> bool:
    return False


def machine(path: Path, files: dict[str, str], *, driver: str = "amdgpu") -> Root:
    """A machine with two cards and these files."""
    cards = {
        f"{at}/{name}": text for at in (ONE, OTHER) for name, text in (("vendor", "0x1002"), ("class", "0x030000"))
    }
    for name, text in (cards | files).items():
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).write_text(text)
    for at in (ONE, OTHER):
        (path / at / "driver").symlink_to(f"../../../../bus/pci/drivers/{driver}")
    return Root.recorded(path)


async def look(root: Root, ours: Callable[[int], bool] = nobody, limit: float = 20.0) -> Gpus:
    return await gpus.look(root, Bytes(0), Bytes(0), ours, limit=limit)


# --- which cards count ------------------------------------------------------------------------------------------


def test_without_a_topology_a_card_counts_by_its_memory(tmp_path: Path):
    """The small one is the processor's own and drives the screen."""
    files = {f"{ONE}/mem_info_vram_total": str(24 * GIB), f"{OTHER}/mem_info_vram_total": str(GIB // 2)}
    (gpu,) = amd.read(machine(tmp_path, files), [], nobody).gpus
    assert (gpu.pci, gpu.memory, gpu.uuid, gpu.compute) == ("0000:03:00.0", 24 * GIB, "0", "")


def test_with_a_topology_a_card_counts_that_is_in_it(tmp_path: Path):
    """Its order is the runtime's, and so is the number."""
    nodes = "sys/class/kfd/kfd/topology/nodes"
    files = {
        f"{nodes}/2/gpu_id": "77",
        f"{nodes}/2/properties": f"location_id {0x0C << 8}\ngfx_target_version 110501\n",
        f"{nodes}/10/gpu_id": "88",
        f"{nodes}/10/properties": f"location_id {3 << 8}\ngfx_target_version 90402\n",
        f"{nodes}/0/gpu_id": "0",
    }
    found = amd.read(machine(tmp_path, files), [], nobody).gpus
    assert [(gpu.index, gpu.pci, gpu.compute) for gpu in found] == [
        (0, "0000:0c:00.0", "gfx1151"),
        (1, "0000:03:00.0", "gfx942"),
    ]
    (tmp_path / nodes / "2" / "gpu_id").write_text("0")
    assert [gpu.pci for gpu in amd.read(Root.recorded(tmp_path), [], nobody).gpus] == ["0000:03:00.0"]


def test_a_container_has_the_cards_that_were_given_to_it(tmp_path: Path):
    files = {f"{at}/mem_info_vram_total": str(24 * GIB) for at in (ONE, OTHER)}
    files |= {f"{ONE}/drm/renderD128/dev": "", f"{OTHER}/drm/renderD129/dev": "", "run/.containerenv": ""}
    root = machine(tmp_path, files | {"dev/dri/renderD129": ""})
    assert amd.read(root, [], nobody).gpus == ()
    (tmp_path / "dev" / "kfd").touch()
    assert [gpu.pci for gpu in amd.read(root, [], nobody).gpus] == ["0000:0c:00.0"]


def test_a_card_lent_to_a_virtual_machine_is_none_of_ours_and_no_problem(tmp_path: Path):
    root = machine(tmp_path, {f"{ONE}/mem_info_vram_total": str(24 * GIB)}, driver="vfio-pci")
    found = amd.read(root, [], nobody)
    assert (found.gpus, found.problem) == ((), "")


@pytest.mark.parametrize(
    ("version", "name"),
    [(90010, "gfx90a"), (90402, "gfx942"), (90500, "gfx950"), (100306, "gfx1036"), (110501, "gfx1151"), (0, "")],
)
def test_the_target_version_names_the_architecture(version: int, name: str):
    assert kfd.gfx(version) == name


async def test_used_memory_stands_beside_each_gpu(tmp_path: Path):
    found = await look(recorded.load("mi210-rocm-smi").lay(tmp_path))
    assert found.used == (10747904, 10747904, 51527024640, 10747904)


async def test_engines_of_ours_hold_nothing_from_us(tmp_path: Path):
    root = recorded.load("mi210-without-tools").lay(tmp_path)
    assert (await look(root, lambda pid: pid == 8123)).holders == ()


async def test_problems_of_both_makers_are_both_told(tmp_path: Path):
    root = recorded.load("amd-without-driver").lay(tmp_path)
    tool = tmp_path / "bin" / "nvidia-smi"
    tool.parent.mkdir()
    tool.write_text("#!/bin/sh\necho no; exit 9\n")
    tool.chmod(0o755)
    found = await look(root)
    assert found.problem == (
        "nvidia-smi: exit status 9: no (the driver is not loaded); "
        "1 AMD GPU on the PCI bus without a driver (0000:03:00.0): load amdgpu"
    )


async def test_a_tool_that_hangs_costs_names_and_nothing_else(tmp_path: Path):
    root = recorded.load("mi210-without-tools").lay(tmp_path)
    for name in ("amd-smi", "rocm-smi"):
        tool = tmp_path / "bin" / name
        tool.parent.mkdir(exist_ok=True)
        tool.write_text("#!/bin/sh\nexec /bin/sleep 64\n")
        tool.chmod(0o755)
    found = await look(root, limit=2.0)
    assert ([gpu.name for gpu in found.gpus], found.problem) == ([""] * 4, "")


# --- what the tools say -----------------------------------------------------------------------------------------


def test_cards_are_told_apart_by_place_where_the_tool_names_nothing_else(tmp_path: Path):
    """As rocm-smi of 2022 answers; `system` is no card."""
    said = rocm.rocm_smi(
        json.dumps(
            {
                "card1": {"Card series": "Instinct MI100", "VRAM Total Memory (B)": "34342961152"},
                "card0": {"Card series": "Instinct MI210", "Card model": "0x0c34"},
                "system": {"Driver version": "5.18.2"},
                "cardinal": {"Card series": "no card"},
            }
        )
    )
    assert [(one.name, one.driver) for one in said] == [("Instinct MI210", "5.18.2"), ("Instinct MI100", "5.18.2")]
    root = machine(tmp_path, {f"{at}/mem_info_vram_total": str(32 * GIB) for at in (ONE, OTHER)})
    assert [gpu.name for gpu in amd.read(root, said, nobody).gpus] == ["Instinct MI210", "Instinct MI100"]
    assert [gpu.name for gpu in amd.read(root, said[:1], nobody).gpus] == ["", ""]


def test_a_name_that_is_only_a_number_of_pci_is_none():
    assert rocm.rocm_smi('{"card0": {"Card Series": "N/A", "Card Model": "0x740f", "GFX Version": "GFX90A"}}') == [
        rocm.Told(compute="gfx90a")
    ]


def test_both_forms_of_amd_smi_and_words_before_its_answer():
    gpu = {"gpu": 0, "asic": {"market_name": "MI300X", "asic_serial": "0xABC"}, "bus": {"bdf": "0000:83:00.0"}}
    told = [rocm.Told(pci="0000:83:00.0", unique_id="0000000000000abc", name="MI300X")]
    assert rocm.amd_smi(json.dumps([gpu])) == told
    assert rocm.amd_smi("Permission needed [video]:\n  • /dev/kfd\n\n" + json.dumps({"gpu_data": [gpu]})) == told
    assert rocm.amd_smi('{"gpu_data": ' + "[" * 100_000) == []


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=20) | st.sampled_from(["0x12", "N/A", "0000:03:00.0"]),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(["gpu_data", "card0", "card1", "system", "asic", "bus", "bdf", "Unique ID", "PCI Bus"])
            | st.text(max_size=8),
            inner,
            max_size=6,
        )
    ),
    max_leaves=30,
)


@settings(deadline=None)
@given(st.text() | JSON.map(json.dumps))
def test_no_answer_of_a_tool_raises(text: str):
    for one in rocm.amd_smi(text) + rocm.rocm_smi(text):
        assert max(map(len, (one.pci, one.unique_id, one.name, one.compute, one.driver))) <= 200


@settings(deadline=None)  # it writes and reads files
@given(st.binary(max_size=40), st.binary(max_size=80) | st.just(b"location_id 768\ngfx_target_version -5\n"))
def test_no_file_of_the_kernel_raises(tmp_path_factory: pytest.TempPathFactory, number: bytes, properties: bytes):
    path = tmp_path_factory.mktemp("amd", numbered=True)
    root = machine(path, {})
    node = path / "sys/class/kfd/kfd/topology/nodes/3"
    node.mkdir(parents=True)
    (node / "gpu_id").write_bytes(b"5")
    (node / "properties").write_bytes(properties)
    for name in ("mem_info_vram_total", "mem_info_vram_used", "unique_id", "numa_node", "product_name"):
        (path / ONE / name).write_bytes(number)
    holder = path / "sys/class/kfd/kfd/proc/9"
    holder.mkdir(parents=True)
    (holder / "vram_5").write_bytes(number)
    found = amd.read(root, [], nobody)
    assert len(found.used) == len(found.gpus) <= 1
