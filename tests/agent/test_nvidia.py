"""NVIDIA's GPUs, as its tool and the PCI bus tell of them.

There is no such GPU on the machine that runs these tests: the tool is a script that answers as the real one does.
"""

import asyncio
import threading
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llmgw.agent.discovery import gpus, nvidia, pci_bus
from llmgw.agent.discovery import nvidia_smi as smi
from llmgw.agent.discovery.gpus_found import Gpus
from llmgw.agent.discovery.holders import MOST, Held, foreign
from llmgw.agent.discovery.root import Root
from llmgw.agent.launch import pids
from llmgw.agent.run import Ran
from llmgw.core.inventory import Gpu
from llmgw.core.units import GIB, MIB, Bytes
from tests.agent import recorded

TOTAL, AVAILABLE = Bytes(100 * GIB), Bytes(70 * GIB)
ROW = "0, GPU-aa, NVIDIA L4, 00000000:17:00.0, 23034, 512, 550.90.07, 8.9, [N/A]"


def nobody(pid: int) -> bool:
    return False


def machine(path: Path, script: str = "", files: dict[str, str] | None = None) -> Root:
    """A machine with a tool that runs `script`, and files by their path."""
    root = Root.recorded(path)
    if script:
        tool = path / "bin" / "nvidia-smi"
        tool.parent.mkdir(parents=True)
        tool.write_text(f"#!/bin/sh\n{script}\n")
        tool.chmod(0o755)
    for name, text in (files or {}).items():
        file = root.at(name)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return root


def written(path: Path) -> list[int]:
    """The numbers in all files of this kind."""
    return [int(word) for file in path.glob("*.pids") for word in file.read_text().split()]


async def look(root: Root, limit: float = 20.0) -> Gpus:
    return await gpus.look(root, TOTAL, AVAILABLE, nobody, limit=limit)


# --- asking -----------------------------------------------------------------------------------------------------


async def test_questions_that_all_hang_cost_one_limit_together_and_leave_no_process(tmp_path: Path):
    """Each call would hang for a minute, and so does what it started."""
    root = machine(tmp_path, f"/bin/sleep 61 & echo $$ $! >{tmp_path}/$$.pids; wait")
    loop = asyncio.get_running_loop()
    start = loop.time()
    found = await look(root, limit=2.0)
    assert loop.time() - start < 4.5
    assert found == Gpus(problem="nvidia-smi: did not end within 2s")
    started = written(tmp_path)
    assert len(started) == 6
    for pid in started:
        if (when := pids.started_at(pid)) is not None:
            async with asyncio.timeout(5):
                await pids.gone(pid, when)


async def test_the_second_query_has_what_the_first_left_of_the_limit(tmp_path: Path):
    root = machine(
        tmp_path,
        'case "$*" in *compute_cap*) /bin/sleep 1.2; echo "Field is not a valid field to query."; exit 2 ;; esac\n'
        "exec /bin/sleep 62",
    )
    loop = asyncio.get_running_loop()
    start = loop.time()
    found = await look(root, limit=2.0)
    assert loop.time() - start < 3.0
    assert found.problem.startswith("nvidia-smi: did not end within")


async def test_a_tool_that_is_killed_says_so(tmp_path: Path):
    assert await look(machine(tmp_path, "kill -9 $$")) == Gpus(problem="nvidia-smi: ended by signal 9 without a word")


async def test_a_tool_that_cannot_be_started_is_a_problem(tmp_path: Path):
    root = machine(tmp_path, "true")
    (tmp_path / "bin" / "nvidia-smi").write_bytes(b"\x7fELF no program")
    assert (await look(root)).problem == "nvidia-smi: cannot be started: exec format error"


async def test_memory_in_use_stands_beside_each_gpu(tmp_path: Path):
    """Of a divided card's parts it is not said; of unified memory it is the machine's."""
    laid = recorded.load("a100-mig").lay(tmp_path / "mig")
    found = await look(laid)
    assert found.used == (87 * MIB, 0, 0, 0, 0, 4 * MIB)
    found = await look(recorded.load("gb10").lay(tmp_path / "gb10"))
    assert (found.gpus[0].memory, found.used) == (TOTAL, (30 * GIB,))


async def test_a_list_that_fails_is_a_problem_beside_the_gpus(tmp_path: Path):
    """Whether a card is divided is not known then."""
    found = await look(
        machine(tmp_path, f'case "$*" in *query-gpu*) echo "{ROW}" ;; -L) echo broken; exit 255 ;; esac')
    )
    assert len(found.gpus) == 1
    assert found.problem == "nvidia-smi -L: exit status 255: broken"


