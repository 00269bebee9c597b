"""Does the cluster serve? One plain and one streamed chat request through the gateway, with what came back counted."""

import asyncio
import json
import time
from dataclasses import dataclass

from llmgw.cli.local.http import Answer, ask
from llmgw.core.errors import ClusterCannot
from llmgw.core.safe import safe

_PATH = "/v1/chat/completions"
_TOKENS = 24
_TIMEOUT = 30.0


@dataclass(frozen=True, slots=True)
class Served:
    """What two requests brought."""

    completion_tokens: int
    streamed_chunks: int
    """Events of the stream that carried a choice."""
    first_token_ms: float
    """From sending the streamed request to the first text in it."""


async def served(gateway: str, model: str) -> Served:
    """Ask twice; ClusterCannot says what was wrong with an answer."""
    try:
        async with asyncio.timeout(_TIMEOUT):
            tokens = await _plain(gateway, model)
            chunks, first = await _streamed(gateway, model)
    except TimeoutError:
        raise ClusterCannot(f"the gateway {gateway} did not answer two requests within {_TIMEOUT:.0f}s") from None
    return Served(tokens, chunks, first)


async def lists(gateway: str, model: str) -> bool:
    """Whether the gateway has learned of the model."""
    async with ask(gateway, "/v1/models") as answer:
        text = await answer.text()
        return answer.status == 200 and any(one.get("id") == model for one in json.loads(text).get("data", ()))


def request(model: str) -> dict[str, object]:
    """A small chat request, also what the demo shows as an example."""
    words = "Say hello in one short sentence."
    return {"model": model, "messages": [{"role": "user", "content": words}], "max_tokens": _TOKENS}


async def _plain(gateway: str, model: str) -> int:
    async with ask(gateway, _PATH, request(model)) as answer:
        found = json.loads(await _good(answer))
        tokens = int(found["usage"]["completion_tokens"])
        if tokens < 1 or "content" not in found["choices"][0]["message"]:
            raise ClusterCannot(f"the answer of {model} holds no text")
        return tokens


async def _streamed(gateway: str, model: str) -> tuple[int, float]:
    started, first, chunks, rest, done = time.monotonic(), 0.0, 0, b"", False
    async with ask(gateway, _PATH, request(model) | {"stream": True}) as answer:
        if answer.status != 200:
            await _good(answer)
        async for piece in answer:
            *lines, rest = (rest + piece).split(b"\n")
            for line in lines:
                done = done or line.strip() == b"data: [DONE]"
                text = _text(line)
                chunks += text is not None
                if text and not first:
                    first = time.monotonic() - started
    if not done or chunks < 1:
        raise ClusterCannot(f"the stream of {model} ended after {chunks} chunks without its end mark")
    return chunks, round(first * 1000, 1)


def _text(line: bytes) -> str | None:
    """The text in one line of the stream; None when it carries no choice."""
    if not line.startswith(b"data: {"):
        return None
    event = json.loads(line.removeprefix(b"data: "))
    if "error" in event:
        raise ClusterCannot(f"the stream broke off: {safe(str(event['error'].get('message', '')))}")
    choices = event.get("choices")
    return str(choices[0].get("delta", {}).get("content") or "") if choices else None


async def _good(answer: Answer) -> str:
    text = await answer.text()
    if answer.status != 200:
        raise ClusterCannot(f"the gateway answered {answer.status}: {safe(text[:500])}")
    return text
