"""Figures for a monitoring system: what is told, in a form that its own parser reads, and what asking may cost."""

import asyncio
import os
import re
import socket
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import aiohttp
import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from llmgw.config.address import Address
from llmgw.core.cluster import Cluster
from llmgw.core.inputs import AgentRegistered
from llmgw.core.units import GIB, TIB
from llmgw.core.views import NodeView
from llmgw.daemon import gauges, metrics
from llmgw.daemon.metrics import Metrics, Page
from tests import worlds
from tests.core.stage import Agent, Stage
from tests.core.stage import inventory as a_machine
from tests.daemon.conftest import Certificates, Start
from tests.daemon.test_process import llmgwd, refused

Values = dict[tuple[str, tuple[tuple[str, str], ...]], float]


def read(page: bytes) -> Values:
    """The samples as Prometheus' own parser finds them."""
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(page.decode())
        for sample in family.samples
    }


def value(values: Values, name: str, **labels: str) -> float | None:
    return values.get((name, tuple(sorted(labels.items()))))


def told(*views: NodeView) -> Values:
    text = gauges.Text()
    for view in views:
        text.add(gauges.of_node(view))
    return read(text.whole())


def test_a_server_with_eight_gpus_is_told_whole() -> None:
    found = told(worlds.gpu_server().nodes[0])
    assert value(found, "llmgw_node_state", node="gpu01", state="ready") == 1
    assert value(found, "llmgw_node_gpus", node="gpu01", vendor="nvidia") == 8
    assert value(found, "llmgw_node_gpu_memory_bytes", node="gpu01", gpu="3", kind="total") == 81559 << 20
    assert value(found, "llmgw_node_gpu_memory_bytes", node="gpu01", gpu="3", kind="used") == 70000 << 20
    assert value(found, "llmgw_node_disk_bytes", node="gpu01", directory="/srv/models", kind="free") == 9 * TIB
    memory = [value(found, "llmgw_node_memory_bytes", node="gpu01", kind=kind) for kind in ("total", "available")]
    assert memory == [2048 * GIB, 1100 * GIB]
    assert value(found, "llmgw_node_engine", node="gpu01", engine="llama.cpp", version="b10991") == 1
    assert not [key for key in found if key[0] == "llmgw_node_warning"]


def test_warnings_are_counted_by_code_and_what_is_not_known_is_left_out() -> None:
    sick = worlds.sick_node().nodes[1]
    found = told(replace(sick, warnings=(*sick.warnings, sick.warnings[0])))
    assert value(found, "llmgw_node_warning", node="node07", code="no_avx2") == 2
    assert value(found, "llmgw_node_warning", node="node07", code="disk_unknown") == 1
    names = {name for name, _ in found}
    assert not {"llmgw_node_gpus", "llmgw_node_engine"} & names, "neither is known, so neither is none"
    assert not [labels for _, labels in found if ("directory", "/mnt/nfs/weights") in labels]


def test_models_are_told_with_their_replicas_and_refusals() -> None:
    text = gauges.Text()
    for model in worlds.many_states().models:
        text.add(gauges.of_model(model))
    found = read(text.whole())
    assert value(found, "llmgw_model_state", model="llama4", state="refused") == 1
    assert value(found, "llmgw_model_replicas", model="gemma", kind="wanted") == 3
    assert value(found, "llmgw_model_replicas", model="gemma", kind="ready") == 1
    assert value(found, "llmgw_refusals", model="llama4", code="not_enough_memory") == 2


def test_a_part_of_a_divided_gpu_is_no_second_card() -> None:
    server = worlds.gpu_server().nodes[0]
    assert server.inventory is not None
    card = server.inventory.gpus[0]
    part = replace(card, uuid="MIG-1", parent=card.uuid)
    found = told(replace(server, inventory=replace(server.inventory, gpus=(card, part)), usage=None))
    assert value(found, "llmgw_node_gpus", node="gpu01", vendor="nvidia") == 1
    assert value(found, "llmgw_node_gpu_memory_bytes", node="gpu01", gpu="MIG-1", kind="total") is not None


@given(st.text(st.characters(exclude_categories=()), min_size=1, max_size=60))
def test_whatever_a_node_says_each_line_stays_a_sample(text: str) -> None:
    known = set(gauges.FAMILIES)
    assert {name for name, _ in told(*worlds.speaking(text).nodes)} <= known


