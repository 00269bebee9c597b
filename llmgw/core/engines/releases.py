"""What may a release be, and how is it written down? As JSON with the names of its fields: in the store, in a mirror.

    {"engine": "llama.cpp", "version": "b10991", "kind": "archive", "variant": "", "python": "",
     "files": [{"name": "…", "size": 16876121, "digest": "sha256:…", "url": "https://…", "package": ""}]}

Names of files, versions and variants become names on disks, so they are no more than that. What breaks a rule raises
ValueError, whose text is the place and the rule.
"""

import json
import re
from dataclasses import asdict, fields
from typing import Any

from llmgw.core.brief import some
from llmgw.core.engines.digests import is_digest
from llmgw.core.engines.orders import Release, ReleaseFile
from llmgw.core.engines.terms import KINDS, EngineKind
from llmgw.core.errors import BadName
from llmgw.core.units import BOUND, Bytes
from llmgw.core.urls import web_url

MOST_FILES = 2_000
"""Of a release; an environment of a Python engine has a few hundred."""

_VERSION = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+!-]{0,63}\Z")
_BUILD = re.compile(r"b[0-9]{1,9}\Z")
_POINTER = re.compile(r"v[0-9]{1,4}\.[0-9]{1,4}\.[0-9]{1,4}\Z")
_VARIANT = re.compile(r"[a-z0-9][a-z0-9._-]{0,31}\Z")
_FILE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._+!~-]{0,254}\Z")
_PACKAGE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}\Z")
_PYTHON = re.compile(r"3\.[0-9]{1,2}(\.[0-9]{1,2})?\Z")


# --- names ------------------------------------------------------------------------------------------------------


def version_name(text: str) -> str:
    """Return `text` when it can be an engine's version, or raise BadName."""
    return _named("version", text, _VERSION, "letters, digits and ._+!-, at most 64, a letter or digit first")


def is_build(version: str) -> bool:
    """Whether it is a build of an archive engine, such as `b10991`."""
    return _BUILD.match(version) is not None


def points_on(version: str) -> bool:
    """Whether it is a release that leads to a build, such as `v0.4.1`."""
    return _POINTER.match(version) is not None


def variant_name(text: str) -> str:
    """Return `text` when it can be a variant, or raise BadName."""
    return _named("variant", text, _VARIANT, "small letters, digits and ._-, at most 32")


def file_name(text: str) -> str:
    """Return `text` when a file of a release can be called so, or raise BadName."""
    return _named("file", text, _FILE, "the name of a file: letters, digits and ._+!~-, no dot first")


def digest(text: str) -> str:
    """Return `text` when it is a digest, or raise BadName."""
    if not is_digest(text):
        raise BadName("digest", text, "sha256: and 64 hexadecimal digits in small letters")
    return text


def python_version(text: str) -> str:
    """Return `text` when it is the version of an interpreter, or raise BadName."""
    return _named("Python", text, _PYTHON, "a version of Python 3, such as 3.12")


def _named(kind: str, text: str, grammar: re.Pattern[str], rule: str) -> str:
    if grammar.match(text) is None:
        raise BadName(kind, text, rule)
    return text


# --- the whole --------------------------------------------------------------------------------------------------


def checked(release: Release) -> Release:
    """Return `release`, or raise ValueError with the place and the rule that it breaks."""
    if KINDS.get(release.engine) is not release.kind:
        raise ValueError(f"engine: {release.engine[:80]!r} is no engine of kind {release.kind.value}")
    _at("version", version_name, release.version)
    if release.variant:
        _at("variant", variant_name, release.variant)
    if release.python:
        _at("python", python_version, release.python)
    if not 1 <= len(release.files) <= MOST_FILES:
        raise ValueError(f"files: {len(release.files)} is not between 1 and {MOST_FILES}")
    seen = set[str]()
    for index, file in enumerate(release.files):
        _check_file(f"files: {index}", file)
        if file.name in seen:
            raise ValueError(f"files: {index}: {file.name} is there twice")
        seen.add(file.name)
    return release


def _check_file(where: str, file: ReleaseFile) -> None:
    _at(f"{where}: name", file_name, file.name)
    if not 0 < file.size <= BOUND:
        raise ValueError(f"{where}: size: {file.size} is not between 1 and {BOUND}")
    if file.digest:
        _at(f"{where}: digest", digest, file.digest)
    if file.url:
        _at(f"{where}: url", web_url, file.url)
    if file.package and _PACKAGE.match(file.package) is None:
        raise ValueError(f"{where}: package: {file.package[:80]!r} is not the name of a package")


def _at(where: str, check: Any, text: str) -> None:
    try:
        check(text)
    except BadName as error:
        raise ValueError(f"{where}: {error}") from None


def without_digest(release: Release) -> tuple[str, ...]:
    """The names of the files that nobody may install."""
    return tuple(file.name for file in release.files if not file.digest)


# --- as text ----------------------------------------------------------------------------------------------------


def written(release: Release) -> str:
    """The release as JSON on one line."""
    return json.dumps(asdict(release), default=lambda member: member.value)


def read(text: str | bytes) -> Release:
    """The release that the JSON in `text` is, or ValueError."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"is not JSON ({error})"[:200]) from None
    return checked(_release(_object("the whole", value, Release)))


def _release(found: dict[str, Any]) -> Release:
    kind, files = _text("kind", found.get("kind")), found.get("files")
    if kind not in (one.value for one in EngineKind):
        raise ValueError(f"kind: {kind[:80]!r} is not {some([one.value for one in EngineKind], 9)}")
    if not isinstance(files, list):
        raise ValueError("files: is not a list")  # noqa: TRY004 # one kind of error for a bad release
    if len(files) > MOST_FILES:
        raise ValueError(f"files: {len(files)} is not between 1 and {MOST_FILES}")
    return Release(
        engine=_text("engine", found.get("engine")),
        version=_text("version", found.get("version")),
        kind=EngineKind(kind),
        variant=_text("variant", found.get("variant", "")),
        python=_text("python", found.get("python", "")),
        files=tuple(_file(f"files: {index}", one) for index, one in enumerate(files)),
    )


def _file(where: str, value: Any) -> ReleaseFile:
    found = _object(where, value, ReleaseFile)
    size = found.get("size")
    if not isinstance(size, int) or isinstance(size, bool):
        raise ValueError(f"{where}: size: is not a whole number")  # noqa: TRY004 # one kind of error for a bad release
    return ReleaseFile(
        name=_text(f"{where}: name", found.get("name")),
        size=Bytes(size),
        digest=_text(f"{where}: digest", found.get("digest", "")),
        url=_text(f"{where}: url", found.get("url", "")),
        package=_text(f"{where}: package", found.get("package", "")),
    )


def _object(where: str, value: Any, kind: type[Release | ReleaseFile]) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ValueError(f"{where}: is not an object")  # noqa: TRY004 # one kind of error for a bad release
    if unknown := sorted(value.keys() - {field.name for field in fields(kind)}):
        raise ValueError(f"{where}: {unknown[0][:80]!r} is not known")
    return value


def _text(where: str, value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{where}: is not text")  # noqa: TRY004 # one kind of error for a bad release
    return value
