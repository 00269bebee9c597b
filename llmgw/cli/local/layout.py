"""What is in a local cluster's directory: an authority, certificates, a configuration for each part, logs.

    D/client.yaml                 how ctl and the console find it (`--dir D`)
    D/server.yaml router.yaml     D/tls/{control,router,operator}.{crt,key}
    D/nodes/node01/agent.yaml     with the node's certificate and state beside it
    D/nodes/node01/machine/       what the node takes for its machine: this one, with less memory
    D/mirror/                     the engine, which llmgwd serves to the nodes; or
    D/llama-server                the engine, which each agent.yaml names by hand
    D/logs/                       what each process prints

Nothing of an earlier run is used again but the directory: certificates could have expired, ports be taken.
"""

import fcntl
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import yaml

from llmgw.cli.llamacpp import script
from llmgw.cli.local import engine
from llmgw.cli.local.ports import lease
from llmgw.config.agent import Ports
from llmgw.core.errors import Rejected
from llmgw.core.identity import Role
from llmgw.core.units import MIB
from llmgw.pki import authority

CLUSTER = "demo"
MARKER = ".llmgw-demo"
"""Its presence says that the directory is ours to empty; it is locked while a cluster runs there."""

_PORTS_A_NODE = 20
_OVERHEAD = 400 * MIB
"""What an engine takes beyond its weights, generously."""


class DirectoryInUse(Rejected):
    """A directory in which no cluster can be made."""

    code = "directory_in_use"


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What to bring up."""

    directory: Path
    weights: Path
    nodes: int = 3
    replicas: int = 2
    model: str = "gemma"
    aliases: tuple[str, ...] = ()
    large: str = ""
    """Name of a second model that fits on no node until one is given more memory; empty for none."""
    heartbeat: str = "500ms"
    lost_after: str = "5s"
    settle: str = "1s"
    context: int = 2048
    slots: int = 2
    threads: int = field(default_factory=lambda: max(1, (os.cpu_count() or 1) // 2))
    install: bool = False
    """Nodes install their engine; otherwise each names one that is there, which saves seconds."""
    download_rate: str = ""
    """Bytes a second that a node downloads at most, so that it can be watched; empty for no limit."""
    check_engines: str = ""
    """How often a node looks whether its engines are whole; empty for the usual ten minutes."""

    @property
    def names(self) -> list[str]:
        """The nodes."""
        return [f"node{number:02}" for number in range(1, self.nodes + 1)]

    @property
    def memory(self) -> int:
        """MiB of one replica."""
        return (self.weights.stat().st_size + _OVERHEAD) // MIB

    @property
    def room(self) -> int:
        """MiB that a node has for engines: for its share of the replicas and a little more, so that they spread and a
        full node can be seen."""
        return self.memory * -(-self.replicas // self.nodes) + self.memory // 2


@dataclass(frozen=True, slots=True)
class Made:
    """A directory that is ready to run from."""

    control: str
    gateway: str
    """The router's URL."""


def model_name(weights: Path) -> str:
    """A model's name for a file of weights."""
    return re.sub(r"[^a-z0-9]+", "-", weights.stem.lower()).strip("-")[:40] or "model"


