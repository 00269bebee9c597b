"""What does the head of a request or a response say? Strict grammar; whatever two readers could take differently is no.

httptools checks the fields; it has no limits, no idea of Host and takes other protocols' first lines, so the first
line, Host and the framing are checked here. It is shown no request line and no body: those are read here and in
`bodies.py`.
"""

import re
from collections.abc import Sequence
from functools import lru_cache
from http import HTTPStatus

import httptools

from llmgw.core.units import size
from llmgw.router.limits import Limits

Headers = list[tuple[bytes, bytes]]

_REQUEST = re.compile(rb"([!#$%&'*+\-.^_`|~0-9A-Za-z]+) ([\x21-\x7e]+) HTTP/([0-9])\.([0-9])\r\n")
_STATUS = re.compile(rb"HTTP/1\.([01]) ([1-5][0-9][0-9])(?: [\t\x20-\x7e\x80-\xff]*)?\r\n")
_HOST = re.compile(rb"(?:[A-Za-z0-9._~-]+|\[[0-9A-Fa-f:.]+\])(?::[0-9]{1,5})?")
_ABSOLUTE = re.compile(rb"[Hh][Tt][Tt][Pp][Ss]?://([^/?]+)(/[^?]*)?(?:\?.*)?")
_DOTS = re.compile(rb"/\.\.?(?:/|\Z)")
_LENGTH = re.compile(rb"[0-9]{1,18}")
_BARE = re.compile(rb"\r[^\n]|(?<!\r)\n")
_TOKEN = frozenset(b"!#$%&'*+-.^_`|~0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz")

METHODS = frozenset((b"GET", b"HEAD", b"POST", b"OPTIONS", b"DELETE"))
HOP_BY_HOP = frozenset(
    (b"connection", b"keep-alive", b"proxy-connection", b"te", b"trailer", b"transfer-encoding", b"upgrade")
)
_LOOKED_AT = frozenset(
    (b"host", b"content-length", b"transfer-encoding", b"connection", b"expect", b"upgrade", b"x-request-id", b"origin")
)
_CREDENTIALS = frozenset((b"authorization", b"x-api-key", b"cookie"))
"""The client's, for the router; the engine is sent its own."""
_COMMON = ([b"keep-alive"], [b"close"], [b"Keep-Alive"], [b"Close"])


class Malformed(Exception):
    """A request that is answered with `status` and nothing more; the text holds none of its bytes."""

    def __init__(self, status: int, code: str, text: str) -> None:
        super().__init__(text)
        self.status, self.code = status, code


class BadAnswer(Exception):
    """A response that no honest engine sends."""


class RequestHead:
    """A request's head; `path` is without the query, as sent, not decoded."""

    __slots__ = ("chunked", "close", "expects", "forward", "given_id", "length", "method", "old", "origin", "path")

    def __init__(self, method: bytes, path: bytes, old: bool, forward: list[bytes]) -> None:
        self.method, self.path, self.old, self.forward = method, path, old, forward
        """`forward` holds the fields that an engine is sent, as they go on the wire, names in lower case."""
        self.length = 0
        self.chunked = False
        self.close = old
        self.expects = False
        self.given_id = b""
        """The client's own id for the request, whatever it looks like."""
        self.origin = False
        """A web page's script or form sent it (or a client that says so)."""

    @property
    def is_json(self) -> bool:
        """Whether its body is said to be JSON, and nothing else."""
        types = [line for line in self.forward if line.startswith(b"content-type:")]
        return len(types) == 1 and types[0][13:].partition(b";")[0].strip().lower() == b"application/json"


class ResponseHead:
    """A response's head. `fields` are those to pass on, written as they go on the wire."""

    __slots__ = ("chunked", "events", "fields", "keep", "length", "line", "status")

    def __init__(self, status: int, fields: bytes, length: int | None, chunked: bool) -> None:
        self.status, self.fields, self.length, self.chunked = status, fields, length, chunked
        self.line = status_line(status)
        self.keep = True
        self.events = False
        """Server-sent events."""


class _RequestFields:
    """Sorts a request's fields while they are read: once for each field is most of what a head costs."""

    __slots__ = ("disguised", "forward", "found")

    def __init__(self) -> None:
        self.forward: list[bytes] = []
        self.found: dict[bytes, list[bytes]] = {}
        self.disguised = False

    def on_header(self, name: bytes, value: bytes) -> None:
        name = name.lower()
        if name in _LOOKED_AT:
            self.found.setdefault(name, []).append(value)
        elif _to_engine(name):
            self.forward.append(b"%b: %b\r\n" % (name, value))
        elif b"_" in name and name.replace(b"_", b"-") in _LOOKED_AT:
            self.disguised = True


class _ResponseFields:
    __slots__ = ("headers",)

    def __init__(self) -> None:
        self.headers: Headers = []

    def on_header(self, name: bytes, value: bytes) -> None:
        self.headers.append((name.lower(), value))


