"""What must hold for the repository as a whole: names that agree, pages that say what is so, layers that hold."""

import ast
import json
import re
import subprocess
import sys
import tomllib
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import get_args

import pytest
from pydantic import BaseModel

import llmgw
from bench.figure import Figure
from llmgw.agent.discovery import nvidia
from llmgw.client import ControlClient
from llmgw.config.agent import AgentConfig
from llmgw.config.engines import EngineSection
from llmgw.config.load import load_agent, load_router, load_server
from llmgw.config.models import ClientFile, TlsSection
from llmgw.config.router import RouterConfig
from llmgw.config.server import ModelSection, ProfileSection, ServerConfig
from llmgw.core import refusals, shard, warnings
from llmgw.core.inventory import Inventory
from llmgw.ctl import grammar
from llmgw.daemon.engine_calls import EngineCalls
from llmgw.daemon.operators import Operators
from llmgw.daemon.roles import ROLES
from llmgw.wire.operator.engines.v1 import EnginesBase
from llmgw.wire.operator.v1 import OperatorBase

ROOT = Path(__file__).parent.parent
PAGES = sorted([*(ROOT / "docs").glob("*.md"), *ROOT.glob("*.md")])


def page(name: str) -> str:
    return (ROOT / name).read_text()


def fresh(code: str) -> list[str]:
    """The words that `code` prints in an interpreter of its own."""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    return done.stdout.split()


# --- the package ------------------------------------------------------------------------------------------------


def test_changelog_package_and_project_file_name_one_version() -> None:
    newest = re.search(r"^## \[([^\]]+)\]", page("CHANGELOG.md"), re.MULTILINE)
    assert newest is not None
    assert newest[1] == llmgw.__version__ == tomllib.loads(page("pyproject.toml"))["project"]["version"]


def test_the_lock_pins_every_package_and_names_no_index() -> None:
    lines = [line for line in page("requirements.lock").splitlines() if not line.startswith("#")]
    assert not [line for line in lines if "://" in line or "index-url" in line]
    packages = [line for line in lines if line and not line.startswith(" ")]
    assert packages and all("==" in line for line in packages)


def test_core_imports_nothing_that_acts() -> None:
    """The twin of the import-linter contract, at run time: what is really loaded, also by what core imports."""
    loaded = fresh(
        "import importlib, pkgutil, sys\n"
        "before = set(sys.modules)\n"
        "import llmgw.core\n"
        "for one in pkgutil.walk_packages(llmgw.core.__path__, 'llmgw.core.'): importlib.import_module(one.name)\n"
        "print(*(set(sys.modules) - before))"
    )
    acting = {"asyncio", "socket", "ssl", "subprocess", "threading", "random", "logging", "sqlite3", "tempfile", "uuid"}
    acting |= {"grpclib", "betterproto2", "pydantic", "textual", "rich", "yaml", "cryptography", "datetime"}
    assert not acting & set(loaded)
    ours = {name for name in loaded if name.startswith("llmgw.")}
    assert len(ours) > 10 and all(name.startswith("llmgw.core") for name in ours)


@pytest.mark.parametrize("path", sorted((ROOT / "llmgw" / "core").glob("*.py")), ids=lambda path: path.name)
def test_core_opens_and_prints_nothing(path: Path) -> None:
    """Builtins need no import, so no linter of imports sees them."""
    calls = [node.func for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call)]
    names = {call.id for call in calls if isinstance(call, ast.Name)}
    assert not names & {"open", "print", "input", "exec", "eval", "__import__", "breakpoint"}


# --- one word everywhere ----------------------------------------------------------------------------------------


def rpc(method: str) -> str:
    return "".join(word.title() for word in method.split("_"))


SERVICES = {
    "/operator.v1.Operator/": (Operators, OperatorBase, "proto/operator/v1/operator.proto"),
    "/operator.engines.v1.Engines/": (EngineCalls, EnginesBase, "proto/operator/engines/v1/engines.proto"),
}


def service(method: str) -> str:
    """The service that has the rpc of a client's method."""
    return next(path for path in SERVICES if path + rpc(method) in ROLES)


