"""A router on another machine than the engines: out of reach on loopback, and served with `exposure: direct`."""

import asyncio
import json
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from llmgw.core.errors import Unreachable
from llmgw.core.identity import Role
from llmgw.pki import authority
from tests.lab.hosts import LAB, Lab, NoLab, lab, missing
from tests.lab.test_agent import UNIT, _install

pytestmark = pytest.mark.lab

ROOT = Path(__file__).parents[2]
CONTROL, ROUTER = f"{LAB}:7443", f"{LAB}:8080"


class Site:
    """llmgwd and a router on this machine, in the lab's network; an agent on the host."""

    def __init__(self, made: Lab, directory: Path, weights: Path) -> None:
        self.lab, self.directory, self.weights = made, directory, weights

    def write(self, exposure: str) -> None:
        """Write server.yaml."""
        profile = f"{{engine: llama.cpp, weights: /lab/weights/{self.weights.name}, context: 256, memory: 300MiB}}"
        (self.directory / "server.yaml").write_text(
            f"cluster: demo\nlisten: {CONTROL}\nstore: llmgw.db\nsettle: 1s\nexposure: {exposure}\n"
            "tls: {certificate: control/control.crt, key: control/control.key, authority: control/authority.crt}\n"
            f"models: {{tiny: {{replicas: 1, profile: {profile}}}}}\n"
        )

    @asynccontextmanager
    async def program(self, module: str, file: str) -> AsyncIterator[None]:
        """Run one of our programs in the lab's network until the block ends."""
        with (self.directory / f"{module}.log").open("ab") as log:
            words = self.lab.command(sys.executable, "-m", module, "--config", str(self.directory / file))
            process = await asyncio.create_subprocess_exec(*words, stdout=log, stderr=log, cwd=ROOT)
            try:
                yield
            finally:
                process.terminate()
                await process.wait()

    async def ctl(self, *words: str) -> str:
        """What ctl answers once the control plane can be reached; it must succeed."""
        place = ("--server", CONTROL, "--tls", str(self.directory / "operator"))
        command = self.lab.command(sys.executable, "-m", "llmgw.cli.main", "ctl", *words, *place)
        async with asyncio.timeout(90):
            while True:
                done = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True, cwd=ROOT)
                if done.returncode != Unreachable.exit_status:
                    break
        assert done.returncode == 0, done.stderr
        return done.stdout

    async def refused(self, code: str) -> dict[str, Any]:
        """Ask why until the node refuses with `code`."""
        async with asyncio.timeout(30):
            while True:
                why = json.loads(await self.ctl("why", "tiny", "--json"))
                for refusal in why["refusals"]:
                    if refusal["code"] == code:
                        return dict(refusal | refusal.get("numbers", {}))
                await asyncio.sleep(0.2)

    async def chat(self) -> tuple[int, dict[str, object]]:
        """Ask the router, from its own network."""
        body = json.dumps({"model": "tiny", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 2})
        words = ("curl", "-s", "-m", "20", "-w", "\\n%{http_code}", f"http://{ROUTER}/v1/chat/completions", "-d", body)
        done = await asyncio.to_thread(subprocess.run, self.lab.command(*words), capture_output=True, text=True)
        answer, _, status = done.stdout.rpartition("\n")
        return int(status), json.loads(answer or "{}")

    async def answered(self, status: int) -> dict[str, object]:
        """Ask until it answers with `status`; the router hears of routes by itself, which nobody tells a test."""
        async with asyncio.timeout(30):
            while True:
                got, answer = await self.chat()
                if got == status:
                    return answer
                await asyncio.sleep(0.2)


@pytest.fixture
async def site(tmp_path: Path, engine: Path, weights: Path) -> AsyncIterator[Site]:
    if problem := missing():
        pytest.skip(problem)
    authority.init(tmp_path / "authority", "demo")
    roles = {"control": Role.CONTROL, "router": Role.ROUTER, "node01": Role.AGENT, "operator": Role.OPERATOR}
    for name, role in roles.items():
        folder = "agent" if role is Role.AGENT else name
        authority.issue(tmp_path / "authority", name, role, [LAB], tmp_path / folder)
    (tmp_path / "agent.yaml").write_text(
        f"control: ['{CONTROL}']\nengines: {{llama.cpp: /lab/engine/{engine.name}}}\n"
        "tls: {certificate: agent/node01.crt, key: agent/node01.key, authority: agent/authority.crt}\n"
    )
    (tmp_path / "router.yaml").write_text(
        f"control: ['{CONTROL}']\nlisten: {ROUTER}\nstate: router\ndrain: 0s\n"
        "tls: {certificate: router/router.crt, key: router/router.key, authority: router/authority.crt}\n"
    )
    binds = {tmp_path: "/lab", engine.parent: "/lab/engine", weights.parent: "/lab/weights"}
    binds |= {Path(place): place for place in {str(ROOT), sys.base_prefix}}
    async with AsyncExitStack() as stack:
        try:
            made = stack.enter_context(lab(tmp_path, binds))
        except NoLab as problem:
            pytest.skip(str(problem))
        _install(made.host)
        yield Site(made, tmp_path, weights)


async def test_engines_of_another_machine_are_out_of_reach_until_they_are_exposed(site: Site) -> None:
    site.write("loopback")
    async with site.program("llmgw.router.main", "router.yaml"):
        async with site.program("llmgw.daemon.main", "server.yaml"):
            await asyncio.to_thread(site.lab.host.run, "systemctl", "start", UNIT)
            refusal = await site.refused("unreachable_address")
            assert refusal["router"] == "router"
            assert refusal["address"] == "127.0.0.1"
            assert "this router is on another machine" in refusal["error"]
            await site.answered(503)
        site.write("direct")
        async with site.program("llmgw.daemon.main", "server.yaml"):
            await site.answered(503)
            status = json.loads(await site.ctl("status", "--json"))
            assert "engines" in json.dumps(status["warnings"]), "that is said"
            await site.ctl("scale", "tiny", "1", "--wait=30s")
            assert (await site.answered(200))["choices"]
            replica = json.loads(await site.ctl("models", "--json"))["models"][0]["replicas"][0]
            assert replica["shards"][0]["node"] == "node01"