async def test_processes_that_cannot_be_listed_are_a_problem_only_when_the_tool_hangs(tmp_path: Path):
    script = 'case "$*" in *compute-apps*) {} ;; *query-gpu*) echo "{}" ;; esac'
    silent = await look(machine(tmp_path / "a", script.format("echo 'Not Supported'; exit 3", ROW)))
    assert (len(silent.gpus), silent.holders, silent.problem) == (1, (), "")
    hung = await look(machine(tmp_path / "b", script.format("exec /bin/sleep 63", ROW)), limit=2.0)
    assert len(hung.gpus) == 1
    assert hung.problem.endswith("did not end within 2s")


async def test_a_loaded_driver_without_its_tool_is_a_problem(tmp_path: Path):
    """A container sees the driver of its host, also when no GPU was given to it."""
    files = {"proc/driver/nvidia/version": "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.14"}
    problem = "an NVIDIA driver is loaded and nvidia-smi is not on the PATH: install it"
    assert (await look(machine(tmp_path / "a", files=files))).problem == problem
    within = machine(tmp_path / "b", files=files | {"run/.containerenv": ""})
    assert await look(within) == Gpus()
    within.at("dev").mkdir()
    within.at("dev/nvidiactl").touch()
    assert (await look(within)).problem == problem


async def test_no_devices_is_an_answer_only_with_its_own_status(tmp_path: Path):
    assert await look(machine(tmp_path / "a", "echo 'No devices were found'; exit 6")) == Gpus()
    failed = await look(machine(tmp_path / "b", "echo 'No devices were found'; exit 9"))
    assert failed.problem == "nvidia-smi: exit status 9: No devices were found (the driver is not loaded)"


async def test_what_is_lent_to_virtual_machines_is_not_missed(tmp_path: Path):
    """One card is lent as a whole; the other one lends a function."""
    at = pci_bus.DEVICES
    names = ("0000:17:00.0", "0000:17:00.4", "0000:31:00.0")
    files = {f"{at}/{name}/vendor": "0x10de" for name in names} | {f"{at}/{name}/class": "0x030200" for name in names}
    root = machine(tmp_path, f'case "$*" in *query-gpu*) echo "{ROW}" ;; esac', files)
    assert (await look(root)).problem == (
        "nvidia-smi lists 1 of 3 NVIDIA devices on the PCI bus; missing 0000:17:00.4, 0000:31:00.0"
    )
    root.at(f"{at}/0000:17:00.4/physfn").symlink_to("../0000:17:00.0")
    root.at(f"{at}/0000:31:00.0/driver").symlink_to("../../../../bus/pci/drivers/vfio-pci")
    assert (await look(root)).problem == ""


async def test_a_card_with_parts_is_divided_whether_its_driver_says_so_or_not(tmp_path: Path):
    listed = "GPU 0: NVIDIA L4 (UUID: GPU-aa)\n  MIG 1g.5gb     Device  0: (UUID: MIG-a)"
    found = await look(machine(tmp_path, f'case "$*" in *query-gpu*) echo "{ROW}" ;; -L) echo "{listed}" ;; esac'))
    assert [(gpu.uuid, gpu.divided) for gpu in found.gpus] == [("GPU-aa", True), ("MIG-a", False)]


async def test_no_tool_and_no_device_is_a_node_without_gpus(tmp_path: Path):
    assert await look(machine(tmp_path)) == Gpus()


async def test_kernel_files_that_hang_do_not_hold_the_look(tmp_path: Path):
    """A process that is stuck in the kernel may keep who reads its command line waiting for ever."""
    root = machine(tmp_path, f'case "$*" in *query-gpu*) echo "{ROW}" ;; *apps*) echo "GPU-aa, 7, x, 1" ;; esac')
    let_go = threading.Event()

    def stuck(pid: int) -> bool:
        return let_go.wait(30)

    found = await gpus.look(root, TOTAL, AVAILABLE, stuck, limit=2.0)
    let_go.set()
    assert found.problem == "the kernel's files about GPUs and their processes did not answer within 2s"


# --- reading the query ------------------------------------------------------------------------------------------


def one(line: str) -> smi.Row:
    answer = smi.rows(line, smi.FIELDS)
    assert answer.bad == ()
    (row,) = answer.rows
    return row


