"""Where are commands and filters typed?"""

from dataclasses import dataclass
from typing import ClassVar

from textual import on
from textual.binding import Binding, BindingType
from textual.message import Message
from textual.widgets import Input

from llmgw.core.safe import Safe
from llmgw.tui.text import content

LONGEST = 200
"""Characters of a line."""


class Prompt(Input):
    """One line, hidden until it is opened for a command (`:`) or a filter (`/`)."""

    @dataclass
    class Typed(Message):
        """A filter became another while it is typed."""

        text: str

    @dataclass
    class Entered(Message):
        """Enter: the line is finished and the prompt closed."""

        mark: str
        text: str

    @dataclass
    class Left(Message):
        """Escape: the prompt was closed without a result."""

        mark: str

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "leave", show=False)]

    def __init__(self) -> None:
        super().__init__(id="prompt", max_length=LONGEST, compact=True, select_on_focus=False)
        self.mark = ":"
        self.display = False

    def open(self, mark: str, text: str, hint: Safe) -> None:
        """Show it and take the keys; `mark` is `:` or `/`."""
        self.mark = mark
        self.display = True
        with self.prevent(Input.Changed):
            self.value = text
        self.cursor_position = len(text)
        self.border_title = content(hint)
        self.screen.set_focus(self)  # now, not when there is time: the next keys are meant for it

    def close(self) -> None:
        """Hide it; the focus is the screen's to give."""
        self.display = False

    def action_leave(self) -> None:
        """Escape."""
        self.close()
        self.post_message(self.Left(self.mark))

    @on(Input.Changed)
    def _changed(self, event: Input.Changed) -> None:
        event.stop()
        if self.mark == "/" and self.display:
            self.post_message(self.Typed(event.value))

    @on(Input.Submitted)
    def _submitted(self, event: Input.Submitted) -> None:
        event.stop()
        self.close()
        self.post_message(self.Entered(self.mark, event.value))
