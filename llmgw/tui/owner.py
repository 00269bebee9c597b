"""What may a screen ask of the console that shows it?

Screens know this and not the app, so that the app can know them all.
"""

from typing import Protocol

from llmgw.core.safe import Safe
from llmgw.tui.feed import Feed
from llmgw.tui.view import View


class Owner(Protocol):
    """The console, seen from a screen."""

    view: View
    """The newest."""
    feed: Feed
    read_only: bool
    note: Safe
    """What whoever opened the console wants to be seen in it; may be empty."""
    flashed: tuple[Safe, str] | None
    """What is said in the last line for a few seconds, with its style."""

    def now(self) -> float:
        """The control plane's clock."""

    def go_back(self) -> None:
        """To the screen before."""

    def show_help(self) -> None:
        """The keys of the screen on top."""

    def show_why(self, model: str) -> None:
        """Why a model, by name or alias, has not all its replicas."""

    def run_command(self, line: str) -> None:
        """Do what was typed after `:`."""

    def ask_scale(self, name: str) -> None:
        """Ask how many replicas a model should have, then do it."""

    def ask_retry(self, node: str, engine: str) -> None:
        """Ask whether the node should try again, then let it."""

    def flash(self, text: Safe, style: str) -> None:
        """Say something in the last line for a few seconds."""
