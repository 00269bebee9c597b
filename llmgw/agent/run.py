"""What does a tool say? Runs a short-lived program with bounds on time and output."""

import asyncio
import contextlib
import os
import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

MOST = 1 << 20
"""Bytes kept of each of its outputs; what comes after is read and dropped."""


@dataclass(frozen=True, slots=True)
class Ran:
    """How a program ended. `status` is None when it could not be started or did not end in time."""

    status: int | None
    out: str
    err: str
    problem: str = ""
    """Why there is no status, as a fact about the program."""

    @property
    def ok(self) -> bool:
        """It ended with status 0."""
        return self.status == 0

    def words(self) -> str:
        """Its own words, on one line, with how it ended in front."""
        if self.problem:
            return self.problem
        said = " ".join((self.err.strip() or self.out.strip()).split())[:300]
        ended = f"exit status {self.status}" if (self.status or 0) >= 0 else f"ended by signal {-(self.status or 0)}"
        return f"{ended}: {said}" if said else f"{ended} without a word"


async def run(argv: Sequence[str], *, timeout: float, env: Mapping[str, str] | None = None) -> Ran:
    """Run `argv` to its end; after `timeout` seconds it is killed with all that it started. Never raises OSError.

    A program that hangs inside the kernel cannot be killed: it is left behind and its problem reported in time.
    """
    try:
        process = await asyncio.create_subprocess_exec(
            *argv,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env=None if env is None else dict(env),
            start_new_session=True,
        )
    except (OSError, ValueError) as error:
        return Ran(None, "", "", problem=f"cannot be started: {_reason(error)}")
    try:
        async with asyncio.timeout(timeout):
            out, err, status = await asyncio.gather(_read(process.stdout), _read(process.stderr), process.wait())
    except TimeoutError:
        return Ran(None, "", "", problem=f"did not end within {timeout:.0f}s")
    finally:
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(0.5):
                    await process.wait()
    return Ran(status, out, err)


async def _read(stream: asyncio.StreamReader | None) -> str:
    kept = bytearray()
    while stream is not None and (chunk := await stream.read(65536)):
        kept += chunk[: MOST - len(kept)]
    return kept.decode("utf-8", "replace")


def _reason(error: Exception) -> str:
    return (error.strerror or type(error).__name__).lower() if isinstance(error, OSError) else str(error)
