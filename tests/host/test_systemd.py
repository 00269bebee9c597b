"""What services tell systemd and the journal."""

import asyncio
import logging
import socket
from pathlib import Path

import pytest

from llmgw.host import systemd


def listening(path: str) -> socket.socket:
    manager = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    manager.bind(path)
    manager.settimeout(5)
    return manager


def test_without_a_manager_nothing_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NOTIFY_SOCKET", raising=False)
    assert systemd.notify(systemd.READY) is False


@pytest.mark.parametrize("abstract", [False, True])
def test_states_go_to_the_managers_socket(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, abstract: bool) -> None:
    path = f"{tmp_path}/notify"
    with listening("\0" + path if abstract else path) as manager:
        monkeypatch.setenv("NOTIFY_SOCKET", "@" + path if abstract else path)
        assert systemd.notify(systemd.READY, systemd.status("two\nlines")) is True
        assert manager.recv(1000).decode() == "READY=1\nSTATUS=two⏎lines"


def test_a_manager_that_went_or_does_not_read_stops_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NOTIFY_SOCKET", f"{tmp_path}/gone")
    assert systemd.notify(systemd.READY) is False
    with listening(f"{tmp_path}/full"):
        monkeypatch.setenv("NOTIFY_SOCKET", f"{tmp_path}/full")
        while systemd.notify(systemd.WATCHDOG):
            pass


def test_the_watchdog_is_fed_at_half_of_what_it_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WATCHDOG_PID", raising=False)
    for asked, interval in (("30000000", 15.0), ("", None), ("soon", None), ("0", None)):
        monkeypatch.setenv("WATCHDOG_USEC", asked)
        assert systemd.watchdog_interval() == interval
    monkeypatch.setenv("WATCHDOG_USEC", "30000000")
    monkeypatch.setenv("WATCHDOG_PID", "1")
    assert systemd.watchdog_interval() is None, "it is another process that is watched"


async def test_nothing_is_fed_once_the_work_has_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WATCHDOG_PID", raising=False)
    monkeypatch.setenv("WATCHDOG_USEC", "20000")
    monkeypatch.setenv("NOTIFY_SOCKET", f"{tmp_path}/notify")

    async def fed(alive: bool) -> bool:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await systemd.keep_alive(lambda: alive)
        try:
            return manager.recv(100) == b"WATCHDOG=1"
        except BlockingIOError:
            return False

    with listening(f"{tmp_path}/notify") as manager:
        manager.setblocking(False)
        assert not await fed(alive=False)
        assert await fed(alive=True)


@pytest.mark.parametrize("journal", [True, False])
def test_an_event_is_one_line_whatever_its_text(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], journal: bool
) -> None:
    monkeypatch.setenv("JOURNAL_STREAM", "8:1") if journal else monkeypatch.delenv("JOURNAL_STREAM", raising=False)
    before = logging.root.handlers[:]
    try:
        systemd.set_up_logging()
        logging.getLogger("llmgw.x").warning("node says %s", "a\nb\x1b[2J")
        logging.getLogger("llmgw.x").debug("too much")
        try:
            raise ValueError("c\nd\x1b[2J")
        except ValueError:
            logging.getLogger("llmgw.x").exception("a fault of ours")
    finally:
        logging.root.handlers[:] = before
    first, *trace = capsys.readouterr().err.splitlines()
    assert first.endswith("node says a⏎b␛[2J")
    assert first.startswith("<4>node") == journal
    assert not any("\x1b" in line for line in trace)
    assert all(line.startswith("<3>") for line in trace) or not journal
    assert "ValueError: c" in "".join(trace)
