"""How an error crosses the wire: a gRPC status, its one line of text, and what it takes to make the same class again.

The third part travels in `grpc-status-details-bin` as JSON: {"code": …, "fields": [...]}. A reader that does not know
the code, or for whom the fields do not fit, makes an error of the class that the status stands for, with the same text.
"""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from grpclib.const import Status
from grpclib.encoding.base import CodecBase, StatusDetailsCodecBase
from grpclib.exceptions import GRPCError

from llmgw.core import errors
from llmgw.core.errors import LlmgwError
from llmgw.wire.convert import decode

STATUSES: Mapping[type[LlmgwError], Status] = {
    errors.Rejected: Status.INVALID_ARGUMENT,
    errors.BadConfig: Status.INVALID_ARGUMENT,
    errors.BadName: Status.INVALID_ARGUMENT,
    errors.BadMessage: Status.INVALID_ARGUMENT,
    errors.TooMany: Status.INVALID_ARGUMENT,
    errors.BadProfile: Status.INVALID_ARGUMENT,
    errors.UnknownModel: Status.NOT_FOUND,
    errors.UnknownNode: Status.NOT_FOUND,
    errors.UnknownRelease: Status.NOT_FOUND,
    errors.EngineNotWanted: Status.FAILED_PRECONDITION,
    errors.InvalidTransition: Status.FAILED_PRECONDITION,
    errors.NotAllowed: Status.PERMISSION_DENIED,
    errors.Unreachable: Status.UNAVAILABLE,
    errors.ControlUnreachable: Status.UNAVAILABLE,
    errors.PeerNotTrusted: Status.UNAUTHENTICATED,
    errors.ClusterCannot: Status.FAILED_PRECONDITION,
    errors.NoBuild: Status.FAILED_PRECONDITION,
    errors.ControlFault: Status.INTERNAL,
}
"""Every class of error that can be raised; a test walks the subclasses."""

_MOST_DETAILS = 4096
_MOST_TEXT = 1024


def to_grpc(error: LlmgwError) -> GRPCError:
    """The status, text and details to answer with."""
    status = next(STATUSES[kind] for kind in type(error).__mro__ if kind in STATUSES)
    return GRPCError(status, one_line(str(error)), error)


def from_grpc(error: GRPCError, address: str) -> LlmgwError:
    """The error that the control plane at `address` answered with, as the class it was where that can be rebuilt."""
    text = one_line(error.message or error.status.name.lower().replace("_", " "))
    code, fields = error.details if isinstance(error.details, tuple) else ("", None)
    if fields is not None:
        again = _rebuilt(code, fields, text)
        if again is not None:
            return again
    plain = _plain(error.status, text, address)
    if code:
        plain.code = code
    return plain


def one_line(text: str) -> str:
    """Without control characters, and not longer than a line may be."""
    clean = "".join(char if char.isprintable() else " " for char in text[: _MOST_TEXT + 1])
    return clean if len(clean) <= _MOST_TEXT else clean[:_MOST_TEXT] + "…"


def _plain(status: Status, text: str, address: str) -> LlmgwError:
    match status:
        case Status.UNAUTHENTICATED:
            return errors.PeerNotTrusted(f"control plane {address}", text)
        case Status.UNAVAILABLE | Status.CANCELLED:
            return errors.ControlUnreachable(address, text)
        case Status.DEADLINE_EXCEEDED | Status.FAILED_PRECONDITION | Status.ABORTED:
            return errors.ClusterCannot(text)
        case Status.UNIMPLEMENTED:
            return errors.Rejected(f"control plane {address} does not know this call; it is of another version")
        case Status.INTERNAL | Status.UNKNOWN | Status.DATA_LOSS:
            return errors.ControlFault(text)
        case _:
            return errors.Rejected(text)


def _rebuilt(code: str, fields: list[Any], text: str) -> LlmgwError | None:
    known = {kind.code: kind for kind in _subclasses(LlmgwError)}
    kind = known.get(code)
    if kind is None or not all(_plain_field(field) for field in fields):
        return None
    try:
        again = kind(*(tuple(field) if isinstance(field, list) else field for field in fields))
        return again if one_line(str(again)) == text else None
    except (TypeError, ValueError, AttributeError):
        return None


def _plain_field(field: Any) -> bool:
    if isinstance(field, list):
        return all(isinstance(item, str) for item in field)
    return field is None or isinstance(field, str | int)


def _subclasses(kind: type[LlmgwError]) -> Iterator[type[LlmgwError]]:
    for sub in kind.__subclasses__():
        yield sub
        yield from _subclasses(sub)


class Details(StatusDetailsCodecBase):
    """Code and fields of an error, beside its status and text."""

    def encode(self, status: Status, message: str | None, details: Any) -> bytes:
        """Of the error itself; fields that would not fit in a header are left out."""
        if not isinstance(details, LlmgwError):
            return b""
        whole = {"code": details.code, "fields": [*details.args]}
        try:
            data = json.dumps(whole).encode()
        except (TypeError, ValueError):
            data = b""
        return data if 0 < len(data) <= _MOST_DETAILS else json.dumps({"code": details.code}).encode()

    def decode(self, status: Status, message: str | None, data: bytes) -> tuple[str, list[Any] | None] | None:
        """Code and fields (None where there were none), or None for bytes of another sender."""
        try:
            whole = json.loads(data)
        except (ValueError, RecursionError):
            return None
        if not isinstance(whole, dict) or not isinstance(whole.get("code"), str):
            return None
        fields = whole.get("fields")
        return whole["code"][:80], fields if isinstance(fields, list) else None


class Codec(CodecBase):
    """Messages to bytes and back. Bytes given for a message pass through, for whoever has them encoded already."""

    __content_subtype__ = "proto"

    def encode(self, message: Any, message_type: Any) -> bytes:
        """Encode `message`, which is a `message_type` or its encoded form."""
        if isinstance(message, bytes):
            return message
        if not isinstance(message, message_type):
            raise TypeError(f"a {message_type.__name__} is sent here, not a {type(message).__name__}")
        return bytes(message)

    def decode(self, data: bytes, message_type: Any) -> Any:
        """Decode, or raise BadMessage."""
        return decode(data, message_type)
