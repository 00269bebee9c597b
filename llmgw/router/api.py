"""Which paths are there, and what is done with a request to each? OpenAI's API, and `/health`."""

from collections.abc import Callable
from urllib.parse import unquote_to_bytes

import msgspec

from llmgw.router import answers
from llmgw.router.answers import Answer
from llmgw.router.exchange import Exchange, Exchanges
from llmgw.router.heads import RequestHead
from llmgw.router.requests import Request
from llmgw.router.table import Table

ENGINE_PATHS = frozenset((b"/v1/chat/completions", b"/v1/completions", b"/v1/embeddings"))
_MODELS, _MODEL, _HEALTH = b"/v1/models", b"/v1/models/", b"/health"
PATHS = ENGINE_PATHS | {_MODELS, _HEALTH}

_READ = (b"GET", b"HEAD", b"OPTIONS")
_POST = (b"POST", b"OPTIONS")
_SHOWN = 120
_PAGES = "a request with an Origin header, as web pages send it, must have the Content-Type application/json"


class Ask(msgspec.Struct):
    """What is read of a body; the engine reads the rest."""

    model: str
    stream: bool | None = None


class Gateway:
    """Answers requests: a `requests.Handler`."""

    def __init__(self, table: Table, exchanges: Exchanges, health: Callable[[], dict[str, object]]) -> None:
        """`health` returns what `/health` shows; its `status` is `ok` or else makes the answer a 503."""
        self._table, self._exchanges, self._health = table, exchanges, health
        self._decoder = msgspec.json.Decoder(Ask)

    def wants(self, head: RequestHead) -> bool:
        """Only requests to an engine have a body that is wanted."""
        return head.method == b"POST" and head.path in ENGINE_PATHS

    def refused(self, request_id: bytes, status: int, code: str, client: str) -> None:
        """Log it."""
        self._exchanges.log.refused(request_id, client, status, code)

    def answer(self, request: Request) -> None:
        """Answer at once, or start the exchange that will."""
        head = request.head
        if head.method == b"POST" and head.path in ENGINE_PATHS:
            said = self._to_engine(request)
            if said is None:
                return
        else:
            said = self._here(head)
        clock = self._exchanges.clock
        self._exchanges.log.request(request, clock(), said.status, said.code or "done", f" out={len(said.body)}")
        request.whole(said)

    # --- for an engine ------------------------------------------------------------------------------------------

    def _to_engine(self, request: Request) -> Answer | None:
        """None when an exchange has taken it."""
        if request.head.origin and not request.head.is_json:
            # A page of any site may send other types unasked; for this one its browser asks first, and is told no.
            return answers.error(415, "unsupported_media_type", _PAGES)
        try:
            ask = self._decoder.decode(request.body)
        except msgspec.ValidationError as bad:
            return answers.error(400, "bad_request", _rule(str(bad)), param=_param(str(bad)))
        except (msgspec.DecodeError, RecursionError):
            return answers.error(400, "bad_json", "the body is not JSON; send an object with `model`")
        entry = self._table.entry(ask.model)
        if entry is None:
            return self._unknown(ask.model)
        Exchange(self._exchanges, request, entry, stream=bool(ask.stream)).start()
        return None

    def _unknown(self, model: str) -> Answer:
        if self._table.revision is None:
            return _no_routes()
        name = model if len(model) <= _SHOWN else model[:_SHOWN] + "…"
        text = f"the model `{name}` does not exist; GET /v1/models lists those that do"
        return answers.error(404, "model_not_found", text, param="model")

    # --- answered here ------------------------------------------------------------------------------------------

    def _here(self, head: RequestHead) -> Answer:
        path, method = head.path, head.method
        allowed = _POST if path in ENGINE_PATHS else _READ if path in PATHS or path.startswith(_MODEL) else ()
        if path == b"*":
            return Answer(204, b"", _allow((b"GET", b"HEAD", b"POST", b"OPTIONS")))
        if not allowed:
            return answers.error(404, "unknown_url", "there is nothing at this path; the API is under /v1")
        if method == b"OPTIONS":
            return Answer(204, b"", _allow(allowed))
        if method not in allowed:
            said = " or ".join(m.decode() for m in allowed if m not in (b"HEAD", b"OPTIONS"))
            return answers.error(405, "method_not_allowed", f"this path takes {said}", fields=_allow(allowed))
        if path == _HEALTH:
            shown = self._health()
            return Answer(200 if shown["status"] == "ok" else 503, msgspec.json.encode(shown))
        if path == _MODELS:
            return _no_routes() if self._table.revision is None else Answer(200, self._table.listing)
        return self._model(path.removeprefix(_MODEL))

    def _model(self, quoted: bytes) -> Answer:
        name = unquote_to_bytes(quoted).decode("utf-8", "replace")
        entry = self._table.entry(name)
        return self._unknown(name) if entry is None else Answer(200, entry.card)


def _no_routes() -> Answer:
    text = "this router has not heard from its control plane yet"
    return answers.error(503, "no_routes", text, fields=answers.retry_after(1))


def _allow(methods: tuple[bytes, ...]) -> bytes:
    return b"Allow: " + b", ".join(methods) + b"\r\n"


def _param(words: str) -> str | None:
    return next((name for name in ("model", "stream") if f"`{name}`" in words or f"$.{name}" in words), None)


def _rule(words: str) -> str:
    param = _param(words)
    if param is None:
        return "the body must be a JSON object with `model`"
    if "missing" in words:
        return "`model` is missing; name one of GET /v1/models"
    return f"`{param}` must be {'a string' if param == 'model' else 'true or false'}"
