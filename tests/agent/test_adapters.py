"""What the ports of fabric adapters say, and which GPU each is nearest to.

Recorded machines stand in for the hardware: no machine that runs the tests has an InfiniBand adapter or a GPU.
"""

import os
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from llmgw.agent.discovery import pci_tree
from llmgw.agent.discovery.adapters import ADAPTERS, MOST, adapters, gid, link_layer, port_state, word
from llmgw.agent.discovery.root import LONGEST, Root
from llmgw.core.inventory import FabricAdapter, Gpu, LinkLayer, PortState
from tests.agent import recorded


def lay(path: Path, files: dict[str, str], links: dict[str, str] | None = None) -> Root:
    """A machine with a sysfs of these files and links."""
    everywhere = {"sys/class/net/lo/type": "772"} | files
    return recorded.Machine(name="made", about="", files=everywhere, links=links or {}).lay(path)


def port(device: str, number: int = 1, **said: str) -> dict[str, str]:
    """The files of one port."""
    known = {"link_layer": "InfiniBand", "state": "4: ACTIVE"} | said
    return {f"{ADAPTERS}/{device}/ports/{number}/{name}": text for name, text in known.items()}


# --- the kernel's words -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "state"),
    [
        ("1: DOWN", PortState.DOWN),
        ("2: INIT", PortState.INIT),
        ("3: ARMED", PortState.ARMED),
        ("4: ACTIVE", PortState.ACTIVE),
        ("0: NOP", PortState.UNKNOWN),
        ("5: ACTIVE_DEFER", PortState.UNKNOWN),
        ("", PortState.UNKNOWN),
        ("4", PortState.UNKNOWN),
    ],
)
def test_a_state_is_the_kernels_word(text: str, state: PortState) -> None:
    assert port_state(text) is state


def test_what_a_port_speaks_is_its_link_layer() -> None:
    assert link_layer("InfiniBand") is LinkLayer.INFINIBAND
    assert link_layer("Ethernet") is LinkLayer.ETHERNET
    assert link_layer("Unspecified") is LinkLayer.OTHER
    assert link_layer("") is LinkLayer.OTHER


def test_a_gid_is_a_prefix_and_a_guid() -> None:
    assert gid("fe80:0000:0000:0000:9a03:9bff:fe1d:8a42") == ("fe80:0000:0000:0000", "9a03:9bff:fe1d:8a42")
    assert gid("FEC0:0000:0000:0001:9A03:9BFF:FE1D:8A42") == ("fec0:0000:0000:0001", "9a03:9bff:fe1d:8a42")


def test_a_half_of_a_gid_that_nobody_set_is_no_prefix_and_no_guid() -> None:
    """Else it would be a prefix that is not the default, and prove two subnets."""
    assert gid("0000:0000:0000:0000:9a03:9bff:fe1d:8a42") == ("", "9a03:9bff:fe1d:8a42")
    assert gid("fe80:0000:0000:0000:0000:0000:0000:0000") == ("fe80:0000:0000:0000", "")
    assert gid("fe80::1") == ("", "")


@given(st.text())
def test_the_words_take_any_text(text: str) -> None:
    assert port_state(text) in PortState
    assert link_layer(text) in LinkLayer
    assert word(text) in text
    assert all(half == "" or half in text.lower() for half in gid(text))


# --- near by the PCI tree ---------------------------------------------------------------------------------------

SYS = "/sys/devices/pci0000:15/0000:15:01.0/0000:16:00.0"
"""A switch below the first port of a root complex."""


def test_the_way_begins_at_the_root_complex() -> None:
    path = "../../../devices/pci0000:15/0000:15:01.0/0000:18:00.0"
    assert pci_tree.way(path) == ("pci0000:15", "0000:15:01.0", "0000:18:00.0")
    assert (
        pci_tree.way("/sys/devices/platform/soc/40000000.pcie/pci000f:00/000f:00:00.0/000f:01:00.0")[0] == "pci000f:00"
    )
    assert pci_tree.way("../../../devices/virtual/net/lo") == ()


def test_the_address_of_a_part_is_that_of_the_device() -> None:
    assert pci_tree.device("../../../0000:18:00.0") == "0000:18:00.0"
    assert pci_tree.device("../../../0000:08:00.0/mlx5_core.sf.4") == "0000:08:00.0"
    assert pci_tree.device("../../vmbus_1") == ""


