"""How many replicas should a model have? Asked before the one thing that changes the cluster."""

from typing import ClassVar

from textual import events, on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical
from textual.screen import ModalScreen
from textual.widgets import Button, Input

from llmgw.core.catalog import MOST_REPLICAS
from llmgw.core.safe import Safe, safe
from llmgw.core.units import Bytes, several, size
from llmgw.core.views import ModelView
from llmgw.tui.text import EOL, content
from llmgw.tui.widgets.line import Line

_HINTS = {
    "cancel": safe("type a number, or + and - step · enter cancels · tab moves"),
    "number": safe("digits, backspace, + and - · enter goes on to the buttons"),
    "scale": safe("enter or y scales · esc leaves"),
}


class ScaleDialog(ModalScreen[int | None]):
    """Gives the number, or None when it was left. Cancel has the focus; digits, backspace, `+` and `-` edit the number.

    Only enter or `y` on Scale does it. Any other letter puts the focus back on Cancel: it was meant for something else.
    """

    # Before the field sees them: it would write + and - as they are, and swallow q.
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q", "leave", show=False, priority=True),
        Binding("plus,up", "add(1)", show=False, priority=True),
        Binding("minus,down", "add(-1)", show=False, priority=True),
    ]

    def __init__(self, model: ModelView) -> None:
        super().__init__()
        self._model = model
        longest = len(str(MOST_REPLICAS))
        # Not selected on focus: the digit that opened the field would be gone with the next one.
        self._input = Input(
            str(model.wanted), type="integer", max_length=longest, compact=True, select_on_focus=False, id="number"
        )
        self._what, self._hint = Line(id="what"), Line(id="hint")

    def compose(self) -> ComposeResult:
        """Question, number, consequence, two buttons."""
        with Vertical(id="dialog") as box:
            box.border_title = content(safe(f"scale {self._model.name}"))
            yield self._what
            yield self._input
            yield self._hint
            with Horizontal(id="buttons"):
                yield Button(content(safe("Cancel")), id="cancel", compact=True)
                yield Button(content(safe("Scale")), id="scale", variant="warning", compact=True)

    def on_mount(self) -> None:
        """Nothing is done by one careless enter."""
        self._input.border_title = content(safe("replicas"))
        self.query_one("#cancel").focus()
        self._tell()

    def on_descendant_focus(self) -> None:
        """What enter would do now."""
        where = (self.focused.id if self.focused else None) or "cancel"
        self._hint.show(content((_HINTS.get(where, safe("")), "$text-muted")))

    def on_key(self, event: events.Key) -> None:
        """What edits the number goes into the field from everywhere."""
        typed = event.character or ""
        if event.key == "backspace":
            event.stop()
            self._edit(self._input.value[:-1])
        elif typed in tuple("0123456789"):
            event.stop()
            self._edit(typed)
        elif typed == "y" and self.focused is self._button:
            event.stop()
            self._button.press()
        elif typed.isprintable() and typed.strip():
            event.stop()
            self.query_one("#cancel").focus()

    def _edit(self, value: str) -> None:
        self._input.focus()
        self._input.value = value
        self._input.cursor_position = len(value)

    def action_add(self, by: int) -> None:
        """One more or one less."""
        self._edit(str(max(0, min(MOST_REPLICAS, (self._number() or 0) + by))))

    def action_leave(self) -> None:
        """Escape."""
        self.dismiss(None)

    @on(Input.Changed)
    def _changed(self) -> None:
        self._tell()

    @on(Input.Submitted)
    def _submitted(self) -> None:
        """Enter in the field goes to the button that makes sense; the next enter presses it."""
        if self._number() is not None:
            (self.query_one("#cancel") if self._button.disabled else self._button).focus()

    @on(Button.Pressed, "#cancel")
    def _cancelled(self) -> None:
        self.dismiss(None)

    @on(Button.Pressed, "#scale")
    def _pressed(self) -> None:
        if (number := self._number()) is not None:
            self.dismiss(number)

    @property
    def _button(self) -> Button:
        return self.query_one("#scale", Button)

    def _number(self) -> int | None:
        text = self._input.value
        number = int(text) if text.isascii() and text.isdigit() else -1
        return number if 0 <= number <= MOST_REPLICAS else None

    def _tell(self) -> None:
        number = self._number()
        self._button.disabled = number is None or number == self._model.wanted
        to = "? replicas" if number is None else several(number, "replica")
        head = safe(f"Scale {self._model.name} from {self._model.wanted} to {to}")
        self._what.show(content((head, "bold"), EOL, consequence(self._model, number)))


def consequence(model: ModelView, number: int | None) -> Safe:
    """What will come of it, in a sentence."""
    if number is None:
        return safe(f"a number from 0 to {MOST_REPLICAS} is needed")
    more = number - model.wanted
    if more == 0:
        return safe("that is what is wanted already")
    if more > 0:
        return safe(f"{more} more may be placed, with {size(Bytes(model.memory * more))} of RAM in all")
    if number == 0:
        return safe("all will finish what they serve and stop; clients then get 503")
    return safe(f"{-more} will finish what {'it serves' if more == -1 else 'they serve'} and stop")
