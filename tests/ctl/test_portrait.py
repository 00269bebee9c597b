"""All about one node, as people read it."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from llmgw.core.units import GIB, Bytes
from llmgw.ctl import portrait
from tests import worlds


def said(world: worlds.World, number: int, *, wide: bool = False) -> list[str]:
    node = world.nodes[number]
    return portrait.node(node, [one for one in world.engines if one.node == node.name], worlds.T0, wide)


def group(lines: list[str], title: str) -> list[str]:
    """The lines under a title."""
    start = next(index for index, line in enumerate(lines) if line.split("  ")[0] == title)
    after = [index for index, line in enumerate(lines) if index > start and not line.startswith(" ")]
    return lines[start : after[0] if after else len(lines)]


def test_a_sick_node_says_what_is_wrong_and_what_to_do() -> None:
    lines = said(worlds.sick_node(), 1)
    assert group(lines, "by hand")[2] == "  ! memory  64 GiB  31.3 GiB"
    assert group(lines, "GPUs")[0].startswith("GPUs  ! not known: nvidia-smi ended with exit status 9")
    assert group(lines, "engines") == ["engines  never probed"]
    assert [line[:11] for line in group(lines, "adapters")[2:]] == ["  ! mlx5_0 ", "  ! mlx5_1 "]
    assert "  ! promised   ▓▓▓▓▓▓▓▓ 70 GiB of 63.5 GiB usable" in lines
    warnings = group(lines, "warnings")
    assert lines[-len(warnings) :] == warnings, "they come last, where the eye is"
    assert warnings[1].startswith("  ! no_avx2 ") and "→ the VM's CPU type hides it: set it to host" in warnings[2]
    assert len(warnings) == 1 + 2 * len(worlds.sick_node().nodes[1].warnings)


def test_a_healthy_node_has_no_mark_at_all() -> None:
    lines = said(worlds.gpu_server(), 0)
    assert not [line for line in lines if "!" in line] and lines[-1] == "warnings  none"
    assert len(group(lines, "GPUs")) == len(group(lines, "adapters")) == 10


def test_wide_adds_what_identifies_gpus_and_adapters() -> None:
    usual, wide = (group(said(worlds.gpu_server(), 0, wide=wide), "GPUs")[1] for wide in (False, True))
    assert "UUID" in wide and "UUID" not in usual
    assert "PORT GUID" in group(said(worlds.gpu_server(), 0, wide=True), "adapters")[1]


def test_none_is_not_the_same_as_not_known() -> None:
    world = worlds.three_nodes()
    lines = said(world, 0)
    assert "GPUs  none" in lines and "adapters  none" in lines
    one = world.nodes[0]
    assert one.engines is not None
    probed = portrait.node(replace(one, engines=replace(one.engines, engines=())), (), worlds.T0, False)
    assert "engines  none, probed 30s ago" in probed


def test_the_columns_stand_under_each_other() -> None:
    for title in ("GPUs", "adapters", "disks"):
        head, *rows = group(said(worlds.gpu_server(), 0), title)[1:]
        for word in head.split()[1:3]:
            at = head.index(word)
            assert all(row[at - 2 : at] == "  " and row[at] != " " for row in rows)


def test_a_process_that_holds_a_gpu_is_named_with_its_card() -> None:
    lines = group(portrait.node(worlds.speaking("x").nodes[0], (), worlds.T0, False), "GPUs held by others")
    assert lines[2].split() == ["!", "0", "1", "?", "x"]
    assert lines[3].split() == ["!", "another", "2", "?", "x"], "a card that is not in the inventory: by its uuid"


def test_more_parts_than_anyone_reads_are_counted() -> None:
    server = worlds.gpu_server().nodes[0]
    assert server.inventory is not None
    many = tuple(replace(server.inventory.gpus[0], index=one, uuid=f"GPU-{one}") for one in range(500))
    node = replace(server, inventory=replace(server.inventory, gpus=many), usage=None)
    lines = group(portrait.node(node, (), worlds.T0, False), "GPUs")
    assert len(lines) == 66 and lines[-1].split()[:3] == ["and", "437", "more"]


def test_a_look_that_failed_in_part_does_not_deny_what_it_lists() -> None:
    server = worlds.gpu_server().nodes[0]
    assert server.inventory is not None
    inventory = replace(server.inventory, gpu_problem="one is lost", adapter_problem="one is silent")
    lines = portrait.node(replace(server, inventory=inventory), (), worlds.T0, False)
    assert group(lines, "GPUs")[0] == "GPUs  ! not all known: one is lost"
    assert group(lines, "adapters")[0] == "adapters  ! not all known: one is silent"


def test_unified_memory_is_said() -> None:
    server = worlds.gpu_server().nodes[0]
    assert server.inventory is not None
    gpu = replace(server.inventory.gpus[0], unified=True, memory=Bytes(119 * GIB))
    node = replace(server, inventory=replace(server.inventory, gpus=(gpu,)))
    assert group(portrait.node(node, (), worlds.T0, False), "GPUs")[2].endswith("unified with the machine's memory")


@given(st.text(st.characters(exclude_categories=()), min_size=1, max_size=60))
def test_nothing_that_a_node_says_steers_the_terminal(text: str) -> None:
    for line in said(worlds.speaking(text), 0, wide=True):
        assert not [
            c for c in line if c < " " or "\x7f" <= c < "\xa0" or c in "\u202e\u2066" or "\ud800" <= c <= "\udfff"
        ]