def test_a_name_with_commas_and_fields_that_are_not_said():
    row = one(
        "3, [N/A], A, B, C, [Unknown Error], 8, Not Supported, [Insufficient Permissions], N/A, [Not Supported]\n"
    )
    assert row == smi.Row(gpu=Gpu(index=3, name="A, B, C", memory=Bytes(8 * MIB)), used=None)


@pytest.mark.parametrize(
    ("name", "unified"),
    [
        ("NVIDIA GB10", True),
        ("NVIDIA Thor", True),
        ("Orin (nvgpu)", True),
        ("NVIDIA N1X", True),
        ("NVIDIA GB100", False),
        ("NVIDIA GB200", False),
        ("NVIDIA GH200 480GB", False),
        ("NVIDIA A100-SXM4-80GB", False),
    ],
)
def test_unified_memory_is_known_by_the_name(name: str, unified: bool):
    """A data-centre card that does not say its memory has some all the same."""
    row = one(f"0, GPU-a, {name}, 00000000:01:00.0, [N/A], [N/A], 580.95, 9.0, Disabled")
    assert (row.gpu.unified, row.gpu.memory) == (unified, None)


@pytest.mark.parametrize(
    "line",
    ["0, GPU-b", "x, GPU-b, n, p, 1, 1, d, 9.0, [N/A]", "99999, GPU-b, n, p, 1, 1, d, 9.0, [N/A]", "²" + ROW, ROW],
)
def test_a_line_that_is_no_gpu_is_told_beside_the_others(line: str):
    answer = smi.rows(f"{ROW}\n{line}\n", smi.FIELDS)
    assert [row.gpu.uuid for row in answer.rows] == ["GPU-aa"]
    assert line.strip()[:20] in answer.bad[0]


async def test_the_first_unreadable_line_is_named(tmp_path: Path):
    found = await look(machine(tmp_path, f'case "$*" in *query-gpu*) printf "{ROW}\\nnonsense\\nmore\\n" ;; esac'))
    assert len(found.gpus) == 1
    assert found.problem == "nvidia-smi: the line 'nonsense' is no GPU, and 1 more"


def test_more_gpus_than_any_machine_has_are_not_taken():
    text = "".join(f"{n}, GPU-{n}, n, 00000000:01:00.0, 1, 1, d, 9.0, [N/A]\n" for n in range(1000))
    answer = smi.rows(text, smi.FIELDS)
    assert (len(answer.rows), len(answer.bad)) == (64, 936)


@pytest.mark.parametrize(
    ("said", "address"),
    [
        ("0000000F:01:00.0", "000f:01:00.0"),
        ("00000000:8B:00.0", "0000:8b:00.0"),
        ("0000:8b:00.0", "0000:8b:00.0"),
        ("00010000:E1:00.0", "10000:e1:00.0"),
        ("[N/A]", ""),
        ("", ""),
        ("../../etc", ""),
    ],
)
def test_a_bus_id_becomes_the_address_of_sysfs(said: str, address: str):
    assert pci_bus.address(said) == address


# --- parts ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("profile", "gib"),
    [
        ("1g.5gb", 4.75),
        ("7g.40gb", 39.50),
        ("1g.10gb", 9.50),
        ("3g.40gb", 39.25),
        ("7g.80gb", 78.75),
        ("1g.6gb", 5.81),
        ("1g.18gb", 16.00),
        ("1c.3g.40gb", 39.25 / 3),
        ("2c.3g.40gb", 39.25 / 3 * 2),
        ("1g.10gb+me", 9.50),
    ],
)
def test_a_part_is_never_given_more_memory_than_it_has(profile: str, gib: float):
    """Sizes as `nvidia-smi mig -lgip` lists them on A100, A30, H100 and H200."""
    memory = smi.of_part(Gpu(index=0), smi.Part("GPU-a", "MIG-a", profile)).memory
    assert memory is not None
    assert 0.85 * gib * GIB < memory <= gib * GIB


def test_a_part_of_an_unknown_kind_has_no_memory_that_is_known():
    assert smi.of_part(Gpu(index=0, memory=Bytes(GIB)), smi.Part("GPU-a", "MIG-a", "new.kind")).memory is None


