"""What does the router say when it answers by itself? OpenAI's shape of errors, one line each."""

from dataclasses import dataclass

import msgspec

JSON = b"Content-Type: application/json\r\n"


@dataclass(frozen=True, slots=True)
class Answer:
    """A whole answer: `fields` are header fields as they go on the wire, without the framing."""

    status: int
    body: bytes
    fields: bytes = JSON
    code: str = ""
    """For the access log."""


def error(
    status: int, code: str, message: str, *, kind: str = "", param: str | None = None, fields: bytes = b"", **more: int
) -> Answer:
    """An error in OpenAI's shape; `more` are numbers beside the message."""
    return Answer(status, error_body(status, code, message, kind=kind, param=param, **more), JSON + fields, code)


def error_body(status: int, code: str, message: str, *, kind: str = "", param: str | None = None, **more: int) -> bytes:
    """The JSON of an error; text from outside in `message` must be bounded by the caller, escaping is done here."""
    shape = {"message": message, "type": kind or _kind(status), "param": param, "code": code, **more}
    return msgspec.json.encode({"error": shape})


def error_event(code: str, message: str) -> bytes:
    """The error as a server-sent event, for a stream that cannot go on."""
    return b"data: " + error_body(502, code, message) + b"\n\n"


def retry_after(seconds: int) -> bytes:
    """The header field."""
    return b"Retry-After: %d\r\n" % seconds


def _kind(status: int) -> str:
    if status == 503:
        return "service_unavailable"
    return "invalid_request_error" if status < 500 else "api_error"
