"""Room under the directories that are ours, and storage that does not answer."""

import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from llmgw.agent.discovery import disk
from llmgw.agent.discovery.disk import disks
from llmgw.agent.discovery.root import Root
from llmgw.config.agent import AgentConfig
from llmgw.config.load import load_agent
from llmgw.config.tls import TlsFiles
from tests.agent.test_main import config as written


@pytest.fixture
def config(tmp_path: Path, tls: Callable[..., TlsFiles]) -> AgentConfig:
    for name in ("weights", "more"):
        (tmp_path / name).mkdir()
    return load_agent(written(tmp_path, tls("node01"), weights="[weights, more, none, agent.yaml]"))


async def test_directories_on_one_filesystem_are_one_disk(config: AgentConfig, tmp_path: Path):
    found = {one.directory: one for one in await disks(Root(), config, 5.0)}
    room = os.statvfs(tmp_path)
    whole = found[str(tmp_path / "state")]
    assert whole.uses == ("state", "engines", "weights")
    assert whole.total == room.f_blocks * room.f_frsize
    assert 0 < whole.free <= whole.total
    problems = {name: one.problem for name, one in found.items() if one.problem}
    assert problems == {str(tmp_path / "none"): "is not there", str(tmp_path / "agent.yaml"): "is no directory"}
    assert not (tmp_path / "state").exists()  # looking makes nothing


async def test_the_usual_place_of_weights_is_looked_at_only_where_it_is(config: AgentConfig, tmp_path: Path):
    root = Root.recorded(tmp_path / "root")
    (tmp_path / "root").mkdir()
    config = config.model_copy(update={"weights": ()})
    assert [one.uses for one in await disks(root, config, 5.0)] == [("state", "engines")]
    (tmp_path / "root/var/lib/llmgw-weights").mkdir(parents=True)
    assert [one.uses for one in await disks(root, config, 5.0)] == [("state", "engines", "weights")]


async def test_storage_that_hangs_is_asked_once_and_heard_when_it_answers(
    config: AgentConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """A dead network share cannot be had here, so the question itself is made to hang."""
    dead, answers, asked = tmp_path / "more", threading.Event(), list[Path]()
    real = disk._seen

    def hangs(path: Path, made: bool) -> disk._Seen:
        if path == dead:
            asked.append(path)
            answers.wait(30)
        return real(path, made)

    monkeypatch.setattr(disk, "_seen", hangs)
    try:
        for _ in range(3):
            found = {one.directory: one.problem for one in await disks(Root(), config, 0.05)}
            assert found[str(dead)] == "its storage did not answer within 0.05s"
        assert len(asked) == 1
    finally:
        answers.set()
    for thread in threading.enumerate():
        if thread.name.startswith("once") and str(dead) in thread.name:
            thread.join(10)
    assert str(dead) not in {one.directory for one in await disks(Root(), config, 5.0)}