@lru_cache(1024)
def status_line(status: int) -> bytes:
    """`HTTP/1.1 200 OK` with its line end; a status without a known phrase goes without."""
    try:
        phrase = HTTPStatus(status).phrase
    except ValueError:
        phrase = ""
    return f"HTTP/1.1 {status} {phrase}\r\n".encode()


def check_part(held: bytes, seen: int, limits: Limits) -> None:
    """Refuse the part of a request's head that is there already when no more bytes can make it good.

    `seen` of its bytes were checked before.
    """
    if held and held[0] not in _TOKEN:
        raise Malformed(400, "bad_request_line", "the request does not start with a method")
    if _BARE.search(held, max(0, seen - 1)):
        raise Malformed(400, "bad_line_end", "a line ends without CR LF")
    line = held.find(b"\r\n")
    if line > limits.request_line or (line < 0 and len(held) > limits.request_line):
        raise _line_too_long(limits)
    if line >= 0 and len(held) - line > limits.head:
        raise _head_too_large(limits)


def request_head(raw: bytes, limits: Limits) -> RequestHead:
    """Read a head that ends with an empty line; raises Malformed."""
    start = raw.find(b"\r\n") + 2
    if start > limits.request_line:
        raise _line_too_long(limits)
    method, path, old, authority = _request_line(raw[:start])
    block = raw[start:]
    if len(block) > limits.head or block.count(b"\r\n") - 1 > limits.fields or _long_field(block, limits.field):
        raise _head_too_large(limits)
    fields = _request_fields(block)
    head = RequestHead(method, path, old, fields.forward)
    _look(head, fields, authority)
    return head


def _long_field(block: bytes, limit: int) -> bool:
    return len(block) > limit and any(len(line) > limit for line in block.split(b"\r\n"))


@lru_cache(512)
def _request_line(line: bytes) -> tuple[bytes, bytes, bool, bytes | None]:
    """Method, path, whether the client is of HTTP/1.0, and the authority that the target names. Clients repeat it."""
    match = _REQUEST.fullmatch(line)
    if match is None:
        raise Malformed(400, "bad_request_line", "the request line is malformed")
    if match[3] != b"1":
        raise Malformed(505, "http_version", "only HTTP/1.1 and HTTP/1.0 are spoken here")
    if match[1] not in METHODS:
        raise Malformed(501, "unknown_method", "the method is not known here")
    authority, path = _target(match[1], match[2])
    return match[1], path, match[4] == b"0", authority


def _request_fields(block: bytes) -> _RequestFields:
    fields = _RequestFields()
    try:
        httptools.HttpRequestParser(fields).feed_data(b"POST / HTTP/1.1\r\n" + block)
    except httptools.HttpParserUpgrade:
        pass  # asked for, never granted: what follows is read as an ordinary request, or refused when it has a body
    except httptools.HttpParserError:
        raise Malformed(400, "bad_header", "the header is malformed") from None
    return fields


def _target(method: bytes, target: bytes) -> tuple[bytes | None, bytes]:
    """The authority that the target itself names, if any, and the path."""
    if target == b"*" and method == b"OPTIONS":
        return None, target
    authority = None
    if target[:1] == b"/":
        path = target.partition(b"?")[0]
    else:
        match = _ABSOLUTE.fullmatch(target)
        if match is None:
            raise Malformed(400, "bad_target", "the request target is malformed")
        authority, path = match[1], match[2] or b"/"
    if b"#" in target or _DOTS.search(path):
        raise Malformed(400, "bad_target", "the request target is malformed")
    return authority, path


def _look(head: RequestHead, fields: _RequestFields, authority: bytes | None) -> None:
    """Fill in what Host and the framing fields say, or refuse them."""
    found = fields.found
    if fields.disguised:
        raise Malformed(400, "bad_header", "a framing field is spelt with an underscore")
    _host(found.get(b"host", ()), authority, head.old)
    _framing(head, found)
    if b"upgrade" in found and (head.chunked or head.length):
        raise Malformed(400, "upgrade_with_body", "a request with a body cannot ask for an upgrade")
    if b"connection" in found:
        _connection(head, found[b"connection"])
    if b"expect" in found and not head.old:
        if len(found[b"expect"]) > 1 or found[b"expect"][0].lower() != b"100-continue":
            raise Malformed(417, "expectation_failed", "the only expectation met here is 100-continue")
        head.expects = head.chunked or head.length > 0
    if b"x-request-id" in found:
        head.given_id = found[b"x-request-id"][0]
    head.origin = b"origin" in found


def _connection(head: RequestHead, values: list[bytes]) -> None:
    """Fields that `Connection` names stay on this hop."""
    if values in _COMMON:
        head.close = head.old or values[0].lower() == b"close"
        return
    hops = {token.strip().lower() for value in values for token in value.split(b",")}
    head.close = head.old or b"close" in hops
    head.forward = [line for line in head.forward if line.partition(b":")[0] not in hops]


