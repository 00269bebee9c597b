"""Should it really be done? Asked before an act that needs no more than a yes."""

from typing import ClassVar

from textual import events, on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical
from textual.screen import ModalScreen
from textual.widgets import Button

from llmgw.core.safe import Safe, safe
from llmgw.tui.text import EOL, content
from llmgw.tui.widgets.line import Line

_HINT = safe("enter cancels · y or tab and enter: {} · esc leaves")


class ConfirmDialog(ModalScreen[bool]):
    """Gives True when it was confirmed. Cancel has the focus: one careless enter does nothing, `y` does it."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,q,n", "leave", show=False, priority=True)]

    def __init__(self, *, title: Safe, question: Safe, consequence: Safe, act: Safe) -> None:
        super().__init__()
        self._title, self._question, self._consequence, self._act = title, question, consequence, act
        self._what, self._hint = Line(id="what"), Line(id="hint")

    def compose(self) -> ComposeResult:
        """Question, consequence, two buttons."""
        with Vertical(id="dialog") as box:
            box.border_title = content(self._title)
            yield self._what
            yield self._hint
            with Horizontal(id="buttons"):
                yield Button(content(safe("Cancel")), id="cancel", compact=True)
                yield Button(content(self._act), id="act", variant="warning", compact=True)

    def on_mount(self) -> None:
        """Nothing is done by one careless enter."""
        self._what.show(content((self._question, "bold"), EOL, self._consequence))
        self._hint.show(content((safe(_HINT.format(self._act.lower())), "$text-muted")))
        self.query_one("#cancel").focus()

    def on_key(self, event: events.Key) -> None:
        """`y` does it from everywhere."""
        if event.character == "y":
            event.stop()
            self.dismiss(True)

    def action_leave(self) -> None:
        """Escape."""
        self.dismiss(False)

    @on(Button.Pressed, "#cancel")
    def _cancelled(self) -> None:
        self.dismiss(False)

    @on(Button.Pressed, "#act")
    def _pressed(self) -> None:
        self.dismiss(True)
