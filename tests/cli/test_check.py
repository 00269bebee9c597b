"""What the demo's own check makes of a gateway's answers. The gateway here says exactly the bytes of the test."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from llmgw.cli.local.check import Served, lists, served
from llmgw.core.errors import ClusterCannot

PLAIN = {"choices": [{"message": {"content": "hi"}}], "usage": {"completion_tokens": 3}}


def event(text: str | None) -> str:
    return "data: " + json.dumps({"choices": [{"delta": {"content": text}}]}) + "\n\n"


USAGE = 'data: {"choices": [], "usage": {}}\n\n'
DONE = "data: [DONE]\n\n"


def answer(body: str, status: str = "200 OK") -> bytes:
    return f"HTTP/1.1 {status}\r\nContent-Length: {len(body.encode())}\r\n\r\n{body}".encode()


def chunked(*pieces: str) -> bytes:
    body = "".join(f"{len(piece.encode()):x}\r\n{piece}\r\n" for piece in pieces)
    return f"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n{body}0\r\n\r\n".encode()


@asynccontextmanager
async def gateway(*answers: bytes) -> AsyncIterator[str]:
    """The URL of a server that gives these answers, one a connection."""
    left = list(answers)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        length = [line for line in head.split(b"\r\n") if line.lower().startswith(b"content-length:")]
        if length:
            await reader.readexactly(int(length[0].split(b":")[1]))
        writer.write(left.pop(0))
        writer.close()
        await writer.wait_closed()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"


async def test_two_good_answers_are_counted() -> None:
    stream = chunked(event(None), event("he") + event("llo")[:9], event("llo")[9:], USAGE, DONE)
    async with gateway(answer(json.dumps(PLAIN)), stream) as url:
        found = await served(url, "m")
    assert found.first_token_ms > 0
    assert found == Served(3, 3, found.first_token_ms)


@pytest.mark.parametrize(
    ("answers", "words"),
    [
        ([answer('{"error": "no\x1b"}', "503 Service Unavailable")], r"answered 503: .*no"),
        ([answer(json.dumps(PLAIN | {"usage": {"completion_tokens": 0}}))], "holds no text"),
        ([answer(json.dumps(PLAIN)), chunked(event("x"))], "ended after 1 chunks without its end mark"),
        ([answer(json.dumps(PLAIN)), chunked(DONE)], "ended after 0 chunks"),
        ([answer(json.dumps(PLAIN)), chunked(event("x"), 'data: {"error": {"message": "gone"}}\n')], "broke off: gone"),
        ([answer(json.dumps(PLAIN)), chunked(event("x"))[:-5]], "ended too early"),
        ([b""], "ended too early"),
        ([b"SSH-2.0-x\r\n"], "is not HTTP"),
    ],
)
async def test_an_answer_that_is_not_good_is_told(answers: list[bytes], words: str) -> None:
    async with gateway(*answers) as url:
        with pytest.raises(ClusterCannot, match=words):
            await served(url, "m")


async def test_nobody_there_is_told() -> None:
    async with gateway() as url:
        pass
    with pytest.raises(ClusterCannot, match="does not answer"):
        await served(url, "m")


async def test_the_gateway_is_asked_whether_it_knows_the_model() -> None:
    known = answer(json.dumps({"data": [{"id": "m"}]}))
    async with gateway(known, known, answer("{}", "503 x")) as url:
        assert [await lists(url, "m"), await lists(url, "n"), await lists(url, "m")] == [True, False, False]