@pytest.mark.parametrize(
    ("other", "bridges"),
    [
        (f"{SYS}/0000:17:04.0/0000:1b:00.0", 2),  # PXB
        ("/sys/devices/pci0000:15/0000:15:01.0/0000:19:00.0", 1),  # PIX
        ("/sys/devices/pci0000:15/0000:15:02.0/0000:20:00.0", 0),  # PHB
        ("/sys/devices/pci0000:97/0000:97:01.0/0000:9a:00.0", 0),  # NODE or SYS
        ("", 0),
    ],
)
def test_bridges_below_the_root_complex_count(other: str, bridges: int) -> None:
    own = pci_tree.way(f"{SYS}/0000:17:00.0/0000:18:00.0")
    assert pci_tree.shared(own, pci_tree.way(other)) == pci_tree.shared(pci_tree.way(other), own) == bridges


def behind(switch: str, *devices: str) -> list[str]:
    """The paths of devices that have a port each of a switch."""
    way = f"/sys/devices/pci0000:{switch}/0000:{switch}:01.0/0000:{switch}:10.0"
    return [f"{way}/0001:{switch}:{at:02x}.0/0000:{device}" for at, device in enumerate(devices)]


def named(paths: Iterable[str]) -> dict[str, str]:
    return {pci_tree.device(path): path for path in paths}


def test_two_gpus_and_two_adapters_behind_each_switch_are_pairs() -> None:
    nics, gpus = list[str](), list[str]()
    for switch in ("01", "41", "81", "c1"):
        one, other, third, fourth = behind(switch, *(f"{switch[0]}{at}:00.0" for at in "2345"))
        nics += [one, third]
        gpus += [other, fourth]
    found = pci_tree.nearest(named(reversed(nics)), named(reversed(gpus)))
    assert found == {pci_tree.device(nic): pci_tree.device(gpu) for nic, gpu in zip(nics, gpus, strict=True)}


def test_one_adapter_for_two_gpus_is_nearer_to_neither() -> None:
    nic, *gpus = behind("01", "02:00.0", "03:00.0", "04:00.0")
    assert pci_tree.nearest(named([nic]), named(gpus)) == {}


def test_two_adapters_for_one_gpu_both_have_it() -> None:
    *nics, gpu = behind("01", "02:00.0", "03:00.0", "04:00.0")
    assert pci_tree.nearest(named(nics), named([gpu])) == {
        "0000:02:00.0": "0000:04:00.0",
        "0000:03:00.0": "0000:04:00.0",
    }


def test_the_functions_of_a_card_go_together() -> None:
    first, second, *gpus = behind("01", "02:00.0", "03:00.0", "04:00.0", "05:00.0")
    nics = [first, first.replace("02:00.0", "02:00.1"), second]
    assert pci_tree.nearest(named(nics), named(gpus)) == {
        "0000:02:00.0": "0000:04:00.0",
        "0000:02:00.1": "0000:04:00.0",
        "0000:03:00.0": "0000:05:00.0",
    }


def test_a_nearer_gpu_wins_and_a_root_complex_is_not_near() -> None:
    near, nic = behind("01", "02:00.0", "03:00.0")
    far = "/sys/devices/pci0000:01/0000:01:01.0/0000:08:00.0"
    other = "/sys/devices/pci0000:01/0000:01:02.0/0000:09:00.0"
    assert pci_tree.nearest(named([nic]), named([far, other, near])) == {"0000:03:00.0": "0000:02:00.0"}
    assert pci_tree.nearest(named([nic]), named([other])) == {}


PATHS = st.lists(st.sampled_from(["pci0000:00", "0000:00:01.0", "0000:01:00.0", "0000:01:00.1", "x", ""]), max_size=6)


@given(st.lists(PATHS.map("/".join), max_size=8), st.lists(PATHS.map("/".join), max_size=8), st.text())
def test_any_paths_give_gpus_that_share_a_bridge(nics: list[str], gpus: list[str], text: str) -> None:
    own, cards = {str(n): path for n, path in enumerate(nics)}, {str(n): path for n, path in enumerate(gpus)}
    for nic, gpu in pci_tree.nearest(own, cards).items():
        best = max(pci_tree.shared(pci_tree.way(own[nic]), pci_tree.way(path)) for path in gpus)
        assert pci_tree.shared(pci_tree.way(own[nic]), pci_tree.way(cards[gpu])) == best > 0
    assert pci_tree.nearest({"nic": text}, {"gpu": text}).keys() <= {"nic"}


