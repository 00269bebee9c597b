"""What is the same on every screen: who and where above, the keys, the prompt, where one is and what happened below?"""

from collections.abc import Iterable
from typing import ClassVar, cast

from textual import on
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Horizontal
from textual.screen import Screen
from textual.widget import Widget

from llmgw.core.safe import Safe, join, safe
from llmgw.tui import keys
from llmgw.tui.commands import COMMANDS
from llmgw.tui.owner import Owner
from llmgw.tui.rows.row import rough_age
from llmgw.tui.text import content, fitted, width
from llmgw.tui.view import Link, View
from llmgw.tui.widgets.header import banner, header, hints
from llmgw.tui.widgets.line import Line
from llmgw.tui.widgets.prompt import Prompt

_BETWEEN = 2
"""Cells between the crumbs and what happened: the padding in the stylesheet."""


class Frame(Screen[None]):
    """A screen: it is given views and shows them."""

    own_keys: ClassVar[tuple[keys.Key, ...]] = ()
    """Its own keys, beside those that work everywhere: bound, hinted and helped from here."""
    place: ClassVar[str] = ""
    """What the README calls it."""
    BINDINGS: ClassVar[list[BindingType]] = keys.bindings(keys.EVERYWHERE)

    def __init_subclass__(cls) -> None:
        if "own_keys" in cls.__dict__:
            cls.BINDINGS = keys.bindings(cls.own_keys)
        super().__init_subclass__()

    def __init__(self) -> None:
        super().__init__()
        self.prompt = Prompt()
        self._header = Line(id="header")
        self._hints = Line(id="hints")
        self._banner = Line(id="banner")
        self._crumbs = Line(id="crumbs")
        self._flash = Line(id="flash")

    # --- what a screen says -------------------------------------------------------------------------------------

    @classmethod
    def usual_keys(cls) -> tuple[keys.Key, ...]:
        """The keys that it has in common with others."""
        return keys.EVERYWHERE

    def keys_here(self) -> tuple[keys.Key, ...]:
        """Those of its own keys that do something now."""
        return self.own_keys

    def crumb(self) -> Safe:
        """Its name in the line of crumbs."""
        raise NotImplementedError

    def body(self) -> Iterable[Widget]:
        """What stands between the hints and the crumbs."""
        raise NotImplementedError

    def show(self, view: View) -> None:
        """Show another moment."""
        raise NotImplementedError

    def tick(self, now: float) -> None:
        """A second went by."""

    def ready(self) -> None:
        """Give the focus to where the keys belong."""

    # --- the frame ----------------------------------------------------------------------------------------------

    @property
    def owner(self) -> Owner:
        """The console."""
        return cast(Owner, self.app)

    def compose(self) -> ComposeResult:
        """The frame around the body."""
        yield self._header
        yield self._hints
        yield self._banner
        yield self.prompt
        yield from self.body()
        with Horizontal(id="bottom"):
            yield self._crumbs
            yield self._flash

    def on_mount(self) -> None:
        """It is there for the first time."""
        self.ready()

    def on_screen_resume(self) -> None:
        """It is on top (again): other views may have come meanwhile."""
        self.update(self.owner.view)

    def on_resize(self) -> None:
        """Another size: other things fit."""
        self.set_class(self.size.height >= 40, "-roomy")
        self.update(self.owner.view)

    def update(self, view: View) -> None:
        """Show this view, with the frame around it."""
        self.set_class(view.link is not Link.LIVE, "-stale")
        self.show(view)
        self.frame()

    @property
    def has_banner(self) -> bool:
        """Whether the line under the hints is there."""
        return banner(self.owner.view) is not None

    def frame(self) -> None:
        """Draw what is around the body."""
        owner, room = self.owner, self.size.width
        self._header.show(
            header(owner.view, owner.feed.where, owner.now(), room, read_only=owner.read_only, note=owner.note)
        )
        self._hints.show(hints(keys.allowed(self.keys_here(), read_only=owner.read_only), self.usual_keys(), room))
        said = banner(owner.view)
        self._banner.display = said is not None
        if said is not None:
            self._banner.show(content((fitted(safe(f" {said[0]}", limit=1024), room), said[1])))
        trail = [screen.crumb() for screen in self.app.screen_stack if isinstance(screen, Frame)]
        self._crumbs.show(content((safe(f" {join(' > ', trail)}"), "$primary")))
        self._say(owner.flashed)

    def _say(self, flashed: tuple[Safe, str] | None) -> None:
        """What happened; the answer to an act may take the whole line, and more lines, rather than be cut."""
        room = self.size.width - min(self.size.width // 2, max(20, len(self._crumbs.render().plain))) - _BETWEEN
        long = flashed is not None and width(flashed[0]) > room
        if self.has_class("-long") != long:
            self.set_class(long, "-long")
        self._flash.show(content(flashed or self._last_event()))
        if long:
            self._flash.refresh(layout=True)

    def _last_event(self) -> tuple[Safe, str]:
        events = self.owner.view.events
        if not events:
            return safe(""), ""
        event = events[-1]
        ago = rough_age(self.owner.now() - event.at)
        return safe(f"{event.kind.value} {event.subject}: {event.text}, {ago} ago "), "$text-muted"

    # --- keys ---------------------------------------------------------------------------------------------------

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """With --read-only, the keys that change the cluster do nothing; in the prompt, `:` and `/` are characters."""
        if action in ("command", "filter") and self.prompt.has_focus:
            return False
        return not (self.owner.read_only and keys.dangerous(action))

    def action_command(self) -> None:
        """`:` opens the prompt."""
        self.prompt.open(":", "", join("  ", [command.usage for command in COMMANDS]))

    def action_help(self) -> None:
        """`?` shows the keys of this screen."""
        self.owner.show_help()

    def action_back(self) -> None:
        """`esc` goes to the screen before."""
        self.owner.go_back()

    def action_up(self) -> None:
        """`q` does the same, whatever is filtered."""
        self.owner.go_back()

    @on(Prompt.Entered)
    def _entered(self, event: Prompt.Entered) -> None:
        self.ready()
        if event.mark == ":":
            self.owner.run_command(event.text)

    @on(Prompt.Left)
    def _left(self) -> None:
        self.ready()
