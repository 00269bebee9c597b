"""Machines that were written down: lays them out as a directory tree, and compares what discovery says of them.

Machines with eight GPUs, a limited control group or a processor of another kind are not to be had on the machine that
runs the tests, so their files and the answers of their tools are. `machines/README.md` describes the format.
"""

import re
import shlex
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any

import yaml

from llmgw.agent.discovery.root import Root
from llmgw.config.agent import AgentConfig
from llmgw.config.load import load_agent
from llmgw.config.tls import TlsFiles
from llmgw.config.units import byte_size

HERE = Path(__file__).with_name("machines")
NAMES = sorted(path.stem for path in HERE.glob("*.yaml"))
KEYS = {"about", "like", "files", "links", "dirs", "tools", "config", "now", "expected", "warnings"}


@dataclass(frozen=True, kw_only=True)
class Machine:
    name: str
    about: str
    files: dict[str, Any] = field(default_factory=dict)
    links: dict[str, str] = field(default_factory=dict)
    dirs: list[str] = field(default_factory=list)
    tools: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    config: dict[str, Any] = field(default_factory=dict)
    now: float | None = None
    expected: dict[str, Any] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)

    @property
    def hangs(self) -> bool:
        """A tool of it does not end by itself."""
        return any(answer.get("hang") for answers in self.tools.values() for answer in answers)

    def lay(self, path: Path) -> Root:
        """Lay the machine out in `path`."""
        path.mkdir(parents=True, exist_ok=True)
        for name in self.dirs:
            (path / name).mkdir(parents=True, exist_ok=True)
        for name, said in self.files.items():
            if said is not None:
                _write(path / name, said)
        for name, target in self.links.items():
            (path / name).parent.mkdir(parents=True, exist_ok=True)
            (path / name).symlink_to(target)
        for name, answers in self.tools.items():
            _tool(path / "bin" / name, answers)
        return Root.recorded(path)

    def agent(self, home: Path, files: TlsFiles) -> AgentConfig:
        """Lay the machine out in `home`/root, and return the configuration of an agent on it."""
        self.lay(home / "root")
        tls = {"certificate": str(files.certificate), "key": str(files.key), "authority": str(files.authority)}
        base = {"control": ["127.0.0.1:7443"], "tls": tls, "node": "node01", "discovery_root": "root"}
        (home / "agent.yaml").write_text(yaml.safe_dump(base | self.config))
        return load_agent(home / "agent.yaml")


def load(name: str) -> Machine:
    """The machine in `machines/NAME.yaml`."""
    said: dict[str, Any] = yaml.safe_load((HERE / f"{name}.yaml").read_text())
    assert said.keys() <= KEYS, f"{name}.yaml: {said.keys() - KEYS} is not known; machines/README.md has the format"
    if "like" in said:
        other = load(said.pop("like"))
        for part in ("files", "links", "tools", "config"):
            said[part] = getattr(other, part) | said.get(part, {})
        said["dirs"] = [*other.dirs, *said.get("dirs", [])]
    return Machine(name=name, **said)


def _write(path: Path, said: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    if isinstance(said, dict):
        said = "".join(said["text"].replace("{n}", str(n)) for n in range(said["repeat"]))
    path.write_bytes(said if isinstance(said, bytes) else str(said).encode())


def _tool(path: Path, answers: list[dict[str, Any]]) -> None:
    """A program that answers by its arguments, in the shell: a Python for each call would be most of a test's time."""
    lines = ["#!/bin/sh", 'case "$*" in']
    for number, answer in enumerate(answers):
        assert answer.keys() <= {"when", "out", "err", "status", "hang"}, f"{path.name}: {answer}"
        steps = []
        for stream, to in (("out", ""), ("err", " >&2")):
            if answer.get(stream):
                kept = path.parent / f".{path.name}.{number}.{stream}"
                _write(kept, answer[stream])
                steps.append(f"/bin/cat {shlex.quote(str(kept))}{to}")
        steps.append("exec /bin/sleep 600" if answer.get("hang") else f"exit {answer.get('status', 0)}")
        when = f"*{shlex.quote(answer['when'])}*" if "when" in answer else "*"
        lines.append(f"{when}) {'; '.join(steps)} ;;")
    lines += ["esac", f'echo "{path.name}: the recorded machine has no answer to: $*" >&2', "exit 2"]
    _write(path, "\n".join(lines) + "\n")
    path.chmod(0o755)


# --- comparing --------------------------------------------------------------------------------------------------


def plain(value: Any) -> Any:
    """A fact as mappings, lists, text and numbers."""
    if isinstance(value, Enum):
        return value.value
    if hasattr(value, "__dataclass_fields__"):
        return {name: plain(getattr(value, name)) for name in value.__dataclass_fields__}
    return [plain(one) for one in value] if isinstance(value, tuple | list) else value


def differences(expected: Any, found: Any, at: str = "") -> list[str]:
    """Where `found` is not as expected, a line each; only what `expected` names is compared."""
    if isinstance(expected, dict) and isinstance(found, dict):
        return [line for key, value in expected.items() for line in _entry(key, value, found, at)]
    if isinstance(expected, list) and isinstance(found, list) and len(expected) == len(found):
        pairs = enumerate(zip(expected, found, strict=True))
        return [line for n, (one, other) in pairs for line in differences(one, other, f"{at}[{n}]")]
    return [] if _same(expected, found) else [f"{at}: expected {expected!r}, found {found!r}"]


def _entry(key: str, value: Any, found: dict[str, Any], at: str) -> list[str]:
    where = f"{at}.{key}".lstrip(".")
    return differences(value, found[key], where) if key in found else [f"{where}: is no field"]


def _same(expected: Any, found: Any) -> bool:
    if isinstance(expected, str) and isinstance(found, int):
        return byte_size(expected) == found
    if (
        isinstance(expected, str)
        and isinstance(found, str)
        and len(expected) > 2
        and expected[0] == expected[-1] == "/"
    ):
        return re.fullmatch(expected[1:-1], found) is not None
    return bool(expected == found)