def test_samples_of_one_family_stand_together_however_they_came() -> None:
    text = gauges.Text()
    for world in (worlds.gpu_server(), worlds.sick_node()):
        for node in world.nodes:
            text.add(gauges.of_node(node))
    lines = text.whole().decode().splitlines()
    heads = [line.split()[2] for line in lines if line.startswith("# TYPE")]
    assert len(heads) == len(set(heads)) >= 7
    order = [re.split("[{ ]", line)[0] for line in lines if not line.startswith("#")]
    assert len(set(order)) == sum(a != b for a, b in zip(order, ["", *order], strict=False))


def test_the_docs_name_every_family_with_its_labels() -> None:
    page = (Path(__file__).parents[2] / "docs" / "metrics.md").read_text()
    rows = dict(re.findall(r"^\| `(llmgw_\w+)` \| ([^|]*) \|", page, re.MULTILINE))
    assert {name: ", ".join(f"`{one}`" for one in labels) for name, (_, labels) in gauges.FAMILIES.items()} == {
        name: labels.strip().replace("none", "") for name, labels in rows.items()
    }


# --- a large cluster --------------------------------------------------------------------------------------------


def crowd(nodes: int) -> Cluster:
    machine = worlds.gpu_server().nodes[0].inventory
    assert machine is not None
    stage = Stage()
    for number in range(nodes):
        said = Agent(f"gpu{number:04}", inventory=machine).registration()
        stage.cluster.apply(AgentRegistered(session=number + 1, registration=said), stage.now)
    return stage.cluster


async def test_a_thousand_nodes_hold_nobody_up() -> None:
    """Who waits for the loop meanwhile gets it again and again, where the whole page takes some seconds.

    The best of three, since the machine has other work.
    """
    cluster, longest = crowd(1000), 1.0
    for _ in range(3):
        gap, page = await _gap(Page(cluster))
        longest = min(longest, gap)
    assert sum(1 for line in page.splitlines() if line.startswith(b"llmgw_node_state")) == 1000
    assert longest < 0.1, f"{longest * 1000:.1f} ms in one piece"


async def _gap(page: Page) -> tuple[float, bytes]:
    reading = asyncio.ensure_future(page.read())
    longest, before = 0.0, time.perf_counter()
    while not reading.done():
        await asyncio.sleep(0)
        now = time.perf_counter()
        longest, before = max(longest, now - before), now
    return longest, reading.result()


async def test_a_page_is_given_out_again_for_a_second() -> None:
    page = Page(crowd(3))
    first, second = await asyncio.gather(page.read(), page.read())
    assert first is second


# --- over HTTP --------------------------------------------------------------------------------------------------


