"""The console: which screen is shown, and what it is shown."""

import asyncio
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import ClassVar

from textual import on, work
from textual.app import App, SystemCommand
from textual.filter import LineFilter, NoColor
from textual.message import Message
from textual.screen import Screen

from llmgw.config.client import ClientConfig
from llmgw.core.errors import LlmgwError
from llmgw.core.safe import Safe, safe
from llmgw.tui.commands import COMMANDS, BadCommand, parse
from llmgw.tui.feed import Feed
from llmgw.tui.live import LiveFeed
from llmgw.tui.screens.confirm import ConfirmDialog
from llmgw.tui.screens.engines import EnginesScreen
from llmgw.tui.screens.events import EventsScreen
from llmgw.tui.screens.frame import Frame
from llmgw.tui.screens.help import HelpScreen
from llmgw.tui.screens.models import ModelsScreen
from llmgw.tui.screens.node import NodeScreen
from llmgw.tui.screens.nodes import NodesScreen
from llmgw.tui.screens.scale import ScaleDialog
from llmgw.tui.screens.why import WhyScreen
from llmgw.tui.text import AsciiFilter
from llmgw.tui.view import View

FLASH = 6.0
"""Seconds that the result of an act stays in the last line."""
PATIENCE = 1.2
"""Seconds that an orderly end may take after a signal."""
TWICE = 2.0
"""Seconds within which a second ctrl+c leaves."""

_NO_FLASH: tuple[Safe, str] | None = None


