"""Which key works on which screen, as the README has it?"""

from llmgw.tui import keys
from llmgw.tui.keys import Group, Key
from llmgw.tui.screens.engines import EnginesScreen
from llmgw.tui.screens.events import EventsScreen, StoryScreen
from llmgw.tui.screens.models import ModelsScreen
from llmgw.tui.screens.node import NodeScreen
from llmgw.tui.screens.nodes import NodesScreen
from llmgw.tui.screens.table import TableScreen
from llmgw.tui.screens.why import WhyScreen

SCREENS: tuple[type[TableScreen], ...] = (
    NodesScreen, NodeScreen, ModelsScreen, WhyScreen, EnginesScreen, EventsScreen, StoryScreen,
)  # fmt: skip


def markdown() -> str:
    """A row a key; `!` marks what `--read-only` leaves out."""
    rows = ["| key | what it does | where |", "|---|---|---|"]
    for key in keys.ALL:
        what = f"{key.label}{f' ({key.more})' if key.more else ''}{' **!**' if key.dangerous else ''}"
        rows.append(f"| `{key.shown}` | {what} | {_where(key)} |")
    return "\n".join(rows) + "\n"


def _where(key: Key) -> str:
    """The screens that have it, by name where it is not all of them."""
    if key.group in (Group.EVERYWHERE, Group.MOVE):
        return "everywhere" if key.group is Group.EVERYWHERE else "every table"
    on = [screen.place for screen in SCREENS if key in (*screen.own_keys, *screen.usual_keys())]
    return "every table" if len(on) == len(SCREENS) else ", ".join(on)
