"""What is kept of each request? One line of counts; never a prompt, an answer, a key or a path that a client made up.

Lines are gathered and written by a thread, so that a slow reader of the log never holds up a token.
"""

import asyncio
import os
import select
import time
from functools import lru_cache

from llmgw.core.units import several
from llmgw.router.requests import Request

_PENDING = 20_000
_PATIENCE = 500


class AccessLog:
    """Lines to a file descriptor; when the reader is too slow, lines are dropped and counted."""

    def __init__(self, fd: int, known_paths: frozenset[bytes]) -> None:
        self._fd, self._known = fd, known_paths
        self._lines: list[str] = []
        self.dropped = 0
        """Lines that were not written and not told of yet."""
        self._more = asyncio.Event()

    def request(self, request: Request, now: float, status: int, how: str, more: str = "") -> None:
        """One finished request; `more` are further ` key=value` words."""
        head = request.head
        path = head.path if head.path in self._known else b"-"
        self._put(
            f"{_stamp()} id={request.id.decode()} client={request.client} {head.method.decode()} {path.decode()}"
            f" status={status or '-'} end={how} in={len(request.body)}{more}"
            f" ms={(now - request.started) * 1000:.1f}"
        )

    def failed_try(self, request_id: bytes, replica: str, fault: str, words: str) -> None:
        """An engine could not be asked, or did not answer."""
        self._put(f"{_stamp()} id={request_id.decode()} try replica={replica} fault={fault} {words}")

    def refused(self, request_id: bytes, client: str, status: int, code: str) -> None:
        """A request that was not one."""
        self._put(f"{_stamp()} id={request_id.decode()} client={client} refused status={status} code={code}")

    def _put(self, line: str) -> None:
        if len(self._lines) >= _PENDING:
            self.dropped += 1
            return
        self._lines.append(line)
        self._more.set()

    async def run(self) -> None:
        """Write lines for ever, four times a second at most; cancelled, write what can be written at once."""
        try:
            while True:
                await self._more.wait()
                await asyncio.sleep(0.25)
                self.dropped += await asyncio.to_thread(write_lines, self._fd, self._take(), _PATIENCE)
        finally:
            write_lines(self._fd, self._take(), 0)

    def _take(self) -> bytes:
        lines, self._lines = self._lines, []
        self._more.clear()
        if self.dropped:
            lines.append(f"{_stamp()} dropped {several(self.dropped, 'line')}: the log was not taken fast enough")
            self.dropped = 0
        return "".join([line + "\n" for line in lines]).encode("utf-8", "backslashreplace")


def write_lines(fd: int, lines: bytes, patience: int) -> int:
    """Write lines; return how many were left when the reader took nothing for `patience` milliseconds.

    A pipe that polls as writable takes a page without blocking: a reader that stopped must not keep us from ending.
    """
    writable = select.poll()
    writable.register(fd, select.POLLOUT)
    at = 0
    while at < len(lines):
        end = at + select.PIPE_BUF
        # Whole lines as long as they fit, so that what is left begins with one.
        end = lines.rfind(b"\n", at, end) + 1 or end
        try:
            if not writable.poll(patience):
                break
            at += os.write(fd, lines[at:end])
        except OSError:
            break  # nobody reads the log; requests go on
    return lines.count(b"\n", at)


def _stamp() -> str:
    """The local time as in the other logs, to the millisecond."""
    now = time.time()
    return f"{_second(int(now))},{int(now % 1 * 1000):03d}"


@lru_cache(1)
def _second(second: int) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(second))
