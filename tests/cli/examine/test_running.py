"""Who holds a lock and who listens, without getting in the way."""

import fcntl
import os
import socket
import subprocess
import sys
from pathlib import Path

from llmgw.cli.examine.running import holder, is_engine, listeners, on


def test_the_holder_of_a_lock_is_named(tmp_path: Path):
    lock = tmp_path / "lock"
    assert holder(lock) is None
    with lock.open("w") as file:
        assert holder(lock) is None
        fcntl.flock(file, fcntl.LOCK_EX)
        assert holder(lock) == os.getpid()
    assert holder(lock) is None


def test_who_listens_is_named():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        (found,) = on(port, listeners())
        assert (found.port, found.pid) == (port, os.getpid())
        assert str(found).endswith(f"(pid {os.getpid()})")


def test_an_engine_is_known_by_its_mark():
    def run(**environment: str) -> subprocess.Popen[bytes]:
        argv = [sys.executable, "-c", "print(flush=True); input()"]
        return subprocess.Popen(argv, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    engine, other = run(LLMGW_ENGINE="demo/node01/x/y/1"), run(OTHER="1")
    try:
        for process in (engine, other):
            assert process.stdout is not None and process.stdout.readline() == b"\n"
        assert is_engine(engine.pid)
        assert not is_engine(other.pid)
    finally:
        for process in (engine, other):
            process.communicate(b"\n")