def _host(hosts: Sequence[bytes], authority: bytes | None, old: bool) -> None:
    if len(hosts) > 1 or not (hosts or old):
        raise Malformed(400, "bad_host", f"the request has {len(hosts)} Host fields; it needs one")
    if (hosts and hosts[0] and not _HOST.fullmatch(hosts[0])) or (authority and not _HOST.fullmatch(authority)):
        raise Malformed(400, "bad_host", "the Host is malformed")


def _framing(head: RequestHead, found: dict[bytes, list[bytes]]) -> None:
    codings, lengths = found.get(b"transfer-encoding"), found.get(b"content-length")
    if codings is not None:
        if head.old or lengths is not None:
            raise Malformed(400, "bad_framing", "the body's end is stated in two ways")
        if len(codings) > 1 or codings[0].lower() != b"chunked":
            last = codings[-1].lower().split(b",")[-1].strip()
            raise Malformed(501 if last == b"chunked" else 400, "bad_framing", "the only transfer coding is chunked")
        head.chunked = True
    elif lengths is not None:
        if len(lengths) > 1 or _LENGTH.fullmatch(lengths[0]) is None:
            raise Malformed(400, "bad_framing", "Content-Length is malformed")
        head.length = int(lengths[0])


def _line_too_long(limits: Limits) -> Malformed:
    return Malformed(414, "uri_too_long", f"the request line is over {size(limits.request_line)}")


def _head_too_large(limits: Limits) -> Malformed:
    bounds = f"{size(limits.head)}, {limits.fields} fields, {size(limits.field)} a field"
    return Malformed(431, "header_too_large", f"the header is over {bounds}")


# --- responses --------------------------------------------------------------------------------------------------


def response_head(raw: bytes) -> ResponseHead:
    """Read a head that ends with an empty line; raises BadAnswer. An engine's heads repeat: short ones are kept."""
    return _kept_head(raw) if len(raw) <= 1024 else _response_head(raw)


def _response_head(raw: bytes) -> ResponseHead:
    first = _STATUS.match(raw)
    if first is None:
        raise BadAnswer("the status line is malformed")
    fields = _ResponseFields()
    try:
        httptools.HttpResponseParser(fields).feed_data(raw)
    except httptools.HttpParserUpgrade:
        raise BadAnswer("it switches to another protocol") from None
    except httptools.HttpParserError:
        raise BadAnswer("the header is malformed") from None
    return _read(first, fields.headers)


_kept_head = lru_cache(256)(_response_head)


def _read(first: re.Match[bytes], headers: Headers) -> ResponseHead:
    status, old = int(first[2]), first[1] == b"0"
    if status == 101:
        raise BadAnswer("it switches to another protocol")
    codings = [v for n, v in headers if n == b"transfer-encoding"]
    lengths = [v for n, v in headers if n == b"content-length"]
    hops = {t.strip().lower() for n, v in headers if n == b"connection" for t in v.split(b",")}
    fields = b"".join(n + b": " + v + b"\r\n" for n, v in headers if _to_client(n) and n not in hops)
    head = ResponseHead(status, fields, _response_length(lengths), bool(codings))
    if codings and (old or lengths or len(codings) > 1 or codings[0].lower() != b"chunked"):
        raise BadAnswer("its transfer coding is not chunked, or not alone")
    if status in (204, 304) or status < 200:
        # These have no body whatever they say; one that states a length is not trusted with another request.
        head.keep, head.length, head.chunked = not (codings or lengths), 0, False
    elif not codings and not lengths:
        raise BadAnswer("its body has no stated end")
    head.keep = head.keep and not old and b"close" not in hops
    head.events = any(n == b"content-type" and v.lower().startswith(b"text/event-stream") for n, v in headers)
    return head


def _response_length(lengths: list[bytes]) -> int | None:
    if not lengths:
        return None
    if len(lengths) > 1 or _LENGTH.fullmatch(lengths[0]) is None:
        raise BadAnswer("its Content-Length is malformed")
    return int(lengths[0])


def passes(name: bytes) -> bool:
    """Whether a field may go through, in either direction: framing, hop-by-hop and our own fields may not."""
    return not (
        name in HOP_BY_HOP
        or name in (b"content-length", b"host", b"expect", b"x-request-id")
        or b"_" in name
        or name.startswith((b"proxy-", b"x-llmgw-"))
    )


def _to_client(name: bytes) -> bool:
    """An engine lets the pages of every site use it; that is not its to say for the gateway, nor is what it is."""
    return passes(name) and name != b"server" and not name.startswith(b"access-control-")


@lru_cache(512)
def _to_engine(name: bytes) -> bool:
    return passes(name) and name not in _CREDENTIALS
