"""Which fabric adapters are there, and what do their ports say? From /sys/class/infiniband, in the kernel's words.

"None" and "cannot be seen" differ: where sysfs is hidden, or an InfiniBand device has no driver, that is a problem in
words. What an adapter speaks is told by its link layer alone: an Ethernet one has LIDs and GIDs, too.
"""

import os
import re
from collections.abc import Iterator
from dataclasses import replace

from llmgw.agent.discovery import pci_bus, pci_tree
from llmgw.agent.discovery.pci_bus import DEVICES
from llmgw.agent.discovery.root import LONGEST, Root
from llmgw.agent.discovery.virtualization import contained
from llmgw.core.brief import some
from llmgw.core.inventory import FabricAdapter, Gpu, LinkLayer, PortState
from llmgw.core.units import several

ADAPTERS = "sys/class/infiniband"

MOST = 128
"""Ports listed; virtual functions can be many more."""

_INFINIBAND = "0x0207"
"""PCI class of an InfiniBand controller. An adapter in Ethernet mode is an Ethernet controller (0x0200), which needs
no RDMA driver to be of use."""
_GIVEN_AWAY = ("vfio-pci", "pci-stub", "pciback")
"""Drivers that hold a device for a virtual machine."""
_GID = re.compile(r"(?:[0-9a-f]{4}:){7}[0-9a-f]{4}")
_NOTHING = "0000:0000:0000:0000"
_SHOWN = 4
_NAME = 64
"""Characters of a device's name (the kernel's IB_DEVICE_NAME_MAX)."""


def adapters(root: Root, gpus: tuple[Gpu, ...]) -> tuple[tuple[FabricAdapter, ...], str]:
    """Return the ports by name and number, and why some could not be looked at (then "none" is not said)."""
    if not any(root.names(f"sys/{part}") for part in ("bus", "class", "devices")):
        return (), "sysfs is not visible: /sys is empty or not there"
    try:
        devices = sorted(os.listdir(root.at(ADAPTERS)), key=_in_order)
    except FileNotFoundError:
        devices = []
    except OSError as error:
        return (), f"/{ADAPTERS} cannot be read: {error.strerror}"
    found = list[FabricAdapter]()
    silent = list[str]()
    for device in devices:
        ports = list(_ports(root, device))
        found += ports
        if not ports:
            silent.append(device)
        if len(found) > MOST:
            return _beside(root, found[:MOST], gpus), f"more than {MOST} ports, of which the first {MOST} are listed"
    problems = [f"{some([_clean(name)[:_NAME] for name in silent], _SHOWN)} without a port"] if silent else []
    problems += _driverless(root, {port.pci for port in found})
    return _beside(root, found, gpus), "; ".join(problems)


def _ports(root: Root, device: str) -> Iterator[FabricAdapter]:
    place = f"{ADAPTERS}/{device}"
    address = pci_tree.device(root.link(f"{place}/device"))
    guid = _text(root, f"{place}/node_guid")
    for port in sorted(int(name) for name in root.names(f"{place}/ports") if re.fullmatch(r"[1-9][0-9]{0,2}", name)):
        at = f"{place}/ports/{port}"
        prefix, port_guid = gid(_text(root, f"{at}/gids/0"))
        yield FabricAdapter(
            name=_clean(device),
            port=port,
            link_layer=link_layer(_text(root, f"{at}/link_layer")),
            state=port_state(_text(root, f"{at}/state")),
            physical_state=word(_text(root, f"{at}/phys_state")),
            rate=_text(root, f"{at}/rate"),
            node_guid=guid,
            port_guid=port_guid,
            gid_prefix=prefix,
            pkey=_text(root, f"{at}/pkeys/0"),
            netdev=_text(root, f"{at}/gid_attrs/ndevs/0") or _netdev(root, f"{place}/device/net", port),
            pci=address,
            numa=pci_bus.numa(root, address),
        )


# --- the kernel's words -----------------------------------------------------------------------------------------


def word(text: str) -> str:
    """`LinkUp` of `5: LinkUp`; a text without a number is the word."""
    number, colon, rest = text.partition(":")
    return rest.strip() if colon and number.strip().isdecimal() else text.strip()


def link_layer(text: str) -> LinkLayer:
    """What the port speaks; `Unspecified`, and what the kernel does not say, is OTHER."""
    return next((layer for layer in LinkLayer if layer.value == text), LinkLayer.OTHER)


