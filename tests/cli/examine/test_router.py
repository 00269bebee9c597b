"""A router by its router.yaml: that it runs, or could."""

import asyncio
import json
import os
import socket
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from llmgw.cli.examine.findings import Findings
from llmgw.cli.examine.router import router
from llmgw.core.checks import Result
from llmgw.core.identity import Role
from llmgw.pki import authority

Write = Callable[[int], Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    authority.init(tmp_path / "pki", "demo")
    authority.issue(tmp_path / "pki", "r1", Role.ROUTER, [], tmp_path)

    def write(port: int) -> Path:
        tls = {"certificate": "r1.crt", "key": "r1.key", "authority": "authority.crt"}
        content = {"control": ["127.0.0.1:1"], "tls": tls, "listen": f"127.0.0.1:{port}", "state": "state"}
        path = tmp_path / "router.yaml"
        path.write_text(yaml.safe_dump(content))
        return path

    return write


def wrong(found: Findings) -> list[str]:
    told = [one for one in found.checks if one.result is not Result.OK and one.name != "control plane"]
    return [f"{one.result.value} {one.name}: {one.fact} → {one.fix}" for one in told]


async def test_one_that_does_not_run_could_listen(write: Write):
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    file = write(port)
    assert wrong(await router(file, 1.0)) == [
        f"warning router: no router runs at 127.0.0.1:{port} → start it: llmgw-router --config {file}"
    ]


@pytest.mark.parametrize(
    ("said", "line"),
    [
        ({"status": "ok", "routes": "live"}, None),
        ({"status": "no_routes", "routes": "none"}, "warning router: runs at {at} and says no_routes; its routes are"),
        ({"hello": 1}, "fault address: "),
        ("text", "fault address: "),
    ],
)
async def test_what_listens_at_its_address_is_asked(said: object, line: str | None, write: Write):
    body = json.dumps(said).encode()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    found = wrong(await router(write(port), 1.0))
    server.close()
    assert len(found) == (line is not None)
    for text in found:
        assert line is not None and text.startswith(line.format(at=f"127.0.0.1:{port}"))
        if "address" in line:
            assert f"(pid {os.getpid()}) listens at 127.0.0.1:{port} and does not answer as a router does" in text