@dataclass
class Served:
    """Figures that are served in this process."""

    port: int

    async def raw(self, sent: bytes) -> bytes:
        """All that comes back on a connection of its own."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        writer.write(sent)
        async with asyncio.timeout(5):
            said = await reader.read()
        writer.close()
        return said

    async def raw_or_reset(self, sent: bytes) -> bytes:
        """The same; nothing, too, when the connection was cut."""
        try:
            return await self.raw(sent)
        except ConnectionError:
            return b""


@asynccontextmanager
async def served(cluster: Cluster | None = None) -> AsyncIterator[Served]:
    figures = await Metrics.open(Address("127.0.0.1", 0), cluster or crowd(1))
    try:
        yield Served(figures.port)
    finally:
        await figures.close()


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return int(taken.getsockname()[1])


async def test_a_control_plane_serves_what_it_knows(start: Start) -> None:
    port = free_port()
    async with start(metrics=f"127.0.0.1:{port}") as control, control.agent("node01") as agent:
        await agent.register(inventory=a_machine(8 * GIB))
        async with aiohttp.ClientSession() as http, http.get(f"http://127.0.0.1:{port}/metrics") as answer:
            assert answer.status == 200
            assert answer.headers["Content-Type"].startswith("text/plain; version=")
            found = read(await answer.read())
    assert value(found, "llmgw_node_memory_bytes", node="node01", kind="total") == 8 * GIB
    assert value(found, "llmgw_model_replicas", model="gemma", kind="wanted") == 1
    assert [name for name, _ in found].count("llmgw_build_info") == 1


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n", b"200"),
        (b"GET /metrics?x=1 HTTP/1.0\r\n\r\n", b"200"),
        (b"HEAD /metrics HTTP/1.1\r\nHost: x\r\n\r\n", b"200"),
        (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", b"404"),
        (b"GET /metrics/ HTTP/1.1\r\nHost: x\r\n\r\n", b"404"),
        (b"POST /metrics HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n", b"405"),
        (b"GET /" + b"a" * 9000 + b" HTTP/1.1\r\n\r\n", b"400"),
        (b"GET / HTTP/1.1\r\nX: " + b"a" * 9000 + b"\r\n\r\n", b"400"),
        (b"GET / HTTP/1.1\r\n" + b"X: y\r\n" * 200 + b"\r\n", b"400"),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", b"400"),
    ],
)
async def test_each_request_is_answered_and_ends_its_connection(
    sent: bytes, status: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    async with served() as at:
        said = await at.raw(sent)
        assert said.startswith((b"HTTP/1.1 " + status, b"HTTP/1.0 " + status)), said[:80]
        assert b"200 OK" in await at.raw(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n"), "it lives"
    assert not [record for record in caplog.records if record.levelname in ("ERROR", "CRITICAL")]


async def test_a_body_without_an_end_is_not_waited_for() -> None:
    async with served() as at:
        said = await at.raw(b"POST /metrics HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999\r\n\r\nabc")
        assert said.startswith(b"HTTP/1.1 405")


async def test_who_says_nothing_is_let_go(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics, "SECONDS", 0.2)
    async with served() as at:
        for sent in (b"", b"GET /metrics HTTP/1.1\r\nX: "):
            assert await at.raw_or_reset(sent) == b""


async def test_more_connections_than_there_may_be_are_closed_at_once() -> None:
    async with served() as at:
        held = [await asyncio.open_connection("127.0.0.1", at.port) for _ in range(metrics.CONNECTIONS)]
        assert await at.raw_or_reset(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n") == b""
        held[0][1].close()
        async with asyncio.timeout(5):
            while not await at.raw_or_reset(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n"):
                pass  # until the server has seen that one went
        for _, writer in held:
            writer.close()


async def test_other_than_loopback_is_said_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    for host, warned in (("127.0.0.1", False), ("0.0.0.0", True)):
        caplog.clear()
        figures = await Metrics.open(Address(host, 0), crowd(1))
        await figures.close()
        assert any("plain HTTP" in record.getMessage() for record in caplog.records) is warned


# --- the process ------------------------------------------------------------------------------------------------


async def test_an_address_in_use_is_one_line_and_names_who_has_it(tmp_path: Path, certificates: Certificates) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        status, said = await refused(tmp_path, certificates, metrics=f"127.0.0.1:{port}")
    assert (status, len(said.splitlines())) == (3, 1), said
    assert f"cannot listen at 127.0.0.1:{port}: address already in use" in said and "listens there" in said
    assert "give another address with metrics: in server.yaml" in said
    assert "llmgw.db" not in os.listdir(tmp_path)


async def test_check_tries_its_address_while_no_llmgwd_runs(tmp_path: Path, certificates: Certificates) -> None:
    status, said = await refused(tmp_path, certificates, "--check", metrics="192.0.2.77:9480")
    assert (status, len(said.splitlines())) == (3, 1), said
    assert (
        "cannot listen at 192.0.2.77:9480: cannot assign requested address; give another address with metrics:" in said
    )
    port = free_port()
    async with llmgwd(tmp_path, certificates, metrics=f"127.0.0.1:{port}") as daemon:
        more = {"listen": f"127.0.0.1:{daemon.port}", "metrics": f"127.0.0.1:{port}"}
        assert (await refused(tmp_path, certificates, "--check", **more))[0] == 0


async def test_the_address_of_the_agents_is_refused(tmp_path: Path, certificates: Certificates) -> None:
    status, said = await refused(tmp_path, certificates, "--check", listen="127.0.0.1:7443", metrics="127.0.0.1:7443")
    assert status == 2 and "metrics: must not be 127.0.0.1:7443, which is `listen`" in said


async def test_it_stops_in_two_seconds_with_requests_half_said(tmp_path: Path, certificates: Certificates) -> None:
    port = free_port()
    async with llmgwd(tmp_path, certificates, metrics=f"127.0.0.1:{port}") as daemon:
        half = [await asyncio.open_connection("127.0.0.1", port) for _ in range(4)]
        half[0][1].write(b"GET /metrics HTTP/1.1\r\n")
        status, seconds = await daemon.end(15)
        assert (status, seconds < 2) == (0, True), (seconds, daemon.lines)
        for _, writer in half:
            writer.close()


async def test_nothing_of_it_is_imported_unless_it_is_asked_for() -> None:
    code = "import sys, llmgw.daemon.serve; print([m for m in ('aiohttp', 'prometheus_client') if m in sys.modules])"
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", code, stdout=asyncio.subprocess.PIPE)
    said, _ = await process.communicate()
    assert said == b"[]\n"
