"""On which port will an engine listen? One of our range that nobody listens on and the kernel gives to nobody."""

import secrets
import socket
from collections.abc import Collection
from pathlib import Path

from llmgw.config.agent import ENGINE_PORTS, Ports

EPHEMERAL = Path("/proc/sys/net/ipv4/ip_local_port_range")


_FIRST = 1024
"""Ports below are for root's programs."""


class NoPort(Exception):
    """Every port of the range is taken; the text says so."""


def ephemeral(file: Path = EPHEMERAL) -> range:
    """The ports that the kernel takes for outgoing connections; empty when it does not say."""
    try:
        first, last = file.read_text().split()
        return range(int(first), int(last) + 1)
    except (OSError, ValueError):
        return range(0)


def overlap(ports: Ports, taken: range) -> str:
    """What may go wrong when the range holds ports of the kernel's own; empty when it holds none."""
    both = range(max(ports.first, taken.start), min(ports.last + 1, taken.stop))
    if not both:
        return ""
    return (
        f"engine_ports {ports} overlaps the ports {taken.start}-{taken.stop - 1} that the kernel takes for outgoing "
        f"connections: an engine may find its port in use"
    )


def way_out(taken: range, wanted: int) -> str:
    """What to do about a range of so many ports that overlaps the kernel's."""
    free = outside(taken, wanted)
    if free is None:
        return 'leave some to others: sysctl -w net.ipv4.ip_local_port_range="32768 60999"'
    return f"choose a range outside, such as {free}"


def outside(taken: range, wanted: int) -> Ports | None:
    """A range that the kernel gives to nobody, of so many ports where there are; the default where that is free."""
    if ENGINE_PORTS.last < taken.start or ENGINE_PORTS.first >= taken.stop:
        return ENGINE_PORTS
    below, above = range(_FIRST, taken.start), range(taken.stop, 65536)
    room = max(below, above, key=len)
    if not room:
        return None
    most = min(wanted, len(room))
    # Next to the kernel's own: well-known ports are low.
    return Ports(room.stop - most, room.stop - 1) if room is below else Ports(room.start, room.start + most - 1)


def lease(ports: Ports, host: str, leased: Collection[int], avoid: range) -> int:
    """Return a free port on `host`, outside `avoid` while there is one. Raises NoPort.

    The search begins anywhere: agents that share a machine and a range seldom meet, and a port that was just given up
    is not used again at once for another model.
    """
    start = secrets.randbelow(len(ports))
    order = [ports.first + (start + step) % len(ports) for step in range(len(ports))]
    order.sort(key=lambda port: port in avoid)
    for port in order:
        if port not in leased and _free(host, port):
            return port
    raise NoPort(f"no port of engine_ports {ports} is free on {host}")


def _free(host: str, port: int) -> bool:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        # Connections of an engine that just ended may linger; they hinder no new one.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError:
            return False
    return True
