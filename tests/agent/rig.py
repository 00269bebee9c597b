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


class Agent:
    """`llmgw-agent` with its files under `home`."""

    def __init__(self, home: Path, files: TlsFiles, control: list[str], engine: Path, **more: object) -> None:
        self.home, self.log = home, home / "agent.log"
        self.state = home / "state"
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
        with self.log.open("a") as log:
            self.process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "llmgw.agent.main", "--config", str(self.config), stderr=log, stdout=log
            )

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid

    async def kill(self) -> None:
        assert self.process is not None
        self.process.kill()
        await self.process.wait()

    async def stop(self) -> float:
        """SIGTERM; returns the seconds until it was gone."""
        assert self.process is not None
        begun = time.monotonic()
        self.process.terminate()
        async with asyncio.timeout(10):
            await self.process.wait()
        return time.monotonic() - begun

    async def logged(self, words: str, times: int = 1) -> str:
        """Wait until `times` lines of the log hold `words`, and return the last; a file has no event, so this looks."""
        async with asyncio.timeout(20):
            while True:
                lines = [line for line in self.log.read_text().splitlines() if words in line]
                if len(lines) >= times:
                    return lines[-1]
                await asyncio.sleep(0.02)

    async def end(self) -> None:
        """Kill the agent and all that it started."""
        if self.process is not None and self.process.returncode is None:
            await self.kill()
        for directory in (self.state / "shards").glob("*"):
            _end_engine(directory)


def _end_engine(directory: Path) -> None:
    with contextlib.suppress(OSError, ValueError, KeyError):
        said = json.loads((directory / "process.json").read_text())
        fields = Path(f"/proc/{said['pid']}/stat").read_text().rpartition(")")[2].split()
        if int(fields[19]) == said["started"]:
            os.killpg(said["pid"], signal.SIGKILL)
