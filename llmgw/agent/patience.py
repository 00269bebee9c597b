"""What does the agent do when the machine fails it: a full disk, a service manager that does not answer? It waits.

What cannot be found out is not taken for an answer, and what cannot be done is done later. Nothing of that ends the
agent or an engine.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import TypeVar

T = TypeVar("T")

PAUSE = 5.0
"""Seconds between tries."""


class Unknown(Exception):
    """A tool or the kernel did not say what was asked; the text is one line."""


TROUBLE = (OSError, Unknown)
"""What passes, or is mended by people, while the agent goes on."""


def words(error: Exception) -> str:
    """The trouble in one line, with the file where there is one."""
    if not isinstance(error, OSError):
        return str(error)
    what = (error.strerror or str(error) or type(error).__name__).lower()
    return f"{error.filename}: {what}" if error.filename else what


class Grievance:
    """Tells each cause of one kind of trouble once, until it is over."""

    def __init__(self, log: logging.Logger, what: str) -> None:
        """`what`: the subject and what is not done, as a sentence without its end."""
        self._log, self._what = log, what
        self._told = ""

    def tell(self, error: Exception) -> None:
        """It did not work; say why unless that was said."""
        if (cause := words(error)) != self._told:
            self._told = cause
            self._log.error("%s: %s; tried again", self._what, cause)

    def over(self) -> None:
        """It worked."""
        if self._told:
            self._log.info("%s: in order again", self._what)
        self._told = ""


async def until_done(work: Callable[[], Awaitable[T]], grievance: Grievance) -> T:
    """Do `work` until it meets no trouble, and return what came of it."""
    while True:
        try:
            done = await work()
        except TROUBLE as error:
            grievance.tell(error)
            await asyncio.sleep(PAUSE)
        else:
            grievance.over()
            return done
