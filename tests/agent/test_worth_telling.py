"""What of a look is news."""

from dataclasses import replace

from llmgw.agent.worth_telling import worth_telling
from llmgw.core.inventory import Cpu, Disk, GpuHolder, Inventory
from llmgw.core.units import GIB, MIB, TIB, Bytes

TOLD = Inventory(
    os="Debian",
    kernel="6",
    arch="x86_64",
    cpu=Cpu(cores=2),
    memory=GIB,
    disks=(Disk(directory="/a", uses=("state",), total=TIB, free=Bytes(500 * GIB)),),
    gpu_holders=(
        GpuHolder(gpu="GPU-a", pid=7, command="python", memory=Bytes(1000 * MIB)),
        GpuHolder(gpu="GPU-a", pid=9, command="other"),
    ),
    certificate_ends=1e9,
)
HOLDER, OTHER = TOLD.gpu_holders


def free(gib: float, told: Inventory = TOLD) -> Inventory:
    return replace(told, disks=(replace(told.disks[0], free=Bytes(int(gib * GIB))),))


def holders(*found: GpuHolder) -> Inventory:
    return replace(TOLD, gpu_holders=found)


def test_the_first_look_is_news_and_the_same_again_is_none():
    assert worth_telling(None, TOLD)
    assert not worth_telling(TOLD, replace(TOLD))


def test_free_space_wobbles_by_less_than_a_hundredth_of_the_disk():
    assert not worth_telling(TOLD, free(491))
    assert worth_telling(TOLD, free(489))
    assert worth_telling(TOLD, free(511))


def test_a_disk_that_becomes_nearly_full_is_news_however_little_changed():
    near = free(50.5)
    assert worth_telling(near, free(49.9))
    assert worth_telling(free(49.9), near)
    assert not worth_telling(near, free(50.1))


def test_another_size_directory_or_problem_of_a_disk_is_news():
    (disk,) = TOLD.disks
    for other in (
        replace(disk, total=Bytes(TIB + GIB)),
        replace(disk, directory="/b"),
        replace(disk, problem="is not there"),
        replace(disk, uses=("state", "weights")),
    ):
        assert worth_telling(TOLD, replace(TOLD, disks=(other,)))
    assert worth_telling(TOLD, replace(TOLD, disks=()))


def test_the_memory_that_a_process_holds_wobbles_by_less_than_a_tenth():
    def held(mib: int) -> Inventory:
        return holders(replace(HOLDER, memory=Bytes(mib * MIB)), OTHER)

    assert not worth_telling(TOLD, held(901))
    assert not worth_telling(TOLD, held(1099))
    assert worth_telling(TOLD, held(899))
    assert worth_telling(TOLD, held(1200))


def test_processes_come_and_go_and_their_order_is_no_news():
    assert not worth_telling(TOLD, holders(OTHER, HOLDER))
    assert worth_telling(TOLD, holders(HOLDER))
    assert worth_telling(TOLD, holders(HOLDER, OTHER, replace(OTHER, pid=11)))
    assert worth_telling(TOLD, holders(replace(HOLDER, memory=None), OTHER))
    assert worth_telling(TOLD, holders(replace(HOLDER, gpu="GPU-b"), OTHER))
    assert worth_telling(TOLD, holders(replace(HOLDER, command="x"), OTHER))


def test_anything_else_that_differs_is_news():
    assert worth_telling(TOLD, replace(TOLD, memory=Bytes(GIB + 1)))
    assert worth_telling(TOLD, replace(TOLD, certificate_ends=1e9 + 1))
    assert worth_telling(TOLD, replace(TOLD, gpu_problem="nvidia-smi: exit status 9"))