@contextmanager
def claimed(directory: Path) -> Iterator[None]:
    """Hold the directory for one cluster; DirectoryInUse when another runs there or the files in it are not ours."""
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not (directory / MARKER).exists() and any(directory.iterdir()):
            raise DirectoryInUse(f"{directory} holds other files; name an empty or a new directory")
        descriptor = os.open(directory / MARKER, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise DirectoryInUse(f"{directory}: {(error.strerror or str(error)).lower()}") from None
    with os.fdopen(descriptor, "r+") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = lock.read(20).strip()
            raise DirectoryInUse(
                f"a demo runs in {directory} already (process {holder or 'unknown'}); end it, or name another --dir"
            ) from None
        lock.truncate(0)
        lock.write(str(os.getpid()))
        lock.flush()
        yield


def make(plan: Plan) -> Made:
    """Write everything that the parts of the cluster need. The directory must be claimed."""
    root = plan.directory
    for old in root.iterdir():
        if old.name != MARKER:
            shutil.rmtree(old) if old.is_dir() and not old.is_symlink() else old.unlink()
    ports = lease(2 + plan.nodes * _PORTS_A_NODE)
    made = Made(f"127.0.0.1:{ports.first}", f"http://127.0.0.1:{ports.first + 1}")
    authority.init(root / "pki", CLUSTER)
    for name, role in (("control", Role.CONTROL), ("router", Role.ROUTER), ("operator", Role.OPERATOR)):
        authority.issue(root / "pki", name, role, ["127.0.0.1"] if role is Role.CONTROL else [], root / "tls")
    (root / "logs").mkdir()
    _write(root / "server.yaml", _server(plan, made))
    _write(root / "client.yaml", {"server": [made.control], "tls": _tls("tls", "operator")})
    _write(root / "router.yaml", _router(made))
    if plan.install:
        engine.pack(root / "mirror")
    else:
        script(root / "llama-server")
    for index, name in enumerate(plan.names):
        first = ports.first + 2 + index * _PORTS_A_NODE
        _node(plan, made, name, Ports(first, first + _PORTS_A_NODE - 1))
    return made


def _server(plan: Plan, made: Made) -> dict[str, object]:
    profile = {
        "engine": "llama.cpp",
        "weights": str(plan.weights),
        "context": plan.context,
        "slots": plan.slots,
        "memory": f"{plan.memory}MiB",
        "threads": plan.threads,
    }
    models = {plan.model: {"aliases": list(plan.aliases), "replicas": plan.replicas, "profile": profile}}
    if plan.large:
        larger = {"context": 4 * plan.context, "memory": f"{2 * plan.room}MiB"}
        models[plan.large] = {"replicas": 1, "profile": profile | larger}
    engines = {engine.ENGINE: {"version": engine.version()}} if plan.install else {}
    return {
        "cluster": CLUSTER,
        "listen": made.control,
        "store": "llmgw.db",
        "tls": _tls("tls", "control"),
        "heartbeat": plan.heartbeat,
        "lost_after": plan.lost_after,
        "settle": plan.settle,
        "drain": "2s",
        "engines": engines,
        **({"mirror": "mirror"} if plan.install else {}),
        "models": models,
    }


def _router(made: Made) -> dict[str, object]:
    return {
        "control": [made.control],
        "tls": _tls("tls", "router"),
        "listen": made.gateway.removeprefix("http://"),
        "state": "router",
        "drain": "0",
    }


def _node(plan: Plan, made: Made, name: str, ports: Ports) -> None:
    directory = plan.directory / "nodes" / name
    authority.issue(plan.directory / "pki", name, Role.AGENT, [], directory)
    _machine(directory / "machine", plan.room)
    _write(
        directory / "agent.yaml",
        {
            "control": [made.control],
            "tls": _tls(".", name),
            "node": name,
            "state": "state",
            "engines": {} if plan.install else {engine.ENGINE: str(plan.directory / "llama-server")},
            **({"download_rate": plan.download_rate} if plan.download_rate else {}),
            **({"check_engines": plan.check_engines} if plan.check_engines else {}),
            "engine_ports": str(ports),
            "discovery_root": "machine",
            "launcher": "session",
            "start_timeout": "90s",
        },
    )


_OWN = ("etc/os-release", "proc/cpuinfo", "proc/loadavg", "proc/sys", "sys/class/dmi", "sys/devices/system/clocksource")
"""What a node's machine has of this one. Not its NUMA nodes, which would have more memory than the whole."""


def _machine(root: Path, room: int) -> None:
    """A machine like this one with `room` MiB for engines, to be given more while it runs: by its proc/meminfo."""
    for name in _OWN:
        link = root / name
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(Path("/") / name)
    kib = room * 1024 * 10 // 9 + 1  # of what is measured a tenth stays with the system
    (root / "proc" / "meminfo").write_text(f"MemTotal: {kib} kB\nMemAvailable: {kib} kB\n")


def _tls(directory: str, name: str) -> dict[str, str]:
    files = {"certificate": f"{name}.crt", "key": f"{name}.key", "authority": "authority.crt"}
    return {key: f"{directory}/{file}" for key, file in files.items()}


def _write(path: Path, content: dict[str, object]) -> None:
    path.write_text(yaml.safe_dump(content, sort_keys=False))
