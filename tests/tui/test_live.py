"""The feed against a real server of the operator service."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from llmgw.config.address import Address
from llmgw.config.client import ClientConfig
from llmgw.config.tls import TlsFiles
from llmgw.core.errors import BadConfig, ControlUnreachable, UnknownModel
from llmgw.core.identity import Role
from llmgw.core.presence import NodeState
from llmgw.core.safe import safe
from llmgw.core.views import Gone, Noun
from llmgw.pki import authority
from llmgw.tui import live
from llmgw.tui.builder import EVENTS_HELD, Builder
from llmgw.tui.live import LiveFeed
from llmgw.tui.view import Link, View
from tests import worlds
from tests.tui.served import Operators, served, snapshot


class Seen:
    """The views that a feed told, and a way to wait for one."""

    def __init__(self) -> None:
        self.views: list[View] = []
        self._came = asyncio.Event()

    def tell(self, view: View) -> None:
        self.views.append(view)
        self._came.set()

    async def until(self, true: Callable[[View], bool]) -> View:
        async with asyncio.timeout(5):
            while not (self.views and true(self.views[-1])):
                self._came.clear()
                await self._came.wait()
        return self.views[-1]


async def test_a_snapshot_then_changes_then_a_loss_then_a_new_snapshot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live, "BACKOFF", (0.05, 0.1))
    seen, path = Seen(), tmp_path / "s"
    feed = LiveFeed(ClientConfig(socket=path))
    async with asyncio.TaskGroup() as tasks:
        running = tasks.create_task(feed.run(seen.tell))
        nobody = await seen.until(lambda view: bool(view.problem))
        assert (nobody.link, nobody.whole) == (Link.CONNECTING, False)
        with pytest.raises(ControlUnreachable):
            await feed.why("gemma")

        operators = Operators(worlds.three_nodes())
        async with served(operators, path):
            view = await seen.until(lambda view: view.whole)
            assert (list(view.nodes), view.link) == (["node01", "node02", "node03"], Link.LIVE)
            assert not view.problem
            assert abs(feed.now() - worlds.T0) < 2, "ages are counted by the control plane's clock"
            operators.say(worlds.node("node01", NodeState.LOST), Gone(noun=Noun.NODES, name="node03"))
            view = await seen.until(lambda view: "node03" not in view.nodes)
            assert view.nodes["node01"].state is NodeState.LOST
            assert (await feed.why("gemma")).fits == ("node03",)
            assert (await feed.scale("gemma", 3)).event.seq == 48214
            with pytest.raises(UnknownModel):
                await feed.why("gemmma")

        view = await seen.until(lambda view: view.link is Link.STALE)
        assert list(view.nodes) == ["node01", "node02"], "the last figures stay"
        assert view.problem

        async with served(Operators(worlds.empty()), path):
            view = await seen.until(lambda view: view.link is Link.LIVE)
            assert dict(view.nodes) == {}
            running.cancel()


async def test_a_flood_of_changes_becomes_a_few_views(tmp_path: Path) -> None:
    seen, operators = Seen(), Operators(worlds.three_nodes())
    async with served(operators, tmp_path / "s") as where, asyncio.TaskGroup() as tasks:
        running = tasks.create_task(LiveFeed(where).run(seen.tell))
        await seen.until(lambda view: view.whole)
        before = len(seen.views)
        began = asyncio.get_running_loop().time()
        for promised in range(300):
            operators.say(worlds.node("node01", promised=promised))
            await asyncio.sleep(0.002)  # a rate, no wait for anything
        await seen.until(lambda view: view.nodes["node01"].promised == 299)
        took = asyncio.get_running_loop().time() - began
        assert len(seen.views) - before <= took / live.PAUSE + 2
        running.cancel()


async def test_a_feed_that_is_cancelled_while_its_stream_breaks_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A task group of Python 3.11 forgets that it was cancelled when its tasks fail at the same time."""
    monkeypatch.setattr(live, "BACKOFF", (0.01, 0.01))
    watching = asyncio.Event()

    async def breaks(self: LiveFeed, client: object) -> None:
        watching.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            raise ControlUnreachable("here", "it broke") from None

    monkeypatch.setattr(LiveFeed, "_pages", breaks)
    async with served(Operators(worlds.three_nodes()), tmp_path / "s") as where, asyncio.timeout(2):
        running = asyncio.get_running_loop().create_task(LiveFeed(where).run(Seen().tell))
        await watching.wait()
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running


async def test_a_server_that_answers_no_more_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A watch that is silent looks the same whether nothing changes or the cable is cut."""
    monkeypatch.setattr(live, "ANSWER", 0.2)
    monkeypatch.setattr(live, "BEAT", 0.05)
    seen, operators = Seen(), Operators(worlds.three_nodes())
    async with served(operators, tmp_path / "s") as where, asyncio.TaskGroup() as tasks:
        running = tasks.create_task(LiveFeed(where).run(seen.tell))
        await seen.until(lambda view: view.whole and view.about is not None)

        async def silent(message: object) -> object:
            return await asyncio.Event().wait()

        monkeypatch.setattr(operators, "about", silent)
        view = await seen.until(lambda view: view.link is Link.STALE)
        assert "no answer for" in view.problem
        running.cancel()


def remote(directory: Path, *, key: str = "operator.key") -> ClientConfig:
    authority.init(directory / "pki", "demo")
    for name in ("operator", "other"):
        authority.issue(directory / "pki", name, Role.OPERATOR, [], directory)
    files = TlsFiles(certificate=directory / "operator.crt", key=directory / key, authority=directory / "authority.crt")
    return ClientConfig(server=(Address("127.0.0.1", 7443),), tls=files)


def test_files_that_cannot_be_used_are_said_before_the_screen_is_taken(tmp_path: Path) -> None:
    where = remote(tmp_path / "a")
    LiveFeed(where)
    with pytest.raises(BadConfig, match="belongs to the key"):
        LiveFeed(remote(tmp_path / "b", key="other.key"))
    (tmp_path / "a" / "operator.key").chmod(0o644)
    with pytest.raises(BadConfig, match="chmod 600"):
        LiveFeed(where)


def test_a_half_snapshot_is_never_shown() -> None:
    builder = Builder()
    for page in snapshot(worlds.three_nodes()):
        assert builder.take(page) is page.complete
    about = worlds.about()
    whole = builder.view(about, Link.LIVE, 0, safe(""))
    first = snapshot(worlds.empty())[0]
    assert not builder.take(replace(first, complete=False))
    assert builder.view(about, Link.LIVE, 0, safe("")).nodes is whole.nodes, "what did not change is the same object"
    assert builder.take(replace(first, first=True))
    assert dict(builder.view(about, Link.LIVE, 0, safe("")).nodes) == {}


def test_old_events_are_forgotten() -> None:
    builder = Builder()
    page = snapshot(worlds.empty())[0]
    event = worlds.STORY[0]
    many = tuple(replace(event, seq=seq) for seq in range(3 * EVENTS_HELD))
    builder.take(replace(page, items=many))
    assert len(builder.view(None, Link.LIVE, 0, safe("")).events) == EVENTS_HELD
