"""What can be typed after `:`?

One table, read by the prompt, the palette (ctrl+p) and the help screen.
"""

from dataclasses import dataclass

from llmgw.core.errors import Rejected
from llmgw.core.safe import Safe, safe


@dataclass(frozen=True, slots=True)
class Command:
    """A word, its short forms, what it takes and what it shows."""

    name: str
    aliases: tuple[str, ...]
    argument: str
    """Empty when it takes none."""
    label: Safe
    needs: bool = False
    """The argument is not optional."""

    @property
    def usage(self) -> Safe:
        """`:why MODEL`."""
        return safe(f":{self.name} {self.argument}".rstrip())


COMMANDS = (
    Command("nodes", ("no",), "", safe("the nodes")),
    Command("node", ("n",), "NODE", safe("all about one node, and its replicas"), needs=True),
    Command("models", ("mo", "model"), "", safe("the models with their replicas")),
    Command("why", ("w",), "MODEL", safe("why a model has not all its replicas"), needs=True),
    Command("engines", ("en", "engine"), "", safe("the engines of the nodes")),
    Command("events", ("ev", "event"), "[SUBJECT]", safe("what happened, to one subject or to all")),
    Command("help", ("h",), "", safe("keys and commands")),
    Command("quit", ("q", "q!", "exit"), "", safe("leave the console")),
)


class BadCommand(Rejected):
    """A line after `:` that is no command."""

    code = "bad_command"


def parse(line: str) -> tuple[Command, str]:
    """Return the command and its argument (empty when none was given); BadCommand says what would be right."""
    word, _, argument = line.strip().lstrip(":").strip().partition(" ")
    argument = argument.strip()
    for command in COMMANDS:
        if word in (command.name, *command.aliases):
            break
    else:
        raise BadCommand(f"{word!r} is not a command; there are {', '.join(c.name for c in COMMANDS)}")
    if argument and not command.argument:
        raise BadCommand(f":{command.name} takes no argument, not {argument!r}")
    if command.needs and not argument:
        raise BadCommand(f":{command.name} needs an argument: {command.usage}")
    return command, argument
