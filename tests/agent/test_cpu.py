"""Which processor it is, and how much of it may be used."""

import os
import re
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from llmgw.agent.discovery.arm_parts import part_name
from llmgw.agent.discovery.cpu import cpu, features
from llmgw.agent.discovery.numa import numa
from llmgw.agent.discovery.numbers import MOST, kib, processors, whole
from llmgw.agent.discovery.root import Root


def tree(path: Path, files: dict[str, str]) -> Root:
    """A machine of these files alone."""
    for name, text in files.items():
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).write_text(text)
    return Root.recorded(path)


def test_flags_of_either_kind_of_processor():
    assert features("flags\t\t: fpu avx2 avx sse4_2 smep ht f16c\n\nflags: amx_tile\n") == (
        "avx",
        "avx2",
        "f16c",
        "sse4_2",
    )
    assert features("Features : fp asimd sve i8mm bf16 crc32\n") == ("asimd", "bf16", "i8mm", "sve")


def test_a_processor_with_cores_of_two_kinds_has_both_names(tmp_path: Path):
    block = "processor\t: {}\nCPU implementer\t: 0x41\nCPU variant\t: 0x0\nCPU part\t: {}\n\n"
    cpuinfo = "".join(block.format(n, "0xd87" if n < 10 else "0xd85") for n in range(20))
    found = cpu(Root.recorded(tmp_path), cpuinfo)
    assert (found.model, found.cores) == ("Cortex-A725 + Cortex-X925", 20)


def test_an_arm_processor_that_is_not_known_is_named_by_its_numbers(tmp_path: Path):
    assert part_name("0x41", "0xfff") == "arm 0x41/0xfff"
    assert cpu(Root.recorded(tmp_path), "CPU implementer\t: 0x41\nCPU part\t: 0xfff\n").model == "arm 0x41/0xfff"
    board = tree(tmp_path, {"proc/device-tree/model": "Raspberry Pi 4 Model B\0"})
    assert cpu(board, "processor: 0\n").model == "Raspberry Pi 4 Model B"


def test_on_this_machine_the_processors_are_those_that_we_may_use():
    assert cpu(Root(), Path("/proc/cpuinfo").read_text()).cores <= len(os.sched_getaffinity(0))


def test_the_smallest_share_of_time_counts(tmp_path: Path):
    groups = "sys/fs/cgroup"
    root = tree(
        tmp_path,
        {
            "proc/self/cgroup": "0::/a/b\n",
            f"{groups}/a/b/cpu.max": "max 100000",
            f"{groups}/a/cpu.max": "150000 100000",
            f"{groups}/cpu.max": "400000 100000",
        },
    )
    assert cpu(root, "").quota == 1.5


def test_a_node_without_memory_and_one_without_cores_are_nodes(tmp_path: Path):
    place = "sys/devices/system/node"
    root = tree(
        tmp_path,
        {
            f"{place}/node10/cpulist": "",
            f"{place}/node10/meminfo": "Node 10 MemTotal:       98304 kB\n",
            f"{place}/node2/cpulist": "0-1\n",
            f"{place}/nodes/cpulist": "7\n",
        },
    )
    assert [(one.index, one.cores, one.memory) for one in numa(root)] == [(2, 2, 0), (10, 0, 98304 * 1024)]


# --- numbers ----------------------------------------------------------------------------------------------------


def test_a_list_of_processors():
    assert processors("0-3,8,10-11\n") == {0, 1, 2, 3, 8, 10, 11}
    assert processors("") == processors("3-1,x,-,1-,-1") == frozenset()
    assert processors("0-99999999999") == frozenset()


@pytest.mark.parametrize("text", ["", "-1", "1.5", "٣", "1e9", "0x10", "1" * 40, str(MOST + 1), "max"])
def test_what_is_no_number_of_the_kernels_is_none(text: str):
    assert whole(text) is None


def test_a_number_of_kib():
    assert kib("  65536000 kB") == 65536000 * 1024
    assert kib("65536000") is kib("1 MB") is kib(f"{MOST} kB") is kib("") is None


@given(st.text())
def test_no_text_is_more_than_a_number_or_none(text: str):
    number = whole(text)
    assert number is None or re.fullmatch(r"\s*[0-9]+\s*", text)
    assert kib(text) is None or kib(text) >= 0  # type: ignore[operator]
    assert len(processors(text)) <= 1 << 16


LINES = st.lists(
    st.one_of(
        st.text(),
        st.builds(
            "{}\t: {}".format,
            st.sampled_from(["processor", "flags", "Features", "model name", "CPU implementer", "CPU part", "cpu"]),
            st.one_of(st.text(), st.from_regex(r"[0-9a-fx_ ]{0,40}", fullmatch=True)),
        ),
    ),
    max_size=30,
).map("\n".join)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(LINES)
def test_no_text_of_the_kernel_breaks_the_description(tmp_path: Path, cpuinfo: str):
    found = cpu(Root.recorded(tmp_path), cpuinfo)
    assert len(found.model) <= 200
    assert 0 <= found.cores <= cpuinfo.count("processor")
    assert all(re.fullmatch(r"[a-z0-9_]{1,32}", word) for word in found.features)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.text(), st.text())
def test_no_text_breaks_a_numa_node(tmp_path: Path, cpulist: str, meminfo: str):
    files = {"cpulist": cpulist, "meminfo": f"Node 0 MemTotal: {meminfo}"}
    place = "sys/devices/system/node/node0"
    root = tree(tmp_path, {f"{place}/{name}": text.encode("utf-8", "replace").decode() for name, text in files.items()})
    (node,) = numa(root)
    assert 0 <= node.cores <= 1 << 16
    assert 0 <= node.memory <= MOST
