"""What does the engine on this port answer? One small request at a time, with bounds on time and size."""

import asyncio
import contextlib
import re
from dataclasses import dataclass

from llmgw.agent.engines.adapter import Adapter, Ready
from llmgw.core.local_shard import Process

TIMEOUT = 5.0
_MOST = 1 << 20
"""Bytes of an answer that are read; an engine's metrics are some 10 kB."""
_STATUS = re.compile(rb"HTTP/1\.[01] (\d{3})(?: [^\r\n]*)?\r?\n")


@dataclass(frozen=True, slots=True)
class Answer:
    """An HTTP answer. Status 0: there was none."""

    status: int
    body: bytes = b""


async def get(process: Process, path: str, *, timeout: float = TIMEOUT) -> Answer:
    """Ask for `path` with the engine's key; never raises for what the other end does."""
    return await _exchange(process, "GET", path, b"", timeout)


async def post(process: Process, path: str, body: bytes, *, timeout: float = TIMEOUT) -> Answer:
    """Send JSON to `path` in the same way."""
    return await _exchange(process, "POST", path, body, timeout)


async def _exchange(process: Process, method: str, path: str, body: bytes, timeout: float) -> Answer:
    try:
        async with asyncio.timeout(timeout):
            reader, writer = await asyncio.open_connection(process.host, process.port, limit=65536)
            try:
                # HTTP/1.0: the answer ends with the connection, and no encoding is applied to it.
                authority = f"[{process.host}]" if ":" in process.host else process.host
                head = f"{method} {path} HTTP/1.0\r\nHost: {authority}\r\nAuthorization: Bearer {process.key}\r\n"
                about = f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n" if body else ""
                writer.write(f"{head}{about}\r\n".encode() + body)
                return _answer(await _all(reader))
            finally:
                writer.close()
                with contextlib.suppress(OSError):
                    await writer.wait_closed()
    except (OSError, TimeoutError):
        return Answer(0)


async def ready(adapter: Adapter, process: Process) -> Ready | None:
    """Ask an engine for its health; None when nobody answers."""
    answer = await get(process, adapter.HEALTH)
    return None if answer.status == 0 else adapter.health(answer.status)


async def ours(adapter: Adapter, process: Process) -> bool:
    """Whether it is our engine that answers on the port: it takes the key that only it was given."""
    return (await get(process, adapter.OWN)).status == 200


async def idle(adapter: Adapter, process: Process) -> bool:
    """Whether the engine says that it serves nothing and has nothing waiting."""
    answer = await get(process, adapter.METRICS)
    return answer.status == 200 and adapter.serving(answer.body) == 0


async def _all(reader: asyncio.StreamReader) -> bytes:
    kept = bytearray()
    while len(kept) < _MOST and (chunk := await reader.read(65536)):
        kept += chunk
    return bytes(kept)


def _answer(raw: bytes) -> Answer:
    match = _STATUS.match(raw)
    if match is None:
        return Answer(0)
    return Answer(int(match[1]), raw.partition(b"\r\n\r\n")[2])
