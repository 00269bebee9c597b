"""Libraries and proofs on a host with systemd, from within the sandbox that the agent's unit has: the real package
manager installs a real package, and what is proven runs as services that are gone afterwards."""

import hashlib
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from llmgw.agent.engines.unpack.parent import USER
from llmgw.core.safe import LINE, safe
from tests.agent.programs import Build, build, library
from tests.agent.test_prove import tree_of
from tests.agent.unpack.test_child import SEES
from tests.lab.hosts import Host, NoLab, lab, missing

__all__ = ["build"]

pytestmark = pytest.mark.lab

ROOT = Path(__file__).parents[2]
PACKAGE, LIBRARY = "libvulkan1", "libvulkan.so.1"

SCRIPT = """
import asyncio, json, sys
from pathlib import Path
from llmgw.agent.engines import layout, libraries, prove
from llmgw.core.inventory import Cpu, Inventory
from llmgw.core.units import GIB

async def main(what, tree, limit):
    told = []
    try:
        if what == "ensure":
            environment = layout.environment_of("llama.cpp", tree)
            note = await libraries.ensure(
                "llama.cpp", tree, "cpu", environment, allowed=True, os_name="Debian", tell=told.append
            )
            return {"note": note, "told": told}
        node = Inventory(os="Debian", kernel="6", arch="x86_64", cpu=Cpu(cores=2, model="EPYC"), memory=GIB)
        found = await prove.prove(
            "llama.cpp", tree, variant="cpu", inventory=node, gpus_free=False, tell=told.append, load_limit=limit
        )
        return {"version": found.version, "told": told}
    except (libraries.CannotProvide, prove.NotProven) as error:
        return {"problem": str(error), "told": told}

print(json.dumps(asyncio.run(main(sys.argv[1], Path(sys.argv[2]), float(sys.argv[3])))))
"""


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the host sees as /lab."""
    return tmp_path_factory.mktemp("lab")


@pytest.fixture(scope="module")
def host(place: Path, tmp_path_factory: pytest.TempPathFactory, engine: Path) -> Iterator[Host]:
    if problem := missing():
        pytest.skip(problem)
    binds = {Path(own): own for own in {str(ROOT), sys.base_prefix}}
    binds |= {place: "/lab", engine.parent: str(engine.parent)}
    with ExitStack() as stack:
        try:
            made = stack.enter_context(lab(tmp_path_factory.mktemp("host"), binds))
        except NoLab as problem:
            pytest.skip(str(problem))
        yield made.host


@pytest.fixture
def here(place: Path, request: pytest.FixtureRequest) -> Path:
    """A directory of the test's own, under the same name at /lab of the host."""
    made = place / re.sub(r"\W+", "-", request.node.name)
    made.mkdir()
    return made


def sandbox() -> list[str]:
    """The properties of the agent's unit that bound what it may do."""
    unit = (ROOT / "deploy" / "llmgw-agent.service").read_text()
    bounds = re.findall(r"^((?:NoNew|Capability|Protect|Restrict(?!art)|Lock|SystemCall)\w+=.+)$", unit, re.M)
    assert "ProtectSystem=strict" in bounds and len(bounds) > 10
    return [f"--property={bound}" for bound in bounds]


def agent(host: Host, what: str, here: Path, limit: float = 30.0) -> dict[str, object]:
    """Do as an agent does, in its sandbox with its state directory."""
    words = ["systemd-run", "--wait", "--pipe", "--quiet", "--collect", f"--setenv=PYTHONPATH={ROOT}"]
    inner = [sys.executable, "-c", SCRIPT.replace("$", "$$"), what, f"/lab/{here.name}/made/tree", str(limit)]
    text = host.run(*words, *sandbox(), "--property=ReadWritePaths=/lab", *inner, timeout=120)
    answer: dict[str, object] = json.loads(text)
    return answer


def repository(directory: Path) -> None:
    """One real package in a source of packages of our own: the host has no way out to any other."""
    directory.mkdir()
    got = subprocess.run(["apt-get", "download", PACKAGE], cwd=directory, capture_output=True, text=True, timeout=120)
    files = list(directory.glob("*.deb"))
    if got.returncode or not files:
        pytest.skip(f"apt-get download {PACKAGE}: {safe(got.stderr.strip(), LINE)}")
    about = subprocess.run(["dpkg-deb", "-f", files[0]], capture_output=True, text=True, check=True, timeout=20).stdout
    content = files[0].read_bytes()
    digest = hashlib.sha256(content).hexdigest()
    (directory / "Packages").write_text(
        f"{about.strip()}\nFilename: ./{files[0].name}\nSize: {len(content)}\nSHA256: {digest}\n\n"
    )


def test_a_library_that_is_missing_comes_with_its_package(here: Path, build: Build, host: Host):
    gone = library(here / LIBRARY)
    tree_of(here, build(here / "engine-program", "exit", gone))
    gone.unlink()
    repository(here / "repository")
    host.run(
        "bash", "-c", f"dpkg --purge --force-depends {PACKAGE}; rm -rf /etc/apt/sources.list* /etc/apt/apt.conf.d/*"
    )

    without = agent(host, "ensure", here)
    assert str(without["problem"]).startswith(
        f"{LIBRARY} is missing and could not be installed: apt-get install {PACKAGE}: "
    )

    host.run("bash", "-c", f"echo 'deb [trusted=yes] file:/lab/{here.name}/repository ./' >/etc/apt/sources.list")
    install = f"apt-get install {PACKAGE}"
    assert agent(host, "ensure", here) == {"note": "", "told": [install, "apt-get update", install]}
    assert "install ok installed" in host.run("dpkg", "-s", PACKAGE)
    assert agent(host, "ensure", here) == {"note": "", "told": []}


def test_what_is_proven_runs_as_a_service_that_is_gone_afterwards(here: Path, engine: Path, host: Host):
    tree_of(here, engine)
    found = agent(host, "prove", here)
    assert str(found.get("version", found)).startswith("b")
    assert services(host) == ""


@pytest.mark.parametrize(
    ("does", "words"),
    [
        ("sigill", "it died by an illegal instruction (SIGILL): the CPU (EPYC: no vector extensions) lacks"),
        ("exit", "it ended with exit status 3; it said last: AMX is not ready"),
        ("hang", "it had not loaded it after 1s; it said last: AMX is not ready"),
    ],
)
def test_how_a_service_ended_is_told_as_of_a_process(here: Path, build: Build, host: Host, does: str, words: str):
    tree_of(here, build(here / "engine-program", does))
    assert words in str(agent(host, "prove", here, 1.0)["problem"])
    assert services(host) == ""


def services(host: Host) -> str:
    return host.run("systemctl", "list-units", "--all", "--no-legend", "llmgw-*")


def test_what_unpacks_sees_nothing_but_its_directory(here: Path, host: Host):
    (here / "only-this").touch()
    words = ["systemd-run", "--wait", "--pipe", "--quiet", "--collect", f"--setenv=PYTHONPATH={ROOT}", *sandbox()]
    said = host.run(*words, "--property=ReadWritePaths=/lab", sys.executable, "-c", SEES, f"/lab/{here.name}")
    assert said.split() == [str(USER), "only-this"]
