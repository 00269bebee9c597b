"""Which machine, which time, and how to stop."""

import asyncio
import os
import signal
import socket
import uuid
from pathlib import Path
from types import SimpleNamespace

import pytest

from llmgw.core.units import BOUND
from llmgw.host import clock
from llmgw.host.machine import boot_id, machine_id
from llmgw.host.room import room
from llmgw.host.signals import hangup_signal, stop_signal


def test_the_machines_id_is_systemds(tmp_path: Path) -> None:
    file = tmp_path / "machine-id"
    file.write_text("0123456789abcdef0123456789abcdef\n")
    assert machine_id(file) == "0123456789abcdef0123456789abcdef"


@pytest.mark.parametrize("said", [None, "", "uninitialized\n", "0123\n", "\0" * 32])
def test_without_one_every_program_on_the_machine_makes_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: str | None
) -> None:
    file = tmp_path / "machine-id"
    if said is not None:
        file.write_text(said)
    made = machine_id(file)
    assert len(made) == 32
    assert int(made, 16)
    assert machine_id(tmp_path / "none") == made
    monkeypatch.setattr(socket, "gethostname", lambda: "another")
    assert machine_id(file) != made


def test_a_card_that_python_made_up_does_not_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Python draws another one in each process."""
    monkeypatch.setattr(uuid, "getnode", lambda: 0x010000000001)
    made = machine_id(tmp_path / "none")
    monkeypatch.setattr(uuid, "getnode", lambda: 0x010000000002)
    assert machine_id(tmp_path / "none") == made


def test_the_boot_has_an_id() -> None:
    assert len(boot_id()) == 36


def test_time_does_not_follow_a_clock_that_was_set(monkeypatch: pytest.MonkeyPatch) -> None:
    before = clock.now()
    monkeypatch.setattr("time.time", lambda: 0.0)
    assert 0 <= clock.now() - before < 60


async def test_the_first_signal_stops_and_the_next_one_kills() -> None:
    """A stop that hangs must not have to be killed with -9."""
    stop = stop_signal()
    os.kill(os.getpid(), signal.SIGTERM)
    await stop.wait()
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    assert signal.getsignal(signal.SIGINT) is signal.SIG_DFL
    signal.signal(signal.SIGINT, signal.default_int_handler)


async def test_every_hangup_is_heard_and_none_kills() -> None:
    hangup = hangup_signal()
    try:
        for _ in range(2):
            os.kill(os.getpid(), signal.SIGHUP)
            async with asyncio.timeout(5):
                await hangup.wait()
            hangup.clear()
    finally:
        asyncio.get_running_loop().remove_signal_handler(signal.SIGHUP)


def test_a_file_system_that_claims_to_have_no_end_has_as_much_as_can_be_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """As s3fs does, which cannot be mounted here: all 64 bits, in blocks of 16 MiB."""
    endless = SimpleNamespace(f_blocks=(1 << 64) - 1, f_bavail=(1 << 64) - 1, f_frsize=1 << 24)
    monkeypatch.setattr(os, "statvfs", lambda _: endless)
    assert room(Path("/")) == (BOUND, BOUND)