def test_each_adapter_of_a_large_server_has_its_gpu(tmp_path: Path) -> None:
    root = recorded.load("h100-with-adapters").lay(tmp_path)
    buses = ("1b", "43", "52", "61", "9d", "c3", "d1", "df")
    cards = tuple(Gpu(index=at, uuid=f"GPU-{bus}", pci=f"0000:{bus}:00.0") for at, bus in enumerate(buses))
    part = Gpu(index=0, uuid="MIG-1", parent="GPU-1b", pci="0000:1b:00.0")
    found, problem = adapters(root, (part, *cards))
    assert problem == ""
    assert [one.name for one in found] == [f"mlx5_{at}" for at in range(10)]
    assert [one.gpu for one in found if one.link_layer is LinkLayer.INFINIBAND] == [card.uuid for card in cards]
    assert [one.gpu for one in found if one.link_layer is LinkLayer.ETHERNET] == ["", ""]
    assert [one.gpu for one in adapters(root, ())[0]] == [""] * 10


def test_a_storage_adapter_behind_the_same_switch_takes_no_gpu_from_the_others(tmp_path: Path) -> None:
    storage, one, other, *gpus = behind("01", *(f"0{at}:00.0" for at in "23456"))
    files, links = dict[str, str](), dict[str, str]()
    for name, path, layer in (("a", storage, "Ethernet"), ("b", one, "InfiniBand"), ("c", other, "InfiniBand")):
        files |= port(name, link_layer=layer)
        links[f"{ADAPTERS}/{name}/device"] = f"../../..{path.removeprefix('/sys')}"
    for path in (storage, one, other, *gpus):
        links[f"sys/bus/pci/devices/{pci_tree.device(path)}"] = f"../../..{path.removeprefix('/sys')}"
    cards = tuple(Gpu(index=at, uuid=f"GPU-{at}", pci=pci_tree.device(path)) for at, path in enumerate(gpus))
    found, _ = adapters(lay(tmp_path, files, links), cards)
    assert [(one.name, one.gpu) for one in found] == [("a", ""), ("b", "GPU-0"), ("c", "GPU-1")]


def test_a_virtual_function_is_where_its_card_is(tmp_path: Path) -> None:
    """The first eight functions may be at 02:00 and the next at 02:01, which looks like another card."""
    nic, second, *gpus = behind("01", "02:00.0", "03:00.0", "04:00.0", "05:00.0")
    virtual = nic.replace("02:00.0", "02:01.0")
    files, links = dict[str, str](), dict[str, str]()
    for name, path in (("a", nic), ("v", virtual), ("z", second)):
        files |= port(name)
        links[f"{ADAPTERS}/{name}/device"] = f"../../..{path.removeprefix('/sys')}"
    for path in (nic, virtual, second, *gpus):
        links[f"sys/bus/pci/devices/{pci_tree.device(path)}"] = f"../../..{path.removeprefix('/sys')}"
    links[f"{virtual.lstrip('/')}/physfn"] = "../0000:02:00.0"
    cards = tuple(Gpu(index=at, uuid=f"GPU-{at}", pci=pci_tree.device(path)) for at, path in enumerate(gpus))
    found, _ = adapters(lay(tmp_path, files, links), cards)
    assert [(one.name, one.gpu) for one in found] == [("a", "GPU-0"), ("v", "GPU-0"), ("z", "GPU-1")]


@pytest.mark.parametrize("address", ["../../../etc", "0000:17:00.0\0", "", "0000:17:00.0"])
def test_a_gpu_whose_address_leads_nowhere_is_near_to_nothing(tmp_path: Path, address: str) -> None:
    root = recorded.load("roce").lay(tmp_path)
    assert {one.gpu for one in adapters(root, (Gpu(index=0, uuid="GPU-a", pci=address),))[0]} == {""}


# --- none, or not seen ------------------------------------------------------------------------------------------


