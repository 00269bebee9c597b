"""An engine of Python on a host with systemd, made and proven from within the sandbox that the agent's unit has."""

import json
import os
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from llmgw.core.engines.releases import written
from tests.agent.python.test_environment import Place
from tests.index import torch, vllm
from tests.lab.hosts import Host, NoLab, lab, missing
from tests.lab.test_packages import sandbox, services

pytestmark = pytest.mark.lab

ROOT = Path(__file__).parents[2]

SCRIPT = """
import asyncio, json, sys
from pathlib import Path
from llmgw.agent.engines import apart
from llmgw.agent.engines.python import environment, fault, proof
from llmgw.core.inventory import Cpu, Inventory
from llmgw.core.engines.releases import read
from llmgw.core.units import GIB

async def main(root):
    assert apart.own_services()
    release, tree = read((root / "release.json").read_text()), root / "making" / "tree"
    node = Inventory(os="Debian", kernel="6", arch="x86_64", cpu=Cpu(cores=2), memory=GIB)
    try:
        await environment.make(release, root / "wheels", tree, cache=root / "cache", tell=lambda *_: None)
        version = await proof.prove(
            "vllm", tree, version="0.33.0", variant="cpu", inventory=node, tell=lambda _: None
        )
        return {"version": version}
    except fault.EnvironmentFault as error:
        return {"problem": str(error)}

print(json.dumps(asyncio.run(main(Path("/lab/python")))))
"""


@pytest.fixture
def place(tmp_path: Path) -> Place:
    (tmp_path / "python").mkdir()
    made = Place(tmp_path / "python")
    torch(made.wheels, "2.13.0")
    return made


@pytest.fixture
def host(tmp_path: Path, place: Place) -> Iterator[Host]:
    if problem := missing():
        pytest.skip(problem)
    binds = {Path(one): one for one in {str(ROOT), sys.base_prefix}} | {tmp_path: "/lab"}
    with ExitStack() as stack:
        try:
            made = stack.enter_context(lab(tmp_path, binds))
        except NoLab as problem:
            pytest.skip(str(problem))
        yield made.host


def agent(host: Host, place: Place) -> dict[str, str]:
    """Do as an agent does, in its sandbox with its state directory."""
    (place.making.parent / "release.json").write_text(written(place.release()))
    words = ["systemd-run", "--wait", "--pipe", "--quiet", "--collect", f"--setenv=PYTHONPATH={ROOT}"]
    state = "--property=ReadWritePaths=/lab/python/making /lab/python/cache"
    inner = [sys.executable, "-c", SCRIPT.replace("$", "$$")]
    answer: dict[str, str] = json.loads(host.run(*words, *sandbox(), state, *inner, timeout=120))
    return answer


def test_it_is_made_and_proven_by_services_that_are_gone_afterwards(place: Place, host: Host):
    vllm(place.wheels, "0.33.0")
    assert agent(host, place) == {"version": "0.33.0"}
    assert services(host) == ""
    made = next(place.tree.glob("lib/*/site-packages/vllm/cli.py"))
    assert os.stat(made).st_nlink == 1, "uv's cache is gone"


def test_how_a_service_of_it_ended_is_told_as_of_a_process(place: Place, host: Host):
    vllm(place.wheels, "0.33.0", main="import os, signal\ndef main():\n    os.kill(os.getpid(), signal.SIGILL)\n")
    assert agent(host, place) == {
        "problem": "vllm: vllm --version: ended by an illegal instruction: it is built for another processor"
    }
    assert services(host) == ""


def test_what_uv_says_reaches_us_out_of_its_service(place: Place, host: Host):
    vllm(place.wheels, "0.33.0")
    release = place.release()
    torch(place.wheels, "2.13.0", cuda="13.0")
    place.release = lambda **_: release  # type: ignore[method-assign]
    assert agent(host, place)["problem"].startswith("uv pip install: Failed to")
    assert services(host) == ""
