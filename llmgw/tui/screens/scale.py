"""How many replicas should a model have? Asked before the one thing that changes the cluster."""

from typing import ClassVar

from textual import events, on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical
from textual.screen import ModalScreen
from textual.widgets import Button, Input

from llmgw.core.safe import Safe, safe
from llmgw.core.units import Bytes, size
from llmgw.core.views import ModelView
from llmgw.tui.text import EOL, content
from llmgw.tui.widgets.line import Line

MOST = 9999


class ScaleDialog(ModalScreen[int | None]):
    """Gives the number, or None when it was left. Cancel has the focus; a digit, `+` or `-` changes the number."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q", "leave", show=False),
        Binding("plus,up", "add(1)", show=False),
        Binding("minus,down", "add(-1)", show=False),
    ]

    def __init__(self, model: ModelView) -> None:
        super().__init__()
        self._model = model
        self._input = Input(str(model.wanted), type="integer", max_length=len(str(MOST)), compact=True, id="number")
        self._what = Line(id="what")

    def compose(self) -> ComposeResult:
        """Question, number, consequence, two buttons."""
        with Vertical(id="dialog") as box:
            box.border_title = content(safe(f"scale {self._model.name}"))
            yield self._what
            yield self._input
            with Horizontal(id="buttons"):
                yield Button(content(safe("Cancel")), id="cancel", compact=True)
                yield Button(content(safe("Scale")), id="scale", variant="warning", compact=True)

    def on_mount(self) -> None:
        """Nothing is done by one careless enter."""
        self._input.border_title = content(safe("replicas"))
        self.query_one("#cancel").focus()
        self._tell()

    def on_key(self, event: events.Key) -> None:
        """A digit typed anywhere goes into the field."""
        if event.character is not None and event.character in "0123456789" and self.focused is not self._input:
            event.stop()
            self._input.focus()
            self._input.value = event.character
            self._input.cursor_position = 1

    def action_add(self, by: int) -> None:
        """One more or one less."""
        self._input.value = str(max(0, min(MOST, (self._number() or 0) + by)))

    def action_leave(self) -> None:
        """Escape."""
        self.dismiss(None)

    @on(Input.Changed)
    def _changed(self) -> None:
        self._tell()

    @on(Input.Submitted)
    def _submitted(self) -> None:
        """Enter in the field goes to the button; the next enter presses it."""
        if self._number() is not None:
            self.query_one("#scale").focus()

    @on(Button.Pressed, "#cancel")
    def _cancelled(self) -> None:
        self.dismiss(None)

    @on(Button.Pressed, "#scale")
    def _pressed(self) -> None:
        if (number := self._number()) is not None:
            self.dismiss(number)

    def _number(self) -> int | None:
        text = self._input.value
        return int(text) if text.isascii() and text.isdigit() else None

    def _tell(self) -> None:
        number = self._number()
        self.query_one("#scale", Button).disabled = number is None or number == self._model.wanted
        to = "?" if number is None else str(number)
        head = safe(f"Scale {self._model.name}: {self._model.wanted} → {to} replicas")
        self._what.show(content((head, "bold"), EOL, consequence(self._model, number)))


def consequence(model: ModelView, number: int | None) -> Safe:
    """What will come of it, in a sentence."""
    if number is None:
        return safe("a number from 0 up is needed")
    more = number - model.wanted
    if more == 0:
        return safe("that is what is wanted already")
    if more > 0:
        return safe(f"{more} more will be placed, {size(Bytes(model.memory * more))} of RAM in all")
    if number == 0:
        return safe("all will finish what they serve and stop; clients then get 503")
    return safe(f"{-more} will finish what {'it serves' if more == -1 else 'they serve'} and stop")
