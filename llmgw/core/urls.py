"""Which addresses of files do we ask? Those of HTTP, with a host, and without a word that is nobody's business."""

import re
from urllib.parse import SplitResult, urlsplit

from llmgw.core.errors import BadName
from llmgw.core.hosts import host_name

LONGEST = 2_048
"""Characters of an address."""

_GRAMMAR = "http:// or https:// with a host, without user, password, spaces and fragment"
_PRINTABLE = re.compile(r"[!-~]+\Z")


def web_url(text: str) -> str:
    """Return `text` when it is the address of a file or of a directory, or raise BadName."""
    if len(text) > LONGEST or _PRINTABLE.match(text) is None or "\\" in text:
        raise BadName("web address", text, _GRAMMAR)
    try:
        parts = urlsplit(text)
        _ = parts.port
    except ValueError:
        raise BadName("web address", text, _GRAMMAR) from None
    if parts.scheme not in ("http", "https") or "@" in parts.netloc or "#" in text or not _is_host(parts):
        raise BadName("web address", text, _GRAMMAR)
    return text


def base_url(text: str) -> str:
    """As `web_url` for an address that names are put behind: without a query, and without a slash at its end."""
    if "?" in web_url(text):
        raise BadName("web address", text, f"{_GRAMMAR} or query")
    return text.rstrip("/")


def is_secure(url: str) -> bool:
    """Whether nobody on the way reads or changes what comes from there."""
    return url.startswith("https://")


def host_of(url: str) -> str:
    """The host of a web address."""
    return urlsplit(url).hostname or ""


def _is_host(parts: SplitResult) -> bool:
    try:
        return bool(parts.hostname and host_name(parts.hostname))
    except BadName:
        return False
