"""What the files have in common: the kinds of values, and sections that refuse unknown keys by name."""

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainValidator,
    ValidationInfo,
    model_validator,
)
from pydantic_core import PydanticCustomError

from llmgw.config.address import Address, address
from llmgw.config.checked import nearest
from llmgw.config.tls import TlsFiles
from llmgw.config.units import byte_size, duration
from llmgw.core.errors import BadName

T = TypeVar("T")

LONGEST_SOCKET = 107
"""Bytes of a Unix socket's path, by the kernel's sockaddr_un."""


class Section(BaseModel):
    """A mapping with known keys."""

    model_config = ConfigDict(frozen=True, arbitrary_types_allowed=True)

    @model_validator(mode="before")
    @classmethod
    def _known_keys(cls, value: Any) -> Any:
        if isinstance(value, dict):
            for key in value:
                if key not in cls.model_fields:
                    raise entry_error("unknown_key", nearest(str(key), list(cls.model_fields)), key)
        return value


def entry_error(kind: str, rule: str, *at: str | int) -> PydanticCustomError:
    """An error about the entry `at` inside the section that is being checked."""
    return PydanticCustomError(kind, "{rule}", {"rule": rule, "at": at})


def _text(parse: Callable[[str], T]) -> Callable[[object], T]:
    def check(value: object) -> T:
        if not isinstance(value, str):
            return value  # type: ignore[return-value] # made by code, or nothing: pydantic's own check answers
        return parse(value)

    return check


def named(make: Callable[[str], T]) -> Callable[[str], T]:
    """`make` from core.names as a validator: its grammar becomes the rule."""

    def check(text: str) -> T:
        try:
            return make(text)
        except BadName as error:
            raise ValueError(f"must be {error.grammar}") from None

    return check


def _absolute(path: Path, info: ValidationInfo) -> Path:
    if path == Path() or "\0" in str(path):
        raise ValueError("must be a path")
    base: Path = (info.context or {}).get("base") or Path.cwd()
    return base / path


def _socket(path: Path) -> Path:
    if len(str(path).encode()) > LONGEST_SOCKET:
        raise ValueError(f"must be a path of at most {LONGEST_SOCKET} bytes once it is absolute")
    return path


def _listen(text: str) -> Address:
    return address(text, any_port=True)


def _parsed(parse: Callable[[str], Address]) -> Callable[[object], Address]:
    def check(value: object) -> Address:
        if isinstance(value, Address):
            return value
        if not isinstance(value, str):
            raise ValueError("must be HOST:PORT")  # noqa: TRY004 # pydantic takes ValueError only
        return parse(value)

    return check


Duration = Annotated[float, BeforeValidator(_text(duration))]
Size = Annotated[int, BeforeValidator(_text(byte_size))]
File = Annotated[Path, AfterValidator(_absolute)]
SocketFile = Annotated[Path, AfterValidator(_absolute), AfterValidator(_socket)]
Listen = Annotated[Address, PlainValidator(_parsed(_listen))]
Target = Annotated[Address, PlainValidator(_parsed(address))]


def _some(value: object) -> object:
    if isinstance(value, list | tuple) and not value:
        raise PydanticCustomError("entry", "{rule}", {"rule": "must name at least one HOST:PORT"})
    return value


Targets = Annotated[tuple[Target, ...], Field(max_length=16), BeforeValidator(_some)]


class TlsSection(Section):
    """`tls:` as it is written."""

    certificate: File
    key: File
    authority: File


def _tls(value: object, info: ValidationInfo) -> TlsFiles:
    if isinstance(value, TlsFiles):
        return value
    section = TlsSection.model_validate(value, context=info.context)
    return TlsFiles(section.certificate, section.key, section.authority)


Tls = Annotated[TlsFiles, PlainValidator(_tls)]


class ClientFile(Section):
    """client.yaml: servers and `tls`, or the `socket`."""

    server: Annotated[tuple[Target, ...], Field(max_length=16)] = ()
    tls: Tls | None = None
    socket: SocketFile | None = None

    @model_validator(mode="after")
    def _one_way(self) -> "ClientFile":
        if self.socket is not None and self.server:
            raise entry_error("entry", "must not stand beside server: one of the two", "socket")
        if self.socket is None and not self.server:
            raise entry_error("entry", "needs server: [HOST:PORT] with tls:, or socket: PATH")
        if self.server and self.tls is None:
            raise entry_error("entry", "is missing; server: needs it", "tls")
        return self
