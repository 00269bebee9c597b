"""What may a name in an archive be? Told from its bytes alone."""

from llmgw.agent.engines.unpack.bad import BadArchive
from llmgw.agent.engines.unpack.limits import Limits

Parts = tuple[str, ...]
"""A name by its components; empty for the directory that everything goes into."""

_ODD = ("", ".", "..")
_SHOWN = 200
"""Characters of a name that is told."""


def parts(raw: bytes, limits: Limits) -> Parts:
    """Return an entry's name by its components; `.` and a leading `./` are nothing. Raises BadArchive."""
    text = _text(raw, "name", limits)
    if text.startswith("/"):
        raise BadArchive("is absolute")
    named = text.removesuffix("/").split("/")
    if named[0] == ".":
        del named[0]
    for part in named:
        if part in _ODD or len(part) * 4 > limits.component:
            _check(part, limits)
    if len(named) > limits.depth:
        raise BadArchive(f"is {len(named)} directories deep, {limits.depth} are allowed")
    return tuple(named)


def target(raw: bytes, limits: Limits) -> str:
    """Return where a symbolic link points to, which is relative. Raises BadArchive."""
    text = _text(raw, "link target", limits)
    if text.startswith("/"):
        raise BadArchive(f"link points to {shown(raw)}, which is absolute")
    return text


def shown(raw: bytes) -> str:
    """Return it so that it prints as one short line, whatever is in it."""
    text = raw.decode("utf-8", "backslashreplace")
    cut = text[:_SHOWN] + ("…" if len(text) > _SHOWN else "")
    return "".join(char if char.isprintable() else f"\\u{ord(char):04x}" for char in cut)


def told(named: Parts) -> str:
    """Return it as one short line."""
    return shown("/".join(named).encode())


def _text(raw: bytes, what: str, limits: Limits) -> str:
    if not raw:
        raise BadArchive(f"has an empty {what}")
    if len(raw) > limits.path:
        raise BadArchive(f"has a {what} of {len(raw)} bytes, {limits.path} are allowed")
    try:
        text = raw.decode()
    except UnicodeDecodeError:
        raise BadArchive(f"has a {what} that is not UTF-8") from None
    # Control characters, line ends, marks that turn the writing direction, and what Unicode has not assigned.
    if "\\" in text or not text.isprintable():
        odd = next(char for char in text if char == "\\" or not char.isprintable())
        raise BadArchive(f"has the character U+{ord(odd):04X} in its {what}")
    return text


def _check(part: str, limits: Limits) -> None:
    if part == "..":
        raise BadArchive("leaves the directory, or may: its name has a component ..")
    if part in ("", "."):
        raise BadArchive("has an empty component in its name")
    if len(part.encode()) > limits.component:
        raise BadArchive(f"has a component of {len(part.encode())} bytes, {limits.component} are allowed")
