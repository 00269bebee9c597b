"""From a file to a checked model, and from what pydantic found wrong to one line with file, line, key and rule."""

import difflib
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from llmgw.config.yaml import Node, NotYaml, read
from llmgw.core.errors import BadConfig
from llmgw.core.safe import safe
from llmgw.host import files

LARGEST = 1 << 20
"""Bytes of a configuration file."""

M = TypeVar("M", bound=BaseModel)

_RULES = {
    "missing": "is missing",
    "string_type": "must be text",
    **dict.fromkeys(("bool_parsing", "bool_type"), "must be true or false"),
    "int_parsing": "must be a whole number",
    "int_type": "must be a whole number",
    "int_from_float": "must be a whole number",
    "int_parsing_size": "must be a whole number of fewer digits",
    "greater_than_equal": "must be at least {ge}",
    "less_than_equal": "must be at most {le}",
    "enum": "must be {expected}",
    "too_short": "must hold at least {min_length}",
    "too_long": "must hold at most {max_length}",
    "string_too_long": "must be at most {max_length} characters long",
    "value_error": "{error}",
    "unknown_key": "{rule}",
    "entry": "{rule}",
    "path_type": "must be a path",
    **dict.fromkeys(("list_type", "tuple_type"), "must be a list"),
    **dict.fromkeys(("dict_type", "model_type", "model_attributes_type"), "must be a mapping of keys to values"),
}
_WITHOUT_FOUND = {"missing", "unknown_key", "entry"}


def checked(path: Path, model: type[M]) -> M:
    """Return the file at `path` as a `model`, relative paths resolved against the file's directory; or BadConfig."""
    root = mapping(path)
    try:
        return model.model_validate(root.value, context={"base": path.absolute().parent})
    except ValidationError as error:
        details = error.errors(include_url=False)
        first = min(details, key=lambda one: root.line_of(keys(one)))
        raise bad(path, root, first) from None


def mapping(path: Path) -> Node:
    """The file's keys and values; BadConfig when it cannot be read, is no YAML or holds something else."""
    root = _read(path)
    if root.value is None:
        return Node({}, 1)
    if not isinstance(root.value, dict):
        raise BadConfig(str(path), root.line, "", "must be a mapping of keys to values", _found(root.value))
    return root


def nearest(word: str, known: list[str]) -> str:
    """`unknown key`, with the known key that was probably meant, or all of them."""
    close = difflib.get_close_matches(word[:80], known, 1)
    return f"unknown key; did you mean {close[0]}?" if close else f"unknown key; known: {', '.join(known)}"


def _read(path: Path) -> Node:
    try:
        text = _bytes(path).decode("utf-8-sig")
        return read(text)
    except OSError as error:
        raise BadConfig(str(path), None, "", f"cannot be read: {(error.strerror or str(error)).lower()}") from None
    except UnicodeDecodeError as error:
        line = error.object[: error.start].count(b"\n") + 1
        raise BadConfig(str(path), line, "", f"must be UTF-8, byte 0x{error.object[error.start]:02x} is not") from None
    except NotYaml as error:
        raise BadConfig(str(path), error.line, "", error.rule) from None


def _bytes(path: Path) -> bytes:
    try:
        content, _ = files.read(path, LARGEST)
    except files.Unfit as unfit:
        raise BadConfig(str(path), None, "", str(unfit)) from None
    return content


def keys(detail: ErrorDetails) -> tuple[str | int, ...]:
    """Where in the file an error is: keys, and positions in lists."""
    # Validators that look at a whole section say in `at` which of its keys they mean.
    at = detail.get("ctx", {}).get("at", ())
    return tuple(step for step in (*detail["loc"], *at) if step != "[key]")


def bad(path: Path, root: Node, detail: ErrorDetails) -> BadConfig:
    """An error of pydantic's as the line with file, line, key and rule; `root` is the file at `path`."""
    kind, where = detail["type"], keys(detail)
    context: dict[str, Any] = {name: str(value) for name, value in detail.get("ctx", {}).items()}
    rule = _RULES.get(kind, "{msg}").format(msg=detail["msg"], **context)
    key = ".".join(safe(str(step), 80) for step in where)
    return BadConfig(
        str(path), root.line_of(where), key, rule, "" if kind in _WITHOUT_FOUND else _found(detail["input"])
    )


def _found(value: object) -> str:
    match value:
        case None:
            return "nothing"
        case dict():
            return "a mapping"
        case list() | tuple():
            return "a list"
    text = str(value)
    return repr(text if len(text) <= 60 else text[:60] + "…")