def test_parts_belong_to_the_card_above_them():
    text = (
        "  MIG 1g.10gb     Device  0: (UUID: MIG-before-any-card)\n"
        "GPU 0: NVIDIA H100, the (large) one (UUID: GPU-a)\n"
        "GPU 1: NVIDIA H100 (UUID: GPU-b)\n"
        "  MIG 1g.10gb     Device  0: (UUID: MIG-GPU-b/1/0)\n"
        "something else\n"
    )
    assert smi.parts(text) == (smi.Part("GPU-b", "MIG-GPU-b/1/0", "1g.10gb"),)
    many = "GPU 0: x (UUID: GPU-a)\n" + "".join(f"  MIG 1g.5gb Device {n}: (UUID: MIG-{n})\n" for n in range(99))
    assert len(smi.parts(many)) == 8


# --- holders ----------------------------------------------------------------------------------------------------


def test_engines_of_ours_hold_nothing_from_us(tmp_path: Path):
    root = machine(tmp_path, files={"proc/7/cmdline": "a\0-b\0"})
    held = [Held("GPU-a", 7, "a", Bytes(1)), Held("GPU-a", 8, "llama-server", Bytes(2))]
    assert [(one.pid, one.command) for one in foreign(root, held, lambda pid: pid == 8)] == [(7, "a -b")]


def test_in_a_container_only_processes_that_are_in_it_are_told(tmp_path: Path):
    """By its number on the host an engine of ours would look like somebody else's."""
    root = machine(tmp_path, files={"proc/7/cmdline": "a", "run/.containerenv": ""})
    held = [Held("GPU-a", 7, "a", None), Held("GPU-a", 40007, "llama-server", None)]
    assert [one.pid for one in foreign(root, held, nobody)] == [7]


def test_holders_and_their_commands_are_bounded(tmp_path: Path):
    root = machine(tmp_path, files={"proc/7/cmdline": "x" * 10_000})
    found = foreign(root, [Held("GPU-a", pid, "x", None) for pid in range(1, 500)], nobody)
    assert len(found) == MOST
    assert len(found[6].command) == 200


def test_process_names_may_hold_commas_and_may_be_missing():
    assert smi.apps("GPU-a, 5, /a, b/c, 20\nGPU-a, 6, [Not Found], [N/A]\nNo running processes found\n") == (
        Held("GPU-a", 5, "/a, b/c", Bytes(20 * MIB)),
        Held("GPU-a", 6, "", None),
    )
    assert smi.apps("GPU-a, 0, a, 1\nGPU-a, -1, a, 1\nGPU-a, 99999999, a, 1\nGPU-a, x, a, 1\n") == ()


# --- whatever a tool may write ----------------------------------------------------------------------------------

WORDS = st.sampled_from(
    ["0", "1", "GPU-a", "NVIDIA A100", "[N/A]", "[GPU is lost]", "00000000:17:00.0", "81920", "9" * 30, "²", "Enabled"]
)
LINES = st.lists(WORDS, max_size=12).map(", ".join) | st.sampled_from(
    ["GPU 0: A (UUID: GPU-a)", "  MIG 1g.10gb Device 0: (UUID: MIG-a)", "  MIG 9c.1g.1gb Device 0: (UUID: MIG-b)", "\0"]
)
TEXTS = st.text() | st.lists(LINES | st.text(max_size=40), max_size=12).map("\n".join)


@settings(deadline=None)  # it reads files
@given(query=TEXTS, parts=TEXTS, apps=TEXTS, status=st.sampled_from([0, 2, 6, 15, None]), old=st.booleans())
def test_no_answer_raises_or_breaks_what_is_promised(
    query: str, parts: str, apps: str, status: int | None, old: bool, tmp_path_factory: pytest.TempPathFactory
):
    root = Root.recorded(tmp_path_factory.getbasetemp())
    problem = "" if status is not None else "did not end within 5s"
    asked = nvidia.Asked(
        query=Ran(status, query, "", problem=problem),
        fields=smi.OLD_FIELDS if old else smi.FIELDS,
        parts=Ran(0, parts, ""),
        apps=Ran(0, apps, ""),
    )
    found = nvidia.read(root, asked, TOTAL, AVAILABLE, nobody)
    assert len(found.used) == len(found.gpus) <= 64 * 9
    assert len(found.holders) <= MOST
    assert len(found.problem) < 600
    for gpu in found.gpus:
        assert gpu.memory is None or 0 <= gpu.memory <= 1 << 60
        assert max(map(len, (gpu.name, gpu.uuid, gpu.driver, gpu.compute, gpu.parent))) <= 200
        assert not (gpu.parent and gpu.divided)
    named = [gpu.uuid for gpu in found.gpus if gpu.uuid]
    assert len(set(named)) == len(named)
    if status not in (0, 6):
        assert found.problem
