"""What a service says to systemd: that it is ready, alive or stopping, and what happens, a line each.

Outside systemd `notify` does nothing and log lines carry their time, since no journal adds it.
"""

import asyncio
import logging
import os
import socket
from collections.abc import Callable

from llmgw.core.safe import LINE, safe

READY, STOPPING, WATCHDOG = "READY=1", "STOPPING=1", "WATCHDOG=1"

_PRIORITY = {logging.DEBUG: 7, logging.INFO: 6, logging.WARNING: 4, logging.ERROR: 3, logging.CRITICAL: 2}


def notify(*states: str) -> bool:
    """Send `states` (`READY`, `STOPPING`, `status(…)`) to the service manager; return whether there is one.

    Never raises and never waits: a manager that does not read must not stop a service.
    """
    path = os.environ.get("NOTIFY_SOCKET", "")
    if not path.startswith(("/", "@")):
        return False
    address = "\0" + path[1:] if path[0] == "@" else path
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK) as out:
            out.sendto("\n".join(states).encode("utf-8", "backslashreplace"), address)
    except OSError as error:
        logging.getLogger(__name__).warning("systemd does not take our state at %s: %s", path, error)
        return False
    return True


def status(text: str) -> str:
    """The state that `systemctl status` shows as one line."""
    return f"STATUS={safe(text)}"


def watchdog_interval() -> float | None:
    """Seconds between signs of life that the service manager asks for, halved as it advises; None when it asks not."""
    asked = os.environ.get("WATCHDOG_USEC", "")
    if os.environ.get("WATCHDOG_PID", str(os.getpid())) != str(os.getpid()):
        return None
    return int(asked) / 2e6 if asked.isdecimal() and int(asked) > 0 else None


async def keep_alive(alive: Callable[[], bool]) -> None:
    """Tell the watchdog, for as long as `alive()` holds and the event loop turns; returns when nobody watches."""
    interval = watchdog_interval()
    if interval is None:
        return
    while True:
        if alive():
            notify(WATCHDOG)
        await asyncio.sleep(interval)


class _OneLine(logging.Formatter):
    """One event, one line: text from outside can neither break it nor reach a terminal as a control sequence."""

    def format(self, record: logging.LogRecord) -> str:
        return safe(record.getMessage(), LINE) + self._trace(record)

    def _trace(self, record: logging.LogRecord) -> str:
        """A fault of ours keeps its trace, on lines of its own."""
        if not record.exc_info:
            return ""
        lines = self.formatException(record.exc_info).splitlines()
        return "".join(f"\n  {safe(line, LINE)}" for line in lines)


class _ForJournal(_OneLine):
    def format(self, record: logging.LogRecord) -> str:
        priority = f"<{_PRIORITY.get(record.levelno, 6)}>"
        return "\n".join(priority + line for line in super().format(record).split("\n"))


class _ForPeople(_OneLine):
    def format(self, record: logging.LogRecord) -> str:
        return f"{self.formatTime(record)} {record.levelname.lower():<8} {super().format(record)}"


def set_up_logging(level: int = logging.INFO) -> None:
    """Log to stderr from here on, one line an event: for the journal when stderr is one, else with the time."""
    handler = logging.StreamHandler()
    handler.setFormatter(_ForJournal() if "JOURNAL_STREAM" in os.environ else _ForPeople())
    logging.basicConfig(level=level, handlers=[handler], force=True)
    for library in ("asyncio", "grpclib", "aiosqlite", "h2", "hpack"):
        logging.getLogger(library).setLevel(logging.WARNING)
