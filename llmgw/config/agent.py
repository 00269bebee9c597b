"""agent.yaml: where a node's agent finds its control plane, and what is said about the node by hand."""

import re
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, Field, PlainValidator, field_validator, model_validator

from llmgw.config.models import Duration, File, Section, Size, Targets, Tls, entry_error, named
from llmgw.core.errors import BadName
from llmgw.core.hosts import host_name
from llmgw.core.names import NodeName, node_name
from llmgw.core.units import KIB, MIB


class Launcher(Enum):
    """What starts engine processes."""

    AUTO = "auto"
    """Systemd where it runs and we are root, else session."""
    SYSTEMD = "systemd"
    SESSION = "session"


@dataclass(frozen=True, slots=True)
class Ports:
    """The ports from `first` to `last`, both included."""

    first: int
    last: int

    def __iter__(self) -> Iterator[int]:
        return iter(range(self.first, self.last + 1))

    def __len__(self) -> int:
        return self.last - self.first + 1

    def __contains__(self, port: object) -> bool:
        return isinstance(port, int) and self.first <= port <= self.last

    def __str__(self) -> str:
        return f"{self.first}-{self.last}"


ENGINE_PORTS = Ports(21000, 21999)
"""Those of a file that names none."""


def _ports(value: object) -> Ports:
    if isinstance(value, Ports):
        return value
    first, dash, last = str(value).partition("-")
    if not (dash and first.isdecimal() and last.isdecimal() and len(first) < 6 and len(last) < 6):
        raise ValueError("must be a range of ports such as 21000-21999")
    if not 1024 <= int(first) <= int(last) <= 65535:
        raise ValueError("must be a range of ports between 1024 and 65535, the smaller first")
    return Ports(int(first), int(last))


_ADAPTER = re.compile(r"[A-Za-z0-9._-]{1,32}(:[0-9]{1,3})?\Z")


def _adapter(text: str) -> str:
    if not _ADAPTER.match(text):
        raise ValueError("must be an adapter such as mlx5_0, or mlx5_0:2 for its second port")
    return text


_Name = Annotated[str, AfterValidator(named(node_name))]
_Adapters = Annotated[tuple[Annotated[str, AfterValidator(_adapter)], ...], Field(max_length=32)]


def _where(before: str, now: str) -> str:
    return "it names before" if before == now else f"fabric {before} names, too"


class AgentConfig(Section):
    """A node's agent."""

    control: Targets
    tls: Tls
    node: Annotated[str, AfterValidator(named(node_name))] = ""
    """This host's name where the file says nothing; never empty once checked."""
    state: File = Path("/var/lib/llmgw-agent")
    engines: Annotated[dict[_Name, File], Field(max_length=32)] = Field(default_factory=dict)
    weights: Annotated[tuple[File, ...], Field(max_length=16)] = ()
    """Directories that hold weights."""
    fabrics: Annotated[dict[_Name, _Adapters], Field(max_length=16)] = Field(default_factory=dict)
    """By a fabric's name, the adapters of this node that are on it."""
    engine_ports: Annotated[Ports, PlainValidator(_ports)] = ENGINE_PORTS
    memory: Annotated[Size, Field(ge=MIB, le=1 << 50)] | None = None
    address: Annotated[str, AfterValidator(named(host_name))] | None = None
    labels: Annotated[dict[_Name, _Name], Field(max_length=32)] = Field(default_factory=dict)
    """What server.yaml may choose this node by."""
    download_rate: Annotated[Size, Field(ge=64 * KIB, le=1 << 40)] | None = None
    """Bytes per second that all downloads of this agent may take together."""
    install_packages: bool = True
    """Whether packages of the system that an engine needs may be installed."""
    check_engines: Annotated[Duration, Field(ge=1.0, le=86400.0)] = 600.0
    """Seconds between looks at what is installed."""
    launcher: Launcher = Launcher.AUTO
    start_timeout: Annotated[Duration, Field(ge=1.0, le=86400.0)] = 600.0
    discovery_root: File | None = None
    """The directory of a recorded machine that is described in the place of this one."""

    @model_validator(mode="before")
    @classmethod
    def _own_name(cls, value: object) -> object:
        if not isinstance(value, dict) or "node" in value:
            return value
        name = socket.gethostname().lower()
        try:
            node_name(name)
        except BadName as error:
            rule = f"is missing, and this host's name {name!r} cannot stand in: it must be {error.grammar}"
            raise entry_error("entry", rule, "node") from None
        return {**value, "node": name}

    @field_validator("fabrics")
    @classmethod
    def _on_one_fabric(cls, fabrics: dict[str, tuple[str, ...]]) -> dict[str, tuple[str, ...]]:
        on = dict[str, str]()
        for fabric, adapters in fabrics.items():
            for adapter in adapters:
                port = adapter if ":" in adapter else f"{adapter}:1"
                if port in on:
                    rule = f"names {adapter}, which {_where(on[port], fabric)}; an adapter is on one fabric"
                    raise entry_error("entry", rule, fabric)
                on[port] = fabric
        return fabrics

    @property
    def name(self) -> NodeName:
        """The node's id."""
        return NodeName(self.node)