def port_state(text: str) -> PortState:
    """DOWN of `1: DOWN`; a state of no use of its own (`NOP`, `ACTIVE_DEFER`) is UNKNOWN."""
    return next((state for state in PortState if state.value == word(text)), PortState.UNKNOWN)


def gid(text: str) -> tuple[str, str]:
    """The prefix and the GUID in a GID of eight groups of hexadecimal digits; a half that was never set is empty."""
    found = text.lower()
    if _GID.fullmatch(found) is None:
        return "", ""
    prefix, guid = found[: len(_NOTHING)], found[-len(_NOTHING) :]
    return prefix if prefix != _NOTHING else "", guid if guid != _NOTHING else ""


# --- sysfs ------------------------------------------------------------------------------------------------------


def _netdev(root: Root, place: str, port: int) -> str:
    """The network device of the port: `dev_port` counts from 0; an IPoIB child (`ib0.8001`) comes after its parent."""
    own = [name for name in root.names(place)[:MOST] if root.text(f"{place}/{name}/dev_port") in ("", str(port - 1))]
    return _clean(min(own, key=lambda name: ("." in name, _in_order(name)), default=""))


def _beside(root: Root, ports: list[FabricAdapter], gpus: tuple[Gpu, ...]) -> tuple[FabricAdapter, ...]:
    """The ports with their nearest GPUs. What speaks InfiniBand is dealt out apart from what speaks Ethernet, so that
    a storage adapter behind the same switch takes no GPU from the others."""
    cards = {gpu.uuid: _place(root, gpu.pci) for gpu in gpus if gpu.uuid and not gpu.parent}
    near = dict[tuple[LinkLayer, str], str]()
    for layer in LinkLayer:
        own = {port.pci: _place(root, _whole(root, port.pci)) for port in ports if port.link_layer is layer}
        near |= {(layer, address): gpu for address, gpu in pci_tree.nearest(own, cards).items()}
    return tuple(replace(port, gpu=near.get((port.link_layer, port.pci), "")) for port in ports)


def _driverless(root: Root, driven: set[str]) -> Iterator[str]:
    """InfiniBand devices on the PCI bus that are no adapter and not meant for a virtual machine. A container sees the
    whole bus, and may have been given none of them."""
    lacking = [
        name
        for name in root.names(DEVICES)
        if name not in driven
        and root.text(f"{DEVICES}/{name}/class").startswith(_INFINIBAND)
        and root.device(f"{DEVICES}/{name}/driver") not in _GIVEN_AWAY
        and not root.device(f"{DEVICES}/{name}/physfn")
    ]
    if lacking and not contained(root):
        many = several(len(lacking), "InfiniBand device")
        yield f"{many} on the PCI bus ({some(lacking, _SHOWN)}) without an RDMA driver: {_way_out(root, lacking[0])}"


def _way_out(root: Root, address: str) -> str:
    """What to do, by the driver that has the device already, else by its vendor."""
    core = root.device(f"{DEVICES}/{address}/driver")
    if core not in ("mlx4_core", "mlx5_core") and root.text(f"{DEVICES}/{address}/vendor") != "0x15b3":
        return "load it"
    module = "mlx4_ib" if core == "mlx4_core" else "mlx5_ib"
    if not root.names(f"sys/module/{module}"):
        return f"load {module}"
    return f"{module} is loaded, so the kernel's log says why, or another network namespace has them"


def _whole(root: Root, address: str) -> str:
    """The physical function behind a virtual one, else the device itself."""
    return root.device(f"{DEVICES}/{address}/physfn") or address if address else ""


def _place(root: Root, address: str) -> str:
    """The path of a PCI device in sysfs; empty when it has none."""
    return root.link(f"{DEVICES}/{address}") if pci_bus.is_address(address) else ""


def _text(root: Root, name: str) -> str:
    return root.text(name)[:LONGEST].partition("\n")[0].strip()


def _clean(name: str) -> str:
    """A file's name as text: one that is not UTF-8 keeps what is."""
    return os.fsencode(name).decode("utf-8", "replace")[:LONGEST]


def _in_order(name: str) -> list[str | int]:
    """Sorts `mlx5_2` before `mlx5_10`: text and numbers by turns."""
    return [int(part) if at % 2 else part for at, part in enumerate(re.split(r"([0-9]+)", name))]