def test_a_machine_without_adapters_has_none_and_no_problem(tmp_path: Path) -> None:
    assert adapters(lay(tmp_path, {}), ()) == ((), "")


def test_an_ethernet_card_without_an_rdma_driver_is_no_problem(tmp_path: Path) -> None:
    card = "sys/bus/pci/devices/0000:05:00.0"
    assert adapters(lay(tmp_path, {f"{card}/class": "0x020000", f"{card}/vendor": "0x15b3"}), ()) == ((), "")


@pytest.mark.parametrize(
    ("driver", "vendor", "module"),
    [("mlx4_core", "0x15b3", "mlx4_ib"), (None, "0x15b3", "mlx5_ib"), (None, "0x1077", "it")],
)
def test_an_infiniband_device_without_its_driver_is_named(
    tmp_path: Path, driver: str | None, vendor: str, module: str
) -> None:
    card = "sys/bus/pci/devices/0000:05:00.0"
    links = {f"{card}/driver": f"../../../drivers/{driver}"} if driver else {}
    root = lay(tmp_path, {f"{card}/class": "0x020700", f"{card}/vendor": vendor}, links)
    said = f"1 InfiniBand device on the PCI bus (0000:05:00.0) without an RDMA driver: load {module}"
    assert adapters(root, ()) == ((), said)


def test_of_many_devices_without_a_driver_some_are_named(tmp_path: Path) -> None:
    cards = {f"sys/bus/pci/devices/0000:{at:02x}:00.0/class": "0x020700" for at in range(8)}
    _, problem = adapters(lay(tmp_path, cards), ())
    assert problem.startswith("8 InfiniBand devices on the PCI bus (0000:00:00.0, 0000:01:00.0, ")
    assert problem.endswith("0000:03:00.0 and 4 more) without an RDMA driver: load it")


def test_a_driver_that_is_loaded_is_not_to_be_loaded(tmp_path: Path) -> None:
    card = "sys/bus/pci/devices/0000:05:00.0"
    files = {f"{card}/class": "0x020700", f"{card}/vendor": "0x15b3", "sys/module/mlx5_ib/refcnt": "0"}
    assert (
        "mlx5_ib is loaded, so the kernel's log says why, or another network namespace"
        in adapters(lay(tmp_path, files), ())[1]
    )


def test_a_container_that_was_given_no_adapter_has_none(tmp_path: Path) -> None:
    files = {"sys/bus/pci/devices/0000:05:00.0/class": "0x020700", ".dockerenv": ""}
    assert adapters(lay(tmp_path, files), ()) == ((), "")


def test_one_that_has_its_driver_is_listed_beside_one_that_has_not(tmp_path: Path) -> None:
    bus = "sys/bus/pci/devices"
    files = port("mlx5_0") | {f"{bus}/0000:0{at}:00.0/class": "0x020700" for at in (1, 2)}
    root = lay(tmp_path, files, {f"{ADAPTERS}/mlx5_0/device": "../../../0000:01:00.0"})
    (found,), problem = adapters(root, ())
    assert found.pci == "0000:01:00.0"
    assert problem.startswith("1 InfiniBand device on the PCI bus (0000:02:00.0) without an RDMA driver: load ")


def test_a_hidden_sysfs_is_not_no_adapters(tmp_path: Path) -> None:
    assert adapters(Root.recorded(tmp_path), ()) == ((), "sysfs is not visible: /sys is empty or not there")


def test_a_directory_that_cannot_be_read_is_a_problem_with_its_reason(tmp_path: Path) -> None:
    assert adapters(lay(tmp_path / "file", {ADAPTERS: "x"}), ()) == ((), f"/{ADAPTERS} cannot be read: Not a directory")
    loop = lay(tmp_path / "loop", {}, {ADAPTERS: "infiniband"})
    assert adapters(loop, ()) == ((), f"/{ADAPTERS} cannot be read: Too many levels of symbolic links")


def test_a_device_without_ports_is_a_problem(tmp_path: Path) -> None:
    root = lay(tmp_path, port("mlx5_1") | {f"{ADAPTERS}/mlx5_0/node_guid": "x"})
    found, problem = adapters(root, ())
    assert ([one.name for one in found], problem) == (["mlx5_1"], "mlx5_0 without a port")


