"""Which keys does the console have?

One table: bindings, the hints under the header, the help screen and the README's table (screens/keytable.py) are made
from it.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from typing import Any

from textual.binding import Binding, BindingType

from llmgw.core.safe import Safe, safe


class Group(Enum):
    """Where a key works."""

    HERE = "here"
    TABLE = "table"
    MOVE = "move"
    EVERYWHERE = "everywhere"


@dataclass(frozen=True, slots=True)
class Key:
    """A key and what it does. `key` is Textual's name of it (or several, by comma), `shown` is what is on it."""

    key: str
    shown: Safe
    action: str
    label: Safe
    group: Group
    dangerous: bool = False
    """Changes the cluster: not there with `--read-only`."""
    hint: bool = True
    """Worth a place under the header."""
    at_once: bool = False
    """Acts before the keys typed behind it are given to anyone: they are meant for what it opens."""
    more: str = ""
    """What the label has no room for; in the README's table."""


def _key(key: str, shown: str, action: str, label: str, group: Group, **more: Any) -> Key:
    return Key(key, safe(shown), action, safe(label), group, **more)


NODE = _key("enter", "enter", "open", "all about it", Group.HERE, more="then its replicas")
FOLD = _key("enter", "enter", "open", "open, close", Group.HERE, more="on a replica: its events")
CHAIN = _key("enter", "enter", "open", "cause chain", Group.HERE, more="what led to it, and what came of it")
EVENTS_OF_IT = _key("enter,e", "enter e", "open", "its events", Group.HERE)
PANE = _key("tab", "tab", "pane", "other half", Group.HERE, more="what the keys move in")
WHY = _key("w", "w", "why", "why", Group.HERE, more="a model has not all its replicas")
EVENTS = _key("e", "e", "events", "its events", Group.HERE)
SCALE = _key("s", "s", "scale", "scale", Group.HERE, dangerous=True)

STEPS = _key("enter", "enter", "open", "all of it, less", Group.HERE, more="its problem and notes in full")
RETRY = _key("R", "R", "retry", "retry", Group.HERE, dangerous=True, more="install or repair it at once")

FILTER = _key("slash", "/", "filter", "filter", Group.TABLE, at_once=True)
SORT = _key("S", "S", "sort", "sort by next", Group.TABLE, more="column")
INVERT = _key("I", "I", "invert", "turn order", Group.TABLE, hint=False)
ORDER = (SORT, INVERT)
TABLE = (FILTER, *ORDER)

MOVE = (
    _key("down,j", "↓ j", "move(1)", "down", Group.MOVE, hint=False),
    _key("up,k", "↑ k", "move(-1)", "up", Group.MOVE, hint=False),
    _key("pagedown,ctrl+f", "pgdn ctrl+f", "page(1)", "page down", Group.MOVE, hint=False),
    _key("pageup,ctrl+b", "pgup ctrl+b", "page(-1)", "page up", Group.MOVE, hint=False),
    _key("home,g", "home g", "first", "first", Group.MOVE, hint=False),
    _key("end,G", "end G", "last", "last", Group.MOVE, hint=False),
)

COMMAND = _key("colon", ":", "command", "command", Group.EVERYWHERE, at_once=True)
HELP = _key("question_mark", "?", "help", "help", Group.EVERYWHERE)
BACK = _key("escape", "esc", "back", "clear filter, back", Group.EVERYWHERE)
UP = _key("q", "q", "up", "back", Group.EVERYWHERE, hint=False, more="whatever is filtered")
QUIT = _key("ctrl+q", ":q ctrl+q", "app.quit", "quit", Group.EVERYWHERE, hint=False)
EVERYWHERE = (COMMAND, HELP, BACK, UP)

ALL = (NODE, FOLD, CHAIN, EVENTS_OF_IT, PANE, WHY, EVENTS, SCALE, STEPS, RETRY, *TABLE, *MOVE, *EVERYWHERE, QUIT)


def bindings(keys: Iterable[Key]) -> list[BindingType]:
    """The keys as a widget binds them."""
    return [Binding(key.key, key.action, key.label, show=False, priority=key.at_once) for key in keys]


def allowed(keys: Iterable[Key], *, read_only: bool) -> list[Key]:
    """The keys that are there."""
    return [key for key in keys if not (read_only and key.dangerous)]


def dangerous(action: str) -> bool:
    """Whether an action changes the cluster."""
    return any(key.dangerous for key in ALL if key.action == action)
