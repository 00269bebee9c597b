"""How much memory there is and how much is left, on machines and in control groups."""

from pathlib import Path

import psutil
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from llmgw.agent.discovery import memory
from llmgw.agent.discovery.cgroups import around
from llmgw.agent.discovery.root import Root
from llmgw.core.units import GIB, MIB
from tests.agent import recorded
from tests.agent.test_cpu import tree

MEMINFO = "MemTotal: 8388608 kB\nMemAvailable: 6291456 kB\n"
GROUPS = "sys/fs/cgroup"


def test_this_machine_says_what_another_reader_of_it_says():
    assert memory.ram(Root()).machine == psutil.virtual_memory().total
    assert 0 < memory.available(Root()) <= memory.total(Root()) <= psutil.virtual_memory().total


def test_the_tightest_limit_around_us_counts(tmp_path: Path):
    root = tree(
        tmp_path,
        {
            "proc/meminfo": MEMINFO,
            "proc/self/cgroup": "0::/a.slice/b.service\n",
            f"{GROUPS}/a.slice/b.service/memory.max": "max\n",
            f"{GROUPS}/a.slice/memory.max": f"{GIB}\n",
        },
    )
    assert memory.ram(root) == memory.Ram(machine=8 * GIB, limit=GIB)
    (tmp_path / "proc/self/cgroup").write_text("0::/\n")
    assert memory.ram(root) == memory.Ram(machine=8 * GIB, limit=None)


def test_a_limit_that_slows_down_counts_as_one_that_ends(tmp_path: Path):
    groups = {f"{GROUPS}/a/memory.max": f"{4 * GIB}", f"{GROUPS}/a/memory.high": f"{3 * GIB}"}
    root = tree(tmp_path, {"proc/meminfo": MEMINFO, "proc/self/cgroup": "0::/a\n"} | groups)
    assert memory.total(root) == 3 * GIB


def test_a_limit_above_what_the_machine_has_is_none(tmp_path: Path):
    groups = {f"{GROUPS}/a/memory.max": f"{9 * GIB}"}
    root = tree(tmp_path, {"proc/meminfo": MEMINFO, "proc/self/cgroup": "0::/a\n"} | groups)
    assert memory.ram(root).limit is None


def test_a_limited_container_does_not_claim_what_its_host_has_left(tmp_path: Path):
    root = recorded.load("cgroup1-limit").lay(tmp_path / "first")
    assert memory.available(root) == 16 * GIB - (6 * GIB - 4 * GIB)
    root = recorded.load("cgroup2-limit").lay(tmp_path / "second")
    assert memory.available(root) == 48 * GIB - (10 * GIB - 6 * GIB)


def test_a_group_that_uses_more_than_it_may_has_nothing_left(tmp_path: Path):
    groups = {f"{GROUPS}/a/memory.max": f"{MIB}", f"{GROUPS}/a/memory.current": f"{2 * MIB}"}
    root = tree(tmp_path, {"proc/meminfo": MEMINFO, "proc/self/cgroup": "0::/a\n"} | groups)
    assert memory.available(root) == 0


def test_an_old_kernel_says_what_is_free_and_what_is_cached(tmp_path: Path):
    root = tree(tmp_path, {"proc/meminfo": "MemTotal: 1000 kB\nMemFree: 100 kB\nCached: 300 kB\n"})
    assert memory.available(root) == 400 * 1024


@pytest.mark.parametrize("text", ["", "MemTotal: 0 kB\n", "MemTotal: -1 kB\n", "MemTotal: 5 MB\n", "MemTotal 5 kB\n"])
def test_a_kernel_that_does_not_say_is_trouble_and_not_a_number(text: str, tmp_path: Path):
    root = tree(tmp_path, {"proc/meminfo": text})
    with pytest.raises(OSError, match="does not say how much memory there is"):
        memory.total(root)
    with pytest.raises(OSError, match="does not say how much memory is left"):
        memory.available(root)


def test_where_groups_are_looked_for(tmp_path: Path):
    def said(text: str, controller: str) -> list[str]:
        return [name.removeprefix(GROUPS) for name in around(tree(tmp_path, {"proc/self/cgroup": text}), controller)]

    assert said("0::/a/b", "memory") == ["/a/b", "/a", "", "/unified/a/b", "/unified/a", "/unified"]
    assert said("4:memory:/a\n3:cpuset:/\n1:name=systemd:/a", "memory") == ["/memory/a", "/memory"]
    assert said("2:cpu,cpuacct:/", "cpu") == ["/cpu", "/cpu,cpuacct"]
    assert said("0::/../x", "cpu") == ["", "/unified"]
    assert said("", "cpu") == said("memory\n::\n4:mem:/", "memory")[:0] == []


TEXTS = st.one_of(
    st.text(max_size=60),
    st.integers(-(1 << 70), 1 << 70).map(str),
    st.builds("{}: {} kB".format, st.sampled_from(["MemTotal", "MemAvailable", "MemFree"]), st.integers(-9, 1 << 70)),
    st.builds("{}:{}:{}".format, st.integers(0, 9), st.sampled_from(["", "memory"]), st.text(max_size=20)),
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60)
@given(st.fixed_dictionaries({}, optional={
    "proc/meminfo": TEXTS,
    "proc/self/cgroup": TEXTS,
    f"{GROUPS}/memory.max": TEXTS,
    f"{GROUPS}/memory.current": TEXTS,
    f"{GROUPS}/memory.stat": TEXTS,
    f"{GROUPS}/memory/memory.limit_in_bytes": TEXTS,
}))  # fmt: skip
def test_no_machine_raises_anything_but_the_trouble(tmp_path: Path, files: dict[str, str]):
    for old in tmp_path.rglob("*"):
        if old.is_file():
            old.unlink()
    root = tree(tmp_path, {name: text.encode("utf-8", "replace").decode() for name, text in files.items()})
    for ask in (memory.total, memory.available):
        try:
            assert 0 <= ask(root) <= 1 << 61
        except OSError as error:
            assert "does not say how much memory" in str(error)
