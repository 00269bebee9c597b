"""`llmgw doctor` as people run it: on a host with planted faults, as a user who is not root, on a healthy cluster."""

import asyncio
import json
import os
import re
import shutil
import socket
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from llmgw.core.identity import Role
from llmgw.pki import authority
from tests.journeys.world import plan, serving

pytestmark = pytest.mark.journey

ROOT = Path(__file__).parents[2]
NOBODY = 65534
ROWS = re.findall(r"^\| (`.*?`) \|", (ROOT / "docs" / "doctor.md").read_text(), re.MULTILINE)
DOCUMENTED = {name for row in ROWS for name in re.findall(r"`([a-z ]+)`", row)}


def as_nobody() -> list[str]:
    """The start of a command line of an unprivileged user, with a Python that this user may run."""
    if os.geteuid() != 0:
        pytest.skip("only root can run a program as another user")
    if (setpriv := shutil.which("setpriv")) is None:
        pytest.skip("there is no setpriv")
    drop = [setpriv, f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", "--"]
    same = f"import sys; sys.exit(sys.version_info[:2] != {sys.version_info[:2]!r})"
    for python in (sys.executable, "/usr/bin/python3"):
        done = subprocess.run([*drop, python, "-c", same], capture_output=True)
        if done.returncode == 0:
            return [*drop, python]
    pytest.skip("no Python of this version that another user may run")


def doctor(start: list[str], *words: object, home: Path) -> tuple[int, dict[str, Any]]:
    """Exit status and the JSON answer."""
    status, said = told(start, *words, "--json", home=home)
    return status, json.loads(said)


def told(start: list[str], *words: object, home: Path) -> tuple[int, str]:
    """Exit status and what it says, with nothing on stderr."""
    packages = [str(ROOT), *(one for one in sys.path if one.endswith("site-packages"))]
    environment = {"PYTHONPATH": os.pathsep.join(packages), "HOME": str(home), "PATH": os.environ["PATH"]}
    argv = [*start, "-m", "llmgw.cli.main", "doctor", *map(str, words)]
    done = subprocess.run(argv, capture_output=True, text=True, env=environment, timeout=60, cwd=home)
    assert done.stderr == ""
    return done.returncode, done.stdout


def wrong(answer: dict[str, Any]) -> dict[tuple[str, str], str]:
    """The checks that are not ok, by name and result; with what they say."""
    found: dict[tuple[str, str], str] = {}
    for one in answer["checks"]:
        if one["result"] != "ok":
            key = one["name"], one["result"]
            found[key] = "\n".join(filter(None, (found.get(key), f"{one['fact']} → {one['fix']}")))
    return found


def closed_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return int(taken.getsockname()[1])


@pytest.fixture
def open_path(tmp_path: Path) -> Path:
    """A directory that another user can get into: pytest's own are private."""
    for one in (tmp_path, *tmp_path.parents):
        if one == Path("/tmp"):
            break
        one.chmod(one.stat().st_mode | stat.S_IXGRP | stat.S_IXOTH | stat.S_IRGRP | stat.S_IROTH)
    return tmp_path


def faulty_host(host: Path) -> tuple[Path, int]:
    """An agent.yaml of seven faults, and the port at which its control plane is not."""
    authority.init(host / "pki", "lab")
    issued = authority.issue(host / "pki", "node06", Role.AGENT, [], host / "tls")
    issued.key.chmod(0o644)
    engine = host / "llama-server"
    engine.write_text(
        "#!/bin/sh\necho 'error while loading shared libraries: libgomp.so.1: cannot open' >&2\nexit 127\n"
    )
    engine.chmod(0o755)
    (host / "state").mkdir(mode=0o500)
    port = closed_port()
    config = {
        "control": [f"127.0.0.1:{port}"],
        "tls": {"certificate": str(issued.certificate), "key": str(issued.key), "authority": str(issued.authority)},
        "node": "node05",
        "state": str(host / "state"),
        "engines": {"llama.cpp": str(engine)},
        "engine_ports": "30000-60999",
        "fabrics": {"ib-a": ["mlx5_9"]},
        "enginez": {},
        "launcher": "session",
    }
    file = host / "agent.yaml"
    file.write_text(yaml.safe_dump(config, sort_keys=False))
    return file, port


def test_a_new_user_is_told_every_fault_that_was_planted(open_path: Path):
    start = as_nobody()
    file, port = faulty_host(open_path)
    status, answer = doctor(start, file, "--timeout", "1s", home=open_path)
    same, text = told(start, file, "--timeout", "1s", home=open_path)
    found = wrong(answer)
    planted = {
        ("configuration", "fault"): "enginez: unknown key; did you mean engines?",
        ("files", "fault"): "has mode 0644: a private key must be for its owner only → chmod 600",
        (
            "certificate",
            "fault",
        ): "is for node06, the node is node05: the control plane will refuse it → on the machine with the authority",
        ("engine", "fault"): "libgomp.so.1: cannot open",
        ("control plane", "fault"): f"127.0.0.1:{port}: connection refused → is llmgwd running there?",
        ("ports", "warning"): "engine_ports 30000-60999 overlaps the ports",
        ("fabric", "fault"): "fabric ib-a names adapter mlx5_9, which is not there",
    }
    for key, words in planted.items():
        assert words in found[key], key
        assert all(part in text for part in words.split(" → ")), key
    assert (status, same, answer["result"]) == (2, 2, "fault")
    assert answer["host"] == socket.gethostname()
    assert {"subject", "name", "result", "fact", "fix"} == set(answer["checks"][0])
    assert {one["name"] for one in answer["checks"]} <= DOCUMENTED


def test_a_user_is_told_what_only_root_may_read(open_path: Path):
    """Nothing is called wrong that could not be looked at, and nothing right."""
    start = as_nobody()
    file, _ = faulty_host(open_path)
    (open_path / "tls" / "node06.key").chmod(0o600)
    _, answer = doctor(start, file, "--timeout", "1s", home=open_path)
    assert (
        "node06.key is root's (mode 0600) and cannot be read by nobody → run as root"
        in wrong(answer)["files", "warning"]
    )
    assert "is for node06, the node is node05" in wrong(answer)["certificate", "fault"]
    assert "connection refused" in wrong(answer)["control plane", "fault"]
    file.chmod(0o600)
    status, answer = doctor(start, file, home=open_path)
    assert status == 1
    assert f"{file} cannot be read by nobody → run as root" in wrong(answer)["configuration", "warning"]


@pytest.mark.long
async def test_each_part_of_a_healthy_cluster_is_well(tmp_path: Path):
    """Beside a cluster that serves; the nodes describe their own machine, as in earnest."""
    async with serving(plan(tmp_path, nodes=1, replicas=1)) as cluster:
        directory = cluster.plan.directory
        node = directory / "nodes" / "node01"
        real = yaml.safe_load((node / "agent.yaml").read_text())
        real.pop("discovery_root", None)
        (node / "real.yaml").write_text(yaml.safe_dump(real))
        for file in (
            directory / "server.yaml",
            directory / "router.yaml",
            directory / "client.yaml",
            node / "real.yaml",
        ):
            status, answer = await asyncio.to_thread(doctor, [sys.executable], file, home=tmp_path)
            assert (wrong(answer), status, answer["result"]) == ({}, 0, "ok"), file.name
            assert len(answer["checks"]) > 4 and {one["name"] for one in answer["checks"]} <= DOCUMENTED
