"""One checked command line against the cluster: connect, do it, and say in a line what went wrong."""

import asyncio
from collections.abc import Awaitable, Callable

from llmgw.client import ControlClient
from llmgw.core.errors import LlmgwError
from llmgw.ctl import acts, looks
from llmgw.ctl.grammar import Asked
from llmgw.ctl.interrupts import Interrupted, interruptible
from llmgw.ctl.output import Output, talk
from llmgw.ctl.stdout import NotWritten, give_up_stdout
from llmgw.ctl.where import where


async def carry_out(asked: Asked) -> int:
    """Do what was asked and return the exit status. Ctrl-C is the good end of what would go on for ever."""
    out = Output(asked.form)
    with interruptible(out) as came:
        try:
            await _do(asked, out)
        except NotWritten as error:
            give_up_stdout()
            talk(f"llmgw: {error}")
            return error.exit_status
        except LlmgwError as error:
            talk(f"llmgw: {error}")
            return error.exit_status
        except BrokenPipeError:
            give_up_stdout()
        except (asyncio.CancelledError, Interrupted):
            if not came:
                raise
            give_up_stdout()
            return 0 if asked.endless else 128 + came[0]
    return 0


async def _do(asked: Asked, out: Output) -> None:
    place = where(directory=asked.directory, servers=asked.servers, tls=asked.tls, context=asked.context)
    async with ControlClient.open(place) as client:
        await _verb(asked.verb)(asked, client, out)


def _verb(name: str) -> Callable[[Asked, ControlClient, Output], Awaitable[None]]:
    if name == "scale":
        return acts.scale
    if name.startswith("engine "):
        from llmgw.ctl import engine_acts  # what looks do not need

        return engine_acts.retry if name == "engine retry" else engine_acts.lock
    return looks.show
