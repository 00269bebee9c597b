"""What is the same on every screen: who and where above, the keys, the prompt, where one is and what happened below?"""

from collections.abc import Iterable
from typing import TYPE_CHECKING, ClassVar, cast

from textual import on
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Horizontal
from textual.screen import Screen
from textual.widget import Widget

from llmgw.core.safe import Safe, join, safe
from llmgw.tui import keys
from llmgw.tui.commands import COMMANDS
from llmgw.tui.rows.row import rough_age
from llmgw.tui.text import content, fitted
from llmgw.tui.view import Link, View
from llmgw.tui.widgets.header import banner, header, hints
from llmgw.tui.widgets.line import Line
from llmgw.tui.widgets.prompt import Prompt

if TYPE_CHECKING:
    from llmgw.tui.app import Console


class Frame(Screen[None]):
    """A screen: it is given views and shows them."""

    own_keys: ClassVar[tuple[keys.Key, ...]] = ()
    """Its own keys, beside those that work everywhere: bound, hinted and helped from here."""
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
    def console_app(self) -> "Console":
        """The app, as what it is."""
        return cast("Console", self.app)

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
        self.update(self.console_app.view)

    def on_resize(self) -> None:
        """Another size: other things fit."""
        self.set_class(self.size.height >= 40, "-roomy")
        self.update(self.console_app.view)

    def update(self, view: View) -> None:
        """Show this view, with the frame around it."""
        self.set_class(view.link is not Link.LIVE, "-stale")
        self.show(view)
        self.frame()

    def frame(self) -> None:
        """Draw what is around the body."""
        app, room = self.console_app, self.size.width
        self._header.show(header(app.view, app.feed.where, app.now(), room, read_only=app.read_only))
        self._hints.show(hints(keys.allowed(self.own_keys, read_only=app.read_only), room))
        said = banner(app.view)
        self._banner.display = said is not None
        if said is not None:
            self._banner.show(content((fitted(safe(f" {said[0]}", limit=1024), room), said[1])))
        trail = [screen.crumb() for screen in app.screen_stack if isinstance(screen, Frame)]
        self._crumbs.show(content((safe(f" {join(' > ', trail)}"), "$primary")))
        self._flash.show(content(app.flashed or self._last_event()))

    def _last_event(self) -> tuple[Safe, str]:
        events = self.console_app.view.events
        if not events:
            return safe(""), ""
        event = events[-1]
        ago = rough_age(self.console_app.now() - event.at)
        return safe(f"{event.subject}: {event.text}, {ago} ago "), "$text-muted"

    # --- keys ---------------------------------------------------------------------------------------------------

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """With --read-only, the keys that change the cluster do nothing; in the prompt, `:` and `/` are characters."""
        if action in ("command", "filter") and self.prompt.has_focus:
            return False
        return not (self.console_app.read_only and keys.dangerous(action))

    def action_command(self) -> None:
        """`:` opens the prompt."""
        self.prompt.open(":", "", join("  ", [command.usage for command in COMMANDS]))

    def action_help(self) -> None:
        """`?` shows the keys of this screen."""
        self.console_app.show_help()

    def action_back(self) -> None:
        """`esc` goes to the screen before."""
        self.console_app.go_back()

    def action_up(self) -> None:
        """`q` does the same, whatever is filtered."""
        self.console_app.go_back()

    @on(Prompt.Entered)
    def _entered(self, event: Prompt.Entered) -> None:
        self.ready()
        if event.mark == ":":
            self.console_app.run_command(event.text)

    @on(Prompt.Left)
    def _left(self) -> None:
        self.ready()
