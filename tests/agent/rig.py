"""A real agent process in a directory of its own, and what a test does to it."""

import asyncio
import contextlib
import json
import os
import signal
import sys
import time
from pathlib import Path

import yaml

from llmgw.config.tls import TlsFiles


class _Voice(asyncio.Protocol):
    """What a process prints, added to `heard` as it comes; `rung` is set each time, `over` when it prints no more."""

    def __init__(self, heard: bytearray, rung: asyncio.Event) -> None:
        self._heard, self._rung = heard, rung
        self.over = asyncio.Event()

    def data_received(self, data: bytes) -> None:
        self._heard += data
        self._rung.set()

    def connection_lost(self, exc: Exception | None) -> None:
        self.over.set()


class Agent:
    """`llmgw-agent` with its files under `home`."""

    def __init__(self, home: Path, files: TlsFiles, control: list[str], engine: Path, **more: object) -> None:
        self.home, self.state = home, home / "state"
        self._heard, self._rung = bytearray(), asyncio.Event()
        tls = {"certificate": str(files.certificate), "key": str(files.key), "authority": str(files.authority)}
        config = {
            "control": control,
            "tls": tls,
            "node": "node01",
            "state": "state",
            "engines": {"llama.cpp": str(engine)},
            "launcher": "session",
            **more,
        }
        self.config = home / "agent.yaml"
        self.config.write_text(yaml.safe_dump(config))
        self.process: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        read, write = os.pipe()
        self._pipe, self._voice = await asyncio.get_running_loop().connect_read_pipe(
            lambda: _Voice(self._heard, self._rung), os.fdopen(read, "rb")
        )
        self.process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "llmgw.agent.main", "--config", str(self.config), stderr=write, stdout=write
        )
        os.close(write)

    @property
    def said(self) -> str:
        """All that it has printed, of all its lives."""
        return self._heard.decode()

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid

    async def kill(self) -> None:
        assert self.process is not None
        self.process.kill()
        await self.ended()

    async def ended(self, patience: float = 10.0) -> int:
        """Wait until it is gone and all that it printed is here; returns its exit status."""
        assert self.process is not None
        async with asyncio.timeout(patience):
            status = await self.process.wait()
            await self._voice.over.wait()
        return status

    async def stop(self) -> float:
        """SIGTERM; returns the seconds until it was gone."""
        assert self.process is not None
        begun = time.monotonic()
        self.process.terminate()
        await self.ended()
        return time.monotonic() - begun

    async def logged(self, words: str, times: int = 1) -> str:
        """Wait until `times` lines of what it prints hold `words`, and return the last."""
        async with asyncio.timeout(20):
            while True:
                self._rung.clear()
                lines = [line for line in self.said.splitlines() if words in line]
                if len(lines) >= times:
                    return lines[-1]
                await self._rung.wait()

    async def end(self) -> None:
        """Kill the agent and all that it started."""
        if self.process is not None and self.process.returncode is None:
            await self.kill()
        self._pipe.close()
        for directory in (self.state / "shards").glob("*"):
            _end_engine(directory)


def _end_engine(directory: Path) -> None:
    with contextlib.suppress(OSError, ValueError, KeyError):
        said = json.loads((directory / "process.json").read_text())
        fields = Path(f"/proc/{said['pid']}/stat").read_text().rpartition(")")[2].split()
        if int(fields[19]) == said["started"]:
            os.killpg(said["pid"], signal.SIGKILL)
