"""SIGHUP: what of server.yaml takes effect at once, and what a bad file does."""

import asyncio
import logging
import signal
from pathlib import Path

import pytest

from llmgw.config.load import load_server
from llmgw.core.events import Event
from llmgw.core.views import ModelView, Noun
from llmgw.daemon.reload import differing
from tests.daemon.conftest import MODEL, Certificates, Control, Start, write_config
from tests.daemon.test_process import llmgwd

TWO = MODEL.replace("replicas: 1", "replicas: 3") + MODEL.partition("models:\n")[2].replace("gemma", "second")


async def models(control: Control) -> dict[str, int]:
    async with control.client() as client:
        pages = [page async for page in client.watch([Noun.MODELS], follow=False)]
    return {item.name: item.wanted for page in pages for item in page.items if isinstance(item, ModelView)}


class Lines(logging.Handler):
    """The log, as it is written."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: asyncio.Queue[str] = asyncio.Queue()

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.put_nowait(record.getMessage())


@pytest.fixture
def log():  # type: ignore[no-untyped-def]
    handler, logger = Lines(), logging.getLogger("llmgw.daemon.reload")
    logger.addHandler(handler)
    before = logger.level
    logger.setLevel(logging.INFO)
    yield handler.lines
    logger.removeHandler(handler)
    logger.setLevel(before)


async def next_line(log: asyncio.Queue[str]) -> str:
    async with asyncio.timeout(10):
        return await log.get()


async def test_models_are_added_changed_and_removed_without_a_restart(
    start: Start, tmp_path: Path, certificates: Certificates, log: asyncio.Queue[str]
) -> None:
    async with start() as control:
        write_config(tmp_path, certificates, TWO)
        control.hangup.set()
        assert (await next_line(log)).endswith("server.yaml: read again: 2 models, 2 changed")
        assert await models(control) == {"gemma": 3, "second": 1}
        write_config(tmp_path, certificates, "\n")
        control.hangup.set()
        assert (await next_line(log)).endswith("read again: 0 models, 2 changed")
        assert await models(control) == {}
        async with control.client() as client:
            pages = [page async for page in client.watch([Noun.EVENTS], follow=False, events=100)]
    kinds = [item.kind.value for page in pages for item in page.items if isinstance(item, Event)]
    assert kinds.count("model_added") == 1
    assert kinds.count("model_changed") == 1
    assert kinds.count("model_removed") == 2
    assert log.empty()


async def test_a_bad_file_is_one_line_and_changes_nothing_and_the_next_good_one_counts(
    start: Start, tmp_path: Path, certificates: Certificates, log: asyncio.Queue[str]
) -> None:
    async with start() as control:
        for text in (TWO.replace("600MiB", "lots"), "\nmodels: ["):
            write_config(tmp_path, certificates, text)
            control.hangup.set()
            line = await next_line(log)
            assert line.startswith("not reloaded, nothing was changed: ")
            assert "server.yaml:" in line
            assert "\n" not in line
        (tmp_path / "server.yaml").unlink()
        control.hangup.set()
        assert "server.yaml" in await next_line(log)
        assert await models(control) == {"gemma": 1}
        write_config(tmp_path, certificates, TWO)
        control.hangup.set()
        assert "read again" in await next_line(log)
        assert await models(control) == {"gemma": 3, "second": 1}
        assert log.empty()


async def test_keys_that_need_a_restart_are_named_and_do_not_count(
    start: Start, tmp_path: Path, certificates: Certificates, log: asyncio.Queue[str]
) -> None:
    async with start() as control:
        write_config(tmp_path, certificates, TWO, heartbeat="600ms", drain="5s", exposure="direct")
        for changed in (2, 0):
            control.hangup.set()
            assert f"2 models, {changed} changed" in await next_line(log)
            assert (await next_line(log)).endswith("only a restart makes these keys count: heartbeat, exposure, drain")
        async with control.client() as client:
            assert (await client.about()).exposure == "loopback"
        async with control.agent("node01") as node:
            assert (await node.register()).heartbeat == 0.5


def test_a_file_that_says_the_same_in_other_words_differs_in_nothing(
    tmp_path: Path, certificates: Certificates
) -> None:
    one = load_server(write_config(tmp_path, certificates))
    same = load_server(write_config(tmp_path, certificates, TWO, heartbeat="0.5s", drain="30s"))
    other = load_server(write_config(tmp_path, certificates, store="other.db"))
    assert differing(one, same) == []
    assert differing(one, other) == ["store"]


async def test_the_signal_reloads_a_running_llmgwd(tmp_path: Path, certificates: Certificates) -> None:
    async with llmgwd(tmp_path, certificates) as daemon, daemon.client() as client:
        write_config(tmp_path, certificates, "\nmodels: 7")
        daemon.process.send_signal(signal.SIGHUP)
        assert "not reloaded, nothing was changed: " in await daemon.line("reload")
        write_config(tmp_path, certificates, TWO)
        daemon.process.send_signal(signal.SIGHUP)
        await daemon.line("read again: 2 models, 2 changed")
        assert (await client.why_model("second")).wanted == 1
        assert (await daemon.end(signal.SIGTERM))[0] == 0