def servicer(method: str) -> str:
    """What serves an rpc: the generated method's override, or a raw handler of the same name."""
    serves, base, _ = SERVICES[service(method)]
    overridden = getattr(serves, method) is not getattr(base, method)
    return f"{serves.__name__}.{method if overridden else f'_{method}'}"


@pytest.mark.parametrize("verb", grammar.VERBS, ids=lambda verb: verb.name)
def test_a_verb_has_its_client_method_rpc_and_servicer(verb: grammar.Verb) -> None:
    serves, base, _ = SERVICES[service(verb.method)]
    assert callable(getattr(ControlClient, verb.method)) and callable(getattr(base, verb.method))
    assert callable(getattr(serves, servicer(verb.method).split(".")[1]))


@pytest.mark.parametrize("path", SERVICES)
def test_every_rpc_has_a_client_method_and_a_row_of_roles(path: str) -> None:
    names = re.findall(r"rpc (\w+)\(", page(SERVICES[path][2]))
    assert names
    for name in names:
        assert path + name in ROLES
        assert hasattr(ControlClient, re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower())


def test_contributing_shows_the_verbs_as_they_are() -> None:
    chains = ((verb.name, verb.method, rpc(verb.method), servicer(verb.method)) for verb in grammar.VERBS)
    rows = [f"| `{verb}` | `ControlClient.{call}` | `{name}` | `{serves}` |" for verb, call, name, serves in chains]
    assert "\n".join(rows) in page("CONTRIBUTING.md")


# --- pages ------------------------------------------------------------------------------------------------------


def test_states_shows_the_table_that_runs() -> None:
    assert f"```text\n{shard.table()}```" in page("docs/states.md")


def test_placement_names_every_refusal() -> None:
    known = [kind.code for kind in get_args(refusals.Refusal)]
    assert sorted(re.findall(r"^\| `(\w+)` \|", page("docs/placement.md"), re.MULTILINE)) == sorted(known)