def test_ports_are_in_the_order_that_people_count_and_bounded(tmp_path: Path) -> None:
    files = dict[str, str]()
    for at in range(MOST + 5):
        files |= port(f"mlx5_{at}", rate="x" * 1000)
    found, problem = adapters(lay(tmp_path, files), ())
    assert [one.name for one in found] == [f"mlx5_{at}" for at in range(MOST)]
    assert len(found[0].rate) == LONGEST
    assert problem == "more than 128 ports, of which the first 128 are listed"


# --- whole trees ------------------------------------------------------------------------------------------------

DEVICE = st.sampled_from(["mlx5_0", "rxe0", "\u0663", "a\udcffb", "0000:01:00.0", "9" * 60])
LEAF = st.sampled_from(
    [
        *("link_layer", "state", "phys_state", "rate", "gids/0", "gids", "pkeys/0", "gid_attrs/ndevs/0"),
        *("class", "vendor", "driver", "physfn", "numa_node", "device", "node_guid", "device/net/ib0/dev_port"),
    ]
)
PLACE = st.one_of(
    st.builds(lambda device, leaf: f"{ADAPTERS}/{device}/{leaf}", DEVICE, LEAF),
    st.builds(lambda device, at, leaf: f"{ADAPTERS}/{device}/ports/{at}/{leaf}", DEVICE, st.sampled_from("012x"), LEAF),
    st.builds(lambda device, leaf: f"sys/bus/pci/devices/{device}/{leaf}", DEVICE, LEAF),
    st.builds(lambda device: f"sys/bus/pci/devices/{device}", DEVICE),
    st.sampled_from(
        [ADAPTERS, f"{ADAPTERS}/mlx5_0", f"{ADAPTERS}/mlx5_0/ports", "sys/bus/pci/devices", "sys/class", "sys"]
    ),
)


@dataclass(frozen=True)
class To:
    """A link."""

    target: str


TARGET = st.sampled_from(
    [".", "..", "mlx5_0", "../mlx5_0", "/nowhere", "../../../devices/pci0000:00/0000:00:01.0/0000:01:00.0", "a\udcff"]
)
WORDS = st.sampled_from([b"InfiniBand", b"4: ACTIVE", b"0x020700", b"-1", b"fe80:0000:0000:0000:0000:0000:0000:0001"])
TREE = st.dictionaries(PLACE, st.one_of(st.none(), WORDS, st.binary(max_size=300), st.builds(To, TARGET)), max_size=20)


def grow(top: Path, tree: dict[str, bytes | To | None]) -> None:
    """Make what can be made of it: bytes are a file, None a directory."""
    for name, what in tree.items():
        path = top / name
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            match what:
                case None:
                    path.mkdir()
                case To():
                    path.symlink_to(what.target)
                case _:
                    path.write_bytes(what)
        except OSError:
            continue  # another entry of the tree is in its way


@example({"sys/bus/pci/devices/a\udcffb/class": b"0x020700"})
@given(TREE)
def test_any_tree_gives_ports_and_words_that_can_be_sent(tree: dict[str, bytes | To | None]) -> None:
    with tempfile.TemporaryDirectory() as top:
        grow(Path(top), tree)
        gpus = (Gpu(index=0, uuid="GPU-a", pci="0000:01:00.0"),)
        found, problem = adapters(Root.recorded(Path(top)), gpus)
    assert len(found) <= MOST
    assert len(problem) <= 4 * LONGEST
    for text in (problem, *(text for one in found for text in texts(one))):
        text.encode()
    assert all(len(text) <= LONGEST for one in found for text in texts(one))
    assert all(one.port < 1000 and (one.numa is None or one.numa >= 0) for one in found)


def texts(adapter: FabricAdapter) -> list[str]:
    values = [getattr(adapter, name) for name in FabricAdapter.__dataclass_fields__]
    return [value for value in values if isinstance(value, str)]


def test_this_machine_can_be_looked_at() -> None:
    """Whatever it has: the class is there or not, and each of its devices is listed."""
    found, problem = adapters(Root(), ())
    devices = set(os.listdir(f"/{ADAPTERS}")) if os.path.isdir(f"/{ADAPTERS}") else set()
    assert problem or {one.name for one in found} == devices
