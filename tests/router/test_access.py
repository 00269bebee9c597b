"""The access log never holds up a request, nor the router's end."""

import asyncio
import contextlib
import fcntl
import logging
import os
import time
from collections.abc import Iterator

import pytest

from llmgw.router.access import AccessLog, write_lines


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    """A pipe that holds one page."""
    read, write = os.pipe()
    fcntl.fcntl(write, fcntl.F_SETPIPE_SZ, 4096)
    yield read, write
    os.close(read)
    os.close(write)


def test_a_reader_that_stopped_costs_lines_and_no_time(pipe):
    read, write = pipe
    lines = [b"%059d\n" % n for n in range(500)]
    left = write_lines(write, b"".join(lines), 0)
    assert 0 < left < 500
    assert os.read(read, 65536) == b"".join(lines[: 500 - left])


async def test_lines_that_were_dropped_are_counted_in_the_log(pipe):
    log = AccessLog(pipe[1], frozenset())
    for _ in range(20_007):
        log.refused(b"x", "192.0.2.1", 400, "bad_header")
    assert log.dropped == 7


async def test_the_end_does_not_wait_for_a_reader_that_stopped(pipe):
    log = AccessLog(pipe[1], frozenset())
    for _ in range(500):
        log.refused(b"x", "192.0.2.1", 400, "bad_header")
    async with asyncio.timeout(2), asyncio.TaskGroup() as group:
        task = group.create_task(log.run())
        await asyncio.sleep(0)
        task.cancel()


def test_a_reader_that_is_gone_is_no_fault():
    read, write = os.pipe()
    os.close(read)
    assert write_lines(write, b"a\n" * 3, 0) == 3
    os.close(write)


async def test_a_lines_time_reads_as_in_the_other_logs(pipe, monkeypatch):
    """Seconds since 1970 among dated lines can be put beside them by nobody."""
    record = logging.LogRecord("x", logging.INFO, "x.py", 1, "words", None, None)
    record.created, record.msecs = 1700000000.25, 250.0
    monkeypatch.setattr(time, "time", lambda: 1700000000.25)
    log = AccessLog(pipe[1], frozenset())
    log.refused(b"abc", "192.0.2.1", 400, "bad_header")
    with contextlib.suppress(asyncio.TimeoutError):
        await asyncio.wait_for(log.run(), 0.01)
    line = os.read(pipe[0], 4096).decode()
    assert (
        line == f"{logging.Formatter().formatTime(record)} id=abc client=192.0.2.1 refused status=400 code=bad_header\n"
    )