class Console(App[None]):
    """Looks at a cluster through a feed; the only part of the console that talks to it."""

    @dataclass
    class Changed(Message):
        """Another view. A newer one replaces it while it waits."""

        view: View

        def can_replace(self, message: Message) -> bool:
            """Only the newest counts."""
            return isinstance(message, Console.Changed)

    CSS_PATH = "console.tcss"
    TITLE = "llmgw"
    ALLOW_SELECT = False  # ctrl+c would copy instead of leaving
    ENABLE_COMMAND_PALETTE = True
    ALL_COMMANDS: ClassVar[dict[str, Callable[["Console", str], None]]] = {
        "nodes": lambda app, _: app.go_to(NodesScreen()),
        "node": lambda app, name: app.show_node(name),
        "models": lambda app, _: app.go_to(ModelsScreen()),
        "why": lambda app, model: app.show_why(model),
        "engines": lambda app, _: app.go_to(EnginesScreen()),
        "events": lambda app, subject: app.go_to(EventsScreen(subject)),
        "help": lambda app, _: app.show_help(),
        "quit": lambda app, _: app.exit(),
    }

    def __init__(self, feed: Feed, *, read_only: bool = False, ascii: bool = False, note: str = "") -> None:
        super().__init__()
        self.feed = feed
        self.read_only = read_only
        self.note = safe(note)
        self.view = View()
        self.flashed = _NO_FLASH
        self._filters_of_ours: list[LineFilter] = [AsciiFilter()] if ascii else []
        if self.no_color:
            self._filters_of_ours.append(NoColor())  # Textual itself would still send greys
        self._ascii = ascii
        self._interrupted = float("-inf")
        if ascii:
            self.use_command_palette = False  # it is drawn with pictures

    def now(self) -> float:
        """The control plane's clock."""
        return self.feed.now()

    # --- life ---------------------------------------------------------------------------------------------------

    def on_mount(self) -> None:
        """Start with the nodes, and watch."""
        self.set_class(self._ascii, "-ascii")
        first = NodesScreen()
        self.push_screen(first)
        first.call_after_refresh(self._watch)  # whatever there is to load, an empty frame is there before it
        self.set_interval(1.0, self._tick)

    @work(exclusive=True, group="feed")
    async def _watch(self) -> None:
        def tell(view: View) -> None:
            self.post_message(self.Changed(view))

        await self.feed.run(tell)

    @on(Changed)
    def _changed(self, event: Changed) -> None:
        self.view = event.view
        if (frame := self._frame()) is not None:
            frame.update(self.view)

    def _tick(self) -> None:
        if (frame := self._frame()) is not None:
            frame.tick(self.now())
            frame.frame()

    def _frame(self) -> Frame | None:
        """The topmost screen that is no dialog."""
        return next((screen for screen in reversed(self.screen_stack) if isinstance(screen, Frame)), None)

    def get_line_filters(self) -> list[LineFilter]:
        """Textual draws everything through these."""
        return [*super().get_line_filters(), *self._filters_of_ours]

    def action_help_quit(self) -> None:
        """ctrl+c: leave when it comes twice."""
        now = asyncio.get_running_loop().time()
        if now - self._interrupted < TWICE:
            self.exit()
        self._interrupted = now
        self.flash(safe("ctrl+c again, or :q, leaves"), "$warning")

    # --- where one is -------------------------------------------------------------------------------------------

    def go_to(self, screen: Frame) -> None:
        """Put this screen in place of all there are."""
        frames = [shown for shown in self.screen_stack if isinstance(shown, Frame)]
        for _ in frames[1:]:
            self.pop_screen()
        self.switch_screen(screen)

    def go_back(self) -> None:
        """To the screen before; the first one stays."""
        if sum(isinstance(screen, Frame) for screen in self.screen_stack) > 1:
            self.pop_screen()

    def show_help(self) -> None:
        """Over the screen that there is."""
        if (frame := self._frame()) is not None:
            self.push_screen(
                HelpScreen(
                    frame.crumb(), (*frame.keys_here(), *frame.usual_keys()), read_only=self.read_only, note=self.note
                )
            )

    def show_node(self, name: str) -> None:
        """All about one node."""
        if name in self.view.nodes:
            self.push_screen(NodeScreen(name))
        else:
            self.flash(safe(f"node {name} is unknown; :nodes shows those that there are"), "$error")

    def show_why(self, model: str) -> None:
        """Why a model, by name or alias, has not all its replicas."""
        by_alias = {alias: name for name, view in self.view.models.items() for alias in view.aliases}
        self.push_screen(WhyScreen(by_alias.get(model, model)))

    def run_command(self, line: str) -> None:
        """Do what was typed after `:`."""
        if not line.strip():
            return
        try:
            command, argument = parse(line)
        except BadCommand as error:
            self.flash(safe(str(error)), "$error")
        else:
            self.ALL_COMMANDS[command.name](self, argument)

    def get_system_commands(self, screen: Screen[object]) -> Iterable[SystemCommand]:
        """What ctrl+p offers: the same commands."""
        for command in COMMANDS:
            if not command.needs:
                yield SystemCommand(command.name, command.label, lambda name=command.name: self.run_command(name))

    def flash(self, text: Safe, style: str) -> None:
        """Say something in the last line for a few seconds."""
        said = self.flashed = (safe(f"{text} "), style)
        self._redraw()

        def end() -> None:
            if self.flashed is said:
                self.flashed = _NO_FLASH
                self._redraw()

        self.set_timer(FLASH, end)

    def _redraw(self) -> None:
        if (frame := self._frame()) is not None:
            frame.frame()

    # --- acts ---------------------------------------------------------------------------------------------------

    def ask_scale(self, name: str) -> None:
        """Ask how many replicas a model should have, then do it."""
        model = self.view.models.get(name)
        if model is None:
            self.flash(safe(f"{name} is not in the catalog; llmgw ctl scale {name} 0 ends its replicas"), "$error")
            return

        def done(number: int | None) -> None:
            if number is not None:
                self._scale(name, model.wanted, number)

        self.push_screen(ScaleDialog(model), done)

    @work(group="acts")
    async def _scale(self, model: str, before: int, number: int) -> None:
        try:
            done = await self.feed.scale(model, number)
        except LlmgwError as error:
            self.flash(safe(f"not scaled: {error}"), "$error")
        else:
            self.flash(safe(f"scaled {model} from {before} to {number}, event {done.event.seq}"), "$success")

    def ask_retry(self, node: str, engine: str) -> None:
        """Ask whether the node should try again, then let it."""

        def done(yes: bool | None) -> None:
            if yes:
                self._retry(node, engine)

        self.push_screen(
            ConfirmDialog(
                title=safe(f"retry {engine}"),
                question=safe(f"Let {node} try again now?"),
                consequence=safe(f"it installs or repairs {engine}; what serves goes on"),
                act=safe("Retry"),
            ),
            done,
        )

    @work(group="acts")
    async def _retry(self, node: str, engine: str) -> None:
        try:
            done = await self.feed.retry(node, engine)
        except LlmgwError as error:
            self.flash(safe(f"not retried: {error}"), "$error")
        else:
            self.flash(safe(f"{node} tries {done.event.text} again, event {done.event.seq}"), "$success")


def run(where: ClientConfig, read_only: bool = False, note: str = "") -> int:
    """Run the console until it is left; the exit status is 0, or 128 and the signal that ended it; BadConfig.

    `note` is shown in the header while there is room, and in the help.
    """
    return asyncio.run(run_feed(LiveFeed(where), read_only=read_only, note=note))


async def run_feed(feed: Feed, *, read_only: bool = False, note: str = "") -> int:
    """Run the console on this feed, in the terminal that there is."""
    app = Console(feed, read_only=read_only, ascii=os.environ.get("LLMGW_ASCII", "") not in ("", "0"), note=note)
    ended_by: list[int] = []

    def end(number: int) -> None:
        if not ended_by:
            ended_by.append(number)
            app.exit()
            # Writing to a terminal that was hung up may block for ever, in this thread: so another one watches.
            watch = threading.Timer(PATIENCE, os._exit, (128 + number,))
            watch.daemon = True
            watch.start()

    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(number, end, number)
    try:
        await app.run_async()
    finally:
        for number in (signal.SIGTERM, signal.SIGHUP):
            loop.remove_signal_handler(number)
    if ended_by:
        _let_go()
    return 128 + ended_by[0] if ended_by else app.return_code or 0


def _let_go() -> None:
    """What a terminal that was hung up did not take would be tried again when Python ends, and make that a failure."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            with open(os.devnull, "wb") as nothing:
                os.dup2(nothing.fileno(), stream.fileno())