def rows(file: str, section: str) -> list[list[str]]:
    """The cells of the tables in one section of a page, without their heads."""
    text = page(file).split(f"\n## {section}\n")[1].split("\n## ")[0]
    lines = [line for line in text.splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def test_discovery_names_every_fact_of_the_inventory() -> None:
    named = [
        name for first, *_ in rows("docs/discovery.md", "What, from where") for name in re.findall(r"`(\w+)`", first)
    ]
    assert sorted(named) == sorted(field.name for field in fields(Inventory))


def test_discovery_names_every_warning() -> None:
    codes = [kind.code for kind in get_args(warnings.NodeWarning) if isinstance(kind.code, str)]
    named = [first.strip("`") for first, *_ in rows("docs/discovery.md", "Warnings") if first != "code"]
    assert sorted(named) == sorted(codes)


def test_discovery_says_what_the_gpu_tool_ends_with() -> None:
    told = [(first, rest[0]) for first, *rest in rows("docs/discovery.md", "None, and not said") if first.isdecimal()]
    assert told == [(str(status), meaning) for status, meaning in nvidia._MEANING.items()]


def keys(model: type[BaseModel], before: str = "") -> dict[str, bool]:
    """Each key of a file, with whether it must be given."""
    sections = {"tls": TlsSection, "profile": ProfileSection}
    found: dict[str, bool] = {}
    for name, field in model.model_fields.items():
        section = sections.get(name)
        if section is not None:
            inner = keys(section, f"{before}{name}.")
            found |= inner if field.is_required() else dict.fromkeys(inner, False)
        else:
            found[before + name] = field.is_required()
        if name == "models":
            found |= keys(ModelSection, "models.NAME.")
        if name == "engines" and model is ServerConfig:
            found |= keys(EngineSection, "engines.NAME.")
    return found


@pytest.mark.parametrize(
    ("file", "model"),
    [
        ("server.yaml", ServerConfig),
        ("agent.yaml", AgentConfig),
        ("router.yaml", RouterConfig),
        ("client.yaml", ClientFile),
    ],
)
def test_configuration_has_every_key_and_no_other(file: str, model: type[BaseModel]) -> None:
    section = page("docs/configuration.md").split(f"\n## {file}\n")[1].split("\n## ")[0]
    rows = re.findall(r"^\| `([\w.]+)` \| (.+?) \|", section, re.MULTILINE)
    assert {key: default == "required" for key, default in rows} == keys(model)
    assert len(rows) == len(dict(rows)), "a key is there twice"


def test_the_readme_has_the_consoles_keys() -> None:
    from llmgw.tui.screens.keytable import markdown

    assert markdown() in page("README.md")


def commands(name: str) -> list[str]:
    """The commands in a page's console blocks, without prompt, variables and comment."""
    blocks = re.findall(r"^```(?:sh|console)\n(.*?)^```", page(name), re.MULTILINE | re.DOTALL)
    return [line.removeprefix("$ ").split("  #")[0].strip() for block in blocks for line in block.splitlines()]


@pytest.mark.parametrize("name", [str(path.relative_to(ROOT)) for path in PAGES])
def test_commands_in_pages_exist(name: str) -> None:
    from llmgw.cli.main import COMMANDS

    targets = set(re.findall(r"^([a-z]+):.*##", page("Makefile"), re.MULTILINE))
    known = {command.name for command in COMMANDS}
    for line in commands(name):
        words = line.split()
        if words[:1] == ["make"]:
            assert set(word for word in words[1:] if "=" not in word) <= targets, line
        if words[:1] == ["llmgw"]:
            assert words[1] in known, line
        if words[:2] == ["llmgw", "ctl"]:
            grammar.parse([word for word in line.split(" | ")[0].split()[2:]])


@pytest.mark.parametrize(
    ("file", "load"), [("server.yaml", load_server), ("router.yaml", load_router), ("agent.yaml", load_agent)]
)
def test_the_readmes_files_can_be_loaded(file: str, load: Callable[[Path], object], tmp_path: Path) -> None:
    (text,) = re.findall(rf"^```yaml\n# {file}\n(.*?)^```", page("README.md"), re.MULTILINE | re.DOTALL)
    (tmp_path / file).write_text(f"node: node01\n{text}" if file == "agent.yaml" else text)
    load(tmp_path / file)


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_links_in_pages_lead_somewhere(path: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+?)?(#[^)]*)?\)", path.read_text()):
        file, anchor = target
        if file.startswith(("http:", "https:")):
            continue
        leads_to = (path.parent / file) if file else path
        assert leads_to.exists(), f"{path.name}: {file}"
        if anchor and leads_to.suffix == ".md":
            heads = re.findall(r"^#+ (.+)$", leads_to.read_text(), re.MULTILINE)
            assert anchor[1:] in {re.sub(r"[^\w\- ]", "", head).lower().replace(" ", "-") for head in heads}


def test_the_license_is_apache() -> None:
    assert "Apache License" in page("LICENSE") and "Apache-2.0" in page("pyproject.toml")


# --- bench ------------------------------------------------------------------------------------------------------


def figure(**more: object) -> Figure:
    return Figure(**({"name": "x", "value": 2.0, "unit": "s", "goal": 2.0} | more))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("more", "ok"),
    [
        ({}, True),
        ({"value": 2.1}, False),
        ({"value": 0.1, "failed": "exit 4"}, False),
        ({"value": 140.0, "goal": 1.4, "peer": "imports", "peer_value": 100.0}, True),
        ({"value": 150.0, "goal": 1.4, "peer": "imports", "peer_value": 100.0}, False),
    ],
)
def test_a_figure_is_ok_only_within_its_goal_and_when_it_was_measured(more: dict[str, object], ok: bool) -> None:
    line = json.loads(figure(**more).line())
    assert set(line) >= {"name", "value", "unit", "goal", "ok"} and line["ok"] is ok
    assert ("ratio" in line) == ("peer" in more)


def test_bench_names_a_figure_that_it_does_not_know() -> None:
    done = subprocess.run([sys.executable, "-m", "bench", "speed"], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 2 and "'speed' is not one of demo, stop, idle, ctl, console" in done.stderr
